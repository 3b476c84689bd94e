# Turns CUDA on where this machine can compile it, else LM_CUDA off. Included by the root, so that
# every target that links lm_backend also links the runtime.
if(LM_CUDA)
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # A100, L4 and L40, H100 and H200; newer ones translate compute_90 when they load it.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90)
    # Where there is no GPU to run it on, one for all: that compiles in half the time.
    if(NOT LM_SELF_CONTAINED AND NOT EXISTS /dev/nvidia0)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # lm0.so loads where there is no CUDA
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    set(CMAKE_CUDA_STANDARD 17)  # the newest that CMake 3.25 knows of nvcc
    # No contraction, as everywhere: what is to be fused is written as fmaf.
    string(APPEND CMAKE_CUDA_FLAGS " -fmad=false --expt-relaxed-constexpr -Werror=all-warnings"
                                   " -Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off")
    find_package(CUDAToolkit QUIET)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "LM_CUDA: off, there is no nvcc")
    set(LM_CUDA OFF)
  elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
    message(STATUS "LM_CUDA: off, nvcc 12.0 or newer is needed, "
                   "${CMAKE_CUDA_COMPILER} is ${CMAKE_CUDA_COMPILER_VERSION}")
    set(LM_CUDA OFF)
  endif()
endif()

# Turns CUDA on where this machine can compile it, else LM_CUDA off. Included by the root, so that
# every target that links lm_backend also links the runtime.
if(LM_CUDA)
  include(CheckLanguage)
  # A100, L4 and L40, H100 and H200; newer ones translate compute_90 when they load it.
  set(all_architectures 80-real 89-real 90)
  set(chosen_here OFF)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(chosen_here ON)
    set(CMAKE_CUDA_ARCHITECTURES 80)  # which an nvcc that is too old knows, too
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
  else()
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND all_architectures 100-real 120-real)  # B200, GeForce RTX 50
    endif()
    set(note "")
    if(chosen_here)
      set(CMAKE_CUDA_ARCHITECTURES ${all_architectures})
      # Where there is no GPU to run it on, one for all: that compiles in less than half the time.
      if(NOT LM_SELF_CONTAINED AND NOT EXISTS /dev/nvidia0)
        set(CMAKE_CUDA_ARCHITECTURES 80)
        string(CONCAT note " alone, as there is no GPU here: those of 9.0 and newer translate them when they "
                           "load them. For all: -DCMAKE_CUDA_ARCHITECTURES='${all_architectures}'")
      elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
        set(note ": nvcc ${CMAKE_CUDA_COMPILER_VERSION} knows no newer ones, which translate those of 90 when they load them")
      endif()
    endif()
    message(STATUS "LM_CUDA: kernels for ${CMAKE_CUDA_ARCHITECTURES}${note}")
  endif()
endif()

# Precompiled headers: what nearly every file includes is parsed once for all libraries, and once,
# with GoogleTest, for all tests. Only headers from outside of this tree, so that no change here
# builds everything anew; of ours, for a folder, those that nearly all of its files include. Files
# include what they use all the same: -DLM_PCH=OFF compiles without, and each file alone.
option(LM_PCH "Precompile the headers of the C++ library, Abseil and GoogleTest" ON)

set(LM_PCH_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstddef> <cstdint> <cstring> <deque> <functional>
  <limits> <map> <memory> <mutex> <optional> <set> <string> <thread> <tuple> <utility> <variant>
  <unordered_map> <unordered_set> <vector>
  <absl/functional/function_ref.h> <absl/hash/hash.h> <absl/status/status.h> <absl/status/statusor.h>
  <absl/strings/match.h> <absl/strings/numbers.h> <absl/strings/str_cat.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/strings/string_view.h>
  <absl/synchronization/mutex.h> <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)

# lm_precompile(<target> [<header> ...]): with those headers too. The first target that asks for a
# set of headers compiles it; the others must have the same compiler options.
function(lm_precompile target)
  if(NOT LM_PCH)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" AND NOT ARGN)
    target_compile_options(${target} PRIVATE -fPIC)  # as the libraries, not -fPIE
  endif()
  string(MAKE_C_IDENTIFIER "LM_PCH_OF_${ARGN}" key)
  get_property(first GLOBAL PROPERTY ${key})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${LM_PCH_HEADERS} ${ARGN})
    set_property(GLOBAL PROPERTY ${key} ${target})
    # Of the headers themselves, as they are now: with the option below gcc hands a cache the ones
    # that it compiled before instead, and is served these again.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set_source_files_properties(
        ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.cxx
        PROPERTIES COMPILE_OPTIONS -fno-pch-preprocess)
    endif()
  endif()
  # For compiler caches, which hash what the preprocessor writes.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# Files of a folder are compiled many at a time, for a short one takes longer to begin than to
# compile: that halves the build. Names of a file's own must differ within a folder, then
# (tests/floors_test.py).
option(LM_UNITE "Compile files of a folder many at a time" ON)
set(LM_UNITE_BYTES 60000)  # of source, at most, more or less: some ten seconds

# lm_unite(<target>): so for the files of each of its folders, without those that have options of
# their own or SKIP_UNITY_BUILD_INCLUSION.
function(lm_unite target)
  if(NOT LM_PCH OR NOT LM_UNITE)
    return()
  endif()
  get_target_property(home ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(folders)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${home})
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND folders ${folder})
    list(APPEND files_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    set(bytes 0)
    set(sizes)
    foreach(source IN LISTS files_${folder})
      file(SIZE ${source} size)
      math(EXPR bytes "${bytes} + ${size}")
      list(APPEND sizes ${size})
    endforeach()
    math(EXPR groups "(${bytes} + ${LM_UNITE_BYTES} - 1) / ${LM_UNITE_BYTES}")
    cmake_path(GET folder FILENAME name)
    set(before 0)
    foreach(source size IN ZIP_LISTS files_${folder} sizes)
      math(EXPR group "${before} * ${groups} / ${bytes}")
      math(EXPR before "${before} + ${size}")
      set_source_files_properties(${source} TARGET_DIRECTORY ${target}
                                  PROPERTIES UNITY_GROUP ${name}_${group})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # gcc takes what is included for a header, whose names of its own would be many.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

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
  endif()
  # For compiler caches, which hash what the preprocessor writes.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# lm_unite(<target> <folder> <count>): short files of a folder, which take longer to begin than to
# compile, so many at a time. Names of their own must differ.
function(lm_unite target folder count)
  if(NOT LM_PCH)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^${folder}/.*\\.cc$")
  set(i 0)
  foreach(source IN LISTS sources)
    math(EXPR group "${i} / ${count}")
    math(EXPR i "${i} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# tests/run.sh asan                      memory, undefined behaviour; leaks in the C++ tests
# cmake --preset tsan -Dabsl_DIR=...     races, over an Abseil installed with -fsanitize=thread: into the
#                                        locks of another one the sanitizer cannot see
#
# What the tests of a build with LM_SANITIZE need: LM_SANITIZER_RUNTIMES, the libraries to preload into
# a host that was not built so, LM_SANITIZER_ENVIRONMENT for every test, and more time.
set(LM_SANITIZER_RUNTIMES)
set(LM_SANITIZER_ENVIRONMENT)
set(LM_TEST_TIMEOUT 300)
if(LM_SANITIZE)
  set(LM_TEST_TIMEOUT 1200)
endif()
if(LM_SANITIZE MATCHES "address")
  list(APPEND LM_SANITIZER_RUNTIMES libasan.so)
  list(APPEND LM_SANITIZER_ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:check_initialization_order=1:strict_init_order=1)
endif()
if(LM_SANITIZE MATCHES "undefined")
  list(APPEND LM_SANITIZER_RUNTIMES libubsan.so)
  list(APPEND LM_SANITIZER_ENVIRONMENT UBSAN_OPTIONS=print_stacktrace=1)
endif()
if(LM_SANITIZE MATCHES "thread")
  list(APPEND LM_SANITIZER_RUNTIMES libtsan.so)
  list(APPEND LM_SANITIZER_ENVIRONMENT TSAN_OPTIONS=second_deadlock_stack=1:suppressions=${CMAKE_CURRENT_SOURCE_DIR}/tsan.suppressions)
endif()

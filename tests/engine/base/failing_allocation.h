// Fails an operator new of the test program.
//
//   EXPECT_EQ(FailEachAllocation([&] { Json copy = json; }), 7);
#ifndef LM_TESTS_ENGINE_BASE_FAILING_ALLOCATION_H_
#define LM_TESTS_ENGINE_BASE_FAILING_ALLOCATION_H_

#include "absl/functional/function_ref.h"

namespace lm {

// Calls `run` with its first operator new failing, then with the second, and so on, until none of
// its own does; returns how many did. A std::bad_alloc that leaves `run` is taken.
int FailEachAllocation(absl::FunctionRef<void()> run);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_BASE_FAILING_ALLOCATION_H_

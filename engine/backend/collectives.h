// Collectives: how devices that compute together (tensor_parallel/) hand each other what each has
// computed.
#ifndef LM_ENGINE_BACKEND_COLLECTIVES_H_
#define LM_ENGINE_BACKEND_COLLECTIVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace lm {

class Collectives {
 public:
  virtual ~Collectives() = default;

  // What is asked of any member from now on begins when all that was before has ended, on
  // whichever.
  virtual absl::Status Join() = 0;

  // A matrix of F32 as each member has it, all of one shape: member i has made the columns
  // [first_cols[i], first_cols[i + 1]), and they have joined since. They all get them all; ops that
  // follow find them. Until the next Join the others may be reading what a member has made.
  // REQUIRES: matrices.size() + 1 == first_cols.size().
  virtual absl::Status AllGather(absl::Span<const Tensor> matrices,
                                 absl::Span<const int64_t> first_cols) = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_COLLECTIVES_H_

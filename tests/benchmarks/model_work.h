// The least that a model's steps cost: the numerators of every "share of the ceiling".
#ifndef LM_TESTS_BENCHMARKS_MODEL_WORK_H_
#define LM_TESTS_BENCHMARKS_MODEL_WORK_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/tensor/dtype.h"

namespace lm {

// Products with weights only; what attention and the rest add is time, not work, in the shares.
struct ModelWork {
  double body_ops = 0;    // a token through all layers; a multiply and an add count two
  double head_ops = 0;    // a row of logits
  double body_bytes = 0;  // weights as the file stores them, read once a step
  double head_bytes = 0;
  double kv_bytes = 0;  // a token of context: 2 x layers x KV heads x head size x bytes a value
  bool floats = false;  // most weights are F32, F16 or BF16
};

absl::StatusOr<ModelWork> ReadModelWork(const std::string& path, DType kv_type);

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_MODEL_WORK_H_

// ColumnTaker: what one product has made side by side, part by part.
//
//   ColumnTaker take(run.act.mixer_input.Rows(0, run.rows));
//   const Tensor q = take(spec.q_cols());
//   const Tensor k = take(spec.k_cols());
#ifndef LM_ENGINE_MODEL_COLUMN_TAKER_H_
#define LM_ENGINE_MODEL_COLUMN_TAKER_H_

#include <cstdint>
#include <utility>

#include "engine/tensor/tensor.h"

namespace lm {

// Takes the columns of a matrix from left to right.
class ColumnTaker {
 public:
  explicit ColumnTaker(Tensor from) : from_(from) {}
  Tensor operator()(int64_t cols) { return from_.Cols(std::exchange(used_, used_ + cols), cols); }

 private:
  Tensor from_;
  int64_t used_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_COLUMN_TAKER_H_

// WeightLayout has a model, and then its draft model, lay out weights between steps
// (LanguageModel::LayOutMore): while there is nothing to do, or for as long as the last step took.
//
//   WeightLayout layout(&model);
//   ... a step ...
//   layout.OnStep(took);
//   absl::Status lost = layout.Go(idle, [] { ... something else is to do ... }, [](bool more) {});
#ifndef LM_ENGINE_RUNTIME_WEIGHT_LAYOUT_H_
#define LM_ENGINE_RUNTIME_WEIGHT_LAYOUT_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/model/model.h"

namespace lm {

// Not thread-safe: the engine's thread owns it.
class WeightLayout {
 public:
  // REQUIRES: the model outlives this.
  explicit WeightLayout(Model* model) : model_(model) {}

  // Whether weights may be left to lay out.
  bool left() const { return left_; }
  // Go does nothing before.
  MonotonicTime again() const { return again_; }

  void OnStep(absl::Duration took) { step_took_ = took; }
  // Lays out weights until `interrupted`; if not `idle`, for as long as the step since the last
  // call took, and not at all where there was none. Tells `laid_out`, after each few milliseconds,
  // whether some are left. Not OK: the model is lost (model_loss.h).
  absl::Status Go(bool idle, absl::FunctionRef<bool()> interrupted,
                  absl::FunctionRef<void(bool)> laid_out);

 private:
  absl::StatusOr<bool> LayOutSome();

  Model* const model_;
  bool left_ = true;
  MonotonicTime again_ = MonotonicTime::InfinitePast();
  absl::Duration step_took_ = absl::ZeroDuration();  // the last step, until Go
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_WEIGHT_LAYOUT_H_

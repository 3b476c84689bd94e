// What becomes of a text's pooled hidden state (model_spec.h has the formulas).
#ifndef LM_ENGINE_MODEL_POOLING_HEAD_H_
#define LM_ENGINE_MODEL_POOLING_HEAD_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/model/model_spec.h"
#include "engine/model/weight_loader.h"
#include "engine/model/weights.h"

namespace lm {

// InvalidArgument, naming the tensor, also where a model that ranks has no classifier.
absl::StatusOr<PoolingHead> LoadPoolingHead(const ModelSpec& spec, WeightLoader* loader);

// LanguageModel::ApplyHead. `*scratch` is made by the first call, and belongs to the backend.
absl::StatusOr<std::vector<float>> ApplyPoolingHead(const ModelSpec& spec, const PoolingHead& head,
                                                    bool ranks, absl::Span<const float> pooled,
                                                    Backend* backend, Buffer* scratch);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_POOLING_HEAD_H_

// LayerRun: what the computation of one layer of a step refers to.
#ifndef LM_ENGINE_MODEL_LAYER_RUN_H_
#define LM_ENGINE_MODEL_LAYER_RUN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/backend/backend.h"
#include "engine/model/activations.h"
#include "engine/model/model_spec.h"
#include "engine/model/weights.h"

namespace lm {

struct LayerRun {
  const ModelSpec& model;
  const LayerSpec& spec;
  const LayerWeights& weights;
  const MixerWeights& mixer;  // the layer's, or the one's beside
  Backend* backend;
  Activations& act;
  int64_t rows;                           // of the activations, the first ones
  absl::Span<const AdaptedRows> adapted;  // of these
  const StepTables* tables;               // of the step
  absl::Span<const int32_t> tokens;       // of the rows
  bool stores_only = false;               // of attention, keys and values: nothing else is wanted

  Tensor x() const { return act.x.Rows(0, rows); }
  // The first `cols` columns of one of them.
  Tensor Of(const Tensor& activation, int64_t cols) const {
    return activation.Rows(0, rows).Cols(0, cols);
  }
  // The projection, and what the rows' adapters add.
  absl::Status Apply(const Projection& projection, const ProductInput& input, ProductResult result,
                     Tensor out) const;
};

// The input of a product: x normed, if there is a norm for it.
inline ProductInput NormedInput(Tensor x, const DeviceNorm& norm) {
  return norm.empty() ? ProductInput::Plain(x) : ProductInput::Normed(x, norm.norm);
}

inline absl::Status CopyRows(Backend* backend, Tensor from, Tensor to) {
  return backend->GatedActivation(Activation::kIdentity, from, {}, to);
}

// x += residual_scale times the projection of the input, normed first if there is a norm for it.
absl::Status AddToResidual(const LayerRun& run, const Projection& projection,
                           const ProductInput& input, const DeviceNorm& post_norm);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LAYER_RUN_H_

#include "engine/model/pooling_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

void Softmax(std::vector<float>* values) {
  const float most = *std::max_element(values->begin(), values->end());
  double sum = 0;
  for (float value : *values) sum += std::exp(double{value} - most);
  for (float& value : *values) value = static_cast<float>(std::exp(double{value} - most) / sum);
}

}  // namespace

absl::StatusOr<PoolingHead> LoadPoolingHead(const ModelSpec& spec, WeightLoader* loader) {
  PoolingHead head;
  auto load = [&](const char* name, int64_t rows, int64_t cols, Projection* projection) {
    absl::StatusOr<Projection> loaded =
        loader->LoadProjection({{.prefix = name, .rows = rows, .adaptable = false}}, cols);
    if (loaded.ok()) *projection = *std::move(loaded);
    return loaded.status();
  };
  if (spec.pooling.dense > 0) {
    RETURN_IF_ERROR(load("dense_2", spec.pooling.dense, spec.hidden, &head.dense_2));
    RETURN_IF_ERROR(load("dense_3", spec.hidden, spec.pooling.dense, &head.dense_3));
  }
  head.num_labels = loader->RowsOf("cls.output.weight");
  const bool one_row = head.num_labels == 0 && !spec.pooling.gelu;
  if (one_row && loader->RowsOf("cls.weight") == 1) {
    RETURN_IF_ERROR(load("cls", 1, spec.hidden, &head.classifier));
    return head;
  }
  if (loader->Has("cls.weight")) {
    RETURN_IF_ERROR(load("cls", spec.hidden, spec.hidden, &head.classifier));
  }
  if (loader->Has("cls.norm.weight")) {
    ASSIGN_OR_RETURN(head.classifier_norm, loader->LoadNorm("cls.norm", spec, 1, spec.hidden));
  }
  if (head.num_labels > 0) {
    RETURN_IF_ERROR(load("cls.output", head.num_labels, spec.hidden, &head.labels));
  } else if (spec.pooling.ranks) {
    return absl::InvalidArgumentError("tensor 'cls.output.weight' is missing");
  }
  return head;
}

absl::StatusOr<std::vector<float>> ApplyPoolingHead(const ModelSpec& spec, const PoolingHead& head,
                                                    bool ranks, absl::Span<const float> pooled,
                                                    Backend* backend, Buffer* scratch) {
  std::vector<float> result(pooled.begin(), pooled.end());
  if (!ranks && head.dense_2.empty()) return result;
  const int64_t cols = std::max({spec.hidden, spec.pooling.dense, head.num_labels});
  if (scratch->data() == nullptr) {
    ASSIGN_OR_RETURN(*scratch, backend->Allocate(2 * cols * sizeof(float)));
  }
  const Tensor both(scratch->data(), DType::kF32, 1, 2 * cols);
  Tensor h = both.Cols(0, spec.hidden);
  // h = W h, in the other half.
  auto multiply = [&, in_left = true](const Projection& projection, int64_t rows) mutable {
    const Tensor in = std::exchange(h, both.Cols(in_left ? cols : 0, rows));
    in_left = !in_left;
    return projection.Apply(backend, ProductInput::Plain(in), ProductResult::kReplaces, h);
  };
  RETURN_IF_ERROR(backend->Upload(pooled.data(), h.data, pooled.size() * sizeof(float)));
  if (!ranks) {
    RETURN_IF_ERROR(multiply(head.dense_2, spec.pooling.dense));
    RETURN_IF_ERROR(multiply(head.dense_3, spec.hidden));
  } else {
    if (!head.classifier.empty()) {
      RETURN_IF_ERROR(multiply(head.classifier, head.labels.empty() ? 1 : spec.hidden));
      RETURN_IF_ERROR(spec.pooling.gelu ? backend->GatedActivation(Activation::kGeluTanh, h, {}, h)
                                        : backend->ScaleAndCap(h, /*scale=*/1, /*cap=*/1));  // tanh
    }
    if (!head.classifier.empty() && !head.classifier_norm.empty()) {
      RETURN_IF_ERROR(backend->Normalize(h, head.classifier_norm.norm, h));
    }
    if (!head.labels.empty()) RETURN_IF_ERROR(multiply(head.labels, head.num_labels));
  }
  result.resize(h.cols);
  RETURN_IF_ERROR(backend->Download(h.data, result.data(), result.size() * sizeof(float)));
  if (ranks && spec.pooling.probabilities) Softmax(&result);
  for (float value : result) {
    if (std::isfinite(value)) continue;
    return absl::InternalError(
        "what the model makes of a text is not finite; its weights are damaged");
  }
  return result;
}

}  // namespace lm

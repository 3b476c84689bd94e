#include "tests/benchmarks/model_work.h"

#include <memory>

#include "absl/strings/match.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/cache_spec.h"
#include "engine/model/model_spec.h"

namespace lm {
namespace {

double ProductOps(const TensorInfo& weight) {
  return 2.0 * static_cast<double>(weight.rows) * static_cast<double>(weight.cols);
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

absl::StatusOr<ModelWork> ReadModelWork(const std::string& path, DType kv_type) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const ModelSpec spec, DescribeModel(*gguf));
  ModelWork work;
  double float_ops = 0, chosen_share = 1;
  for (const LayerSpec& layer : spec.layers) {
    const std::optional<ExpertSpec>& experts = layer.feed_forward.experts;
    if (!experts.has_value()) continue;
    chosen_share =
        static_cast<double>(experts->router.chosen) / static_cast<double>(experts->count);
  }
  for (const TensorInfo& tensor : gguf->tensors()) {
    if (!absl::StartsWith(tensor.name, "blk.") || tensor.rows == 1) continue;
    // Of experts, what one token has chosen.
    const double share = absl::StrContains(tensor.name, "_exps.") ? chosen_share : 1;
    work.body_ops += share * ProductOps(tensor);
    work.body_bytes += share * static_cast<double>(tensor.bytes);
    if (IsFloat(tensor.dtype)) float_ops += share * ProductOps(tensor);
  }
  const TensorInfo* head = gguf->FindTensor("output.weight");
  if (head == nullptr) head = gguf->FindTensor("token_embd.weight");
  if (head == nullptr) return absl::InvalidArgumentError("the model has no output matrix");
  work.head_ops = ProductOps(*head);
  work.head_bytes = static_cast<double>(head->bytes);
  double block_bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.attention() == nullptr) continue;
    const KvLayer kv = KvLayerOf(*layer.attention(), kv_type);
    block_bytes += static_cast<double>(kv.keys_bytes() + kv.values_bytes());
  }
  work.kv_bytes = block_bytes / kKvBlockTokens;
  work.floats = float_ops > work.body_ops / 2;
  return work;
}

}  // namespace lm

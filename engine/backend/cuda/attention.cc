// Lists the query rows and their KV blocks for the kernel.
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CudaBackend::Attention(Tensor q, absl::Span<const SequenceSpan> sequences,
                                    const KvLayer& layer, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckAttention(q, sequences, layer, out));
  RETURN_IF_ERROR(device_->Begin());
  std::vector<cuda::AttentionRow> rows;
  std::vector<int32_t> blocks;
  for (const SequenceSpan& sequence : sequences) {
    const int64_t first_block = static_cast<int64_t>(blocks.size());
    for (int32_t t = 0; t < sequence.num_tokens; ++t) {
      rows.push_back({sequence.first_row + t, sequence.first_position + t + 1, first_block});
    }
    blocks.insert(blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
  }
  if (rows.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const cuda::AttentionRow* device_rows,
                   attention_rows_.Set(device_.get(), rows.data(), rows.size()));
  ASSIGN_OR_RETURN(const int32_t* device_blocks,
                   attention_blocks_.Set(device_.get(), blocks.data(), blocks.size()));
  return device_->Check(
      cuda::Attention(device_->queue(), ToMatrix(q), device_rows, static_cast<int64_t>(rows.size()),
                      device_blocks, ToCacheLayer(layer), scale, ToMatrix(out)),
      "Attention");
}

}  // namespace lm

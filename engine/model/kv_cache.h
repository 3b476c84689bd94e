// KvCache: the memory behind KvBlockPool's block numbers, for the layers of a model that one
// backend has.
#ifndef LM_ENGINE_MODEL_KV_CACHE_H_
#define LM_ENGINE_MODEL_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/model/model_spec.h"

namespace lm {

class KvCache {
 public:
  KvCache() = default;  // of no layers

  // As many blocks as fit in `bytes` (0: DefaultBytes()) for all layers, but no more than 64
  // sequences of the full context need. InvalidArgument, with both numbers, where not even one
  // block fits.
  static absl::StatusOr<int32_t> NumBlocks(const ModelSpec& spec, int64_t bytes, DType dtype);

  // That many blocks for the layers [first, end). Host memory is committed only when a block is
  // first written.
  static absl::StatusOr<KvCache> Create(const ModelSpec& spec, int64_t first, int64_t end,
                                        int32_t num_blocks, DType dtype, Backend* backend);

  // 2 GiB, or an eighth of the machine's memory where that is less.
  static int64_t DefaultBytes();

  // Layer i of the model, first <= i < end.
  const KvLayer& layer(int64_t i) const { return layers_[i - first_]; }
  absl::Span<const KvLayer> layers() const { return layers_; }
  int64_t block_bytes() const;  // these layers, keys and values

 private:
  Buffer buffer_;
  int64_t first_ = 0;
  std::vector<KvLayer> layers_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_KV_CACHE_H_

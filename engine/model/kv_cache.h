// KvCache: the memory behind KvBlockPool's block numbers, for all layers of one model.
#ifndef LM_ENGINE_MODEL_KV_CACHE_H_
#define LM_ENGINE_MODEL_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/model/model_config.h"

namespace lm {

class KvCache {
 public:
  // As many blocks as fit in `bytes` (0: DefaultBytes()), but no more than 64 sequences of the full
  // context need. Host memory is committed only when a block is first written.
  // InvalidArgument, with both numbers, where not even one block fits.
  static absl::StatusOr<KvCache> Create(const ModelConfig& config, int64_t bytes, DType dtype,
                                        Backend* backend);

  // 2 GiB, or an eighth of the machine's memory where that is less.
  static int64_t DefaultBytes();

  const KvLayer& layer(int64_t i) const { return layers_[i]; }
  int32_t num_blocks() const { return num_blocks_; }
  int64_t block_bytes() const { return block_bytes_; }  // all layers, keys and values

 private:
  KvCache() = default;
  Buffer buffer_;
  std::vector<KvLayer> layers_;
  int32_t num_blocks_ = 0;
  int64_t block_bytes_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_KV_CACHE_H_

// Rotary positions, and storing, copying and clearing keys and values (kv_access.h).
#include "engine/backend/check_arguments.h"
#include "engine/backend/mix_head.h"
#include "engine/backend/reference/kv_access.h"
#include "engine/backend/reference/reference_backend.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Rotates the pairs of one head in place. cos and sin of pair i are rope[2i] and rope[2i + 1].
void RotateHead(const float* rope, int64_t rope_dim, RopePairing pairing, float* head) {
  for (int64_t i = 0; i < rope_dim / 2; ++i) {
    float* a = pairing == RopePairing::kAdjacent ? head + 2 * i : head + i;
    float* b = pairing == RopePairing::kAdjacent ? a + 1 : head + i + rope_dim / 2;
    float cos = rope[2 * i];
    float sin = rope[2 * i + 1];
    float rotated_a = *a * cos - *b * sin;
    float rotated_b = *a * sin + *b * cos;
    *a = rotated_a;
    *b = rotated_b;
  }
}

}  // namespace

absl::Status ReferenceBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                              const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(step_index(), q, k, v, rope, layer));
  const std::vector<int64_t>& slots = step_index().slots[layer.cache_class];
  const int64_t dim = layer.key_dim;
  for (int64_t t = 0; t < q.rows; ++t) {
    auto rotate = [&](float* head) {
      if (rope.table < 0) return;
      const RopeTable& table = step().ropes[rope.table];
      RotateHead(table.angles.data() + t * table.dim, table.dim, rope.pairing, head);
    };
    const bool mixes = layer.dtype == DType::kI8;
    for (int64_t begin = 0; begin < q.cols; begin += dim) {
      float* const query = q.row<float>(t) + begin;
      rotate(query);
      if (mixes) MixHead(dim, MixedQueryScale(dim), query);
    }
    if (k.empty()) continue;
    for (int64_t h = 0; h < layer.kv_heads; ++h) {
      float* key = k.row<float>(t) + h * dim;
      const float* value = v.row<float>(t) + h * layer.value_dim;
      rotate(key);
      if (mixes) MixHead(dim, 1, key);
      const int64_t block = slots[t] / kKvBlockTokens, token = slots[t] % kKvBlockTokens;
      KvHeadOfBlock::Keys(layer, block, h).Store(token, key);
      KvHeadOfBlock::Values(layer, block, h).Store(token, value);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::RotateTails(Tensor x, int64_t head_dim, const Rope& rope) {
  RETURN_IF_ERROR(CheckTurn(step_index(), x, head_dim, rope));
  const RopeTable& table = step().ropes[rope.table];
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t end = head_dim; end <= x.cols; end += head_dim) {
      RotateHead(table.angles.data() + t * table.dim, table.dim, rope.pairing,
                 x.row<float>(t) + end - table.dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace lm

// Rotary positions, and storing, copying and clearing keys and values (kv_layout.h).
#include <cstring>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/kv_layout.h"
#include "engine/backend/cpu/mix_heads.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// (a, b) -> (a cos - b sin, a sin + b cos) for each pair of a head, each operation rounded.
template <RopePairing kPairing>
void RotateHead(const float* rope, int64_t rope_dim, float* head) {
  int64_t pairs = rope_dim / 2;
  constexpr bool kAdjacent = kPairing == RopePairing::kAdjacent;
  for (int64_t i = 0; i < pairs; ++i) {
    float& a = kAdjacent ? head[2 * i] : head[i];
    float& b = kAdjacent ? head[2 * i + 1] : head[i + pairs];
    float cos = rope[2 * i];
    float sin = rope[2 * i + 1];
    float rotated = a * cos - b * sin;
    b = a * sin + b * cos;
    a = rotated;
  }
}

void RotateHeads(const float* rope, int64_t rope_dim, RopePairing pairing, int64_t head_dim,
                 int64_t cols, float* row) {
  for (int64_t i = 0; i < cols; i += head_dim) {
    if (pairing == RopePairing::kAdjacent) {
      RotateHead<RopePairing::kAdjacent>(rope, rope_dim, row + i);
    } else {
      RotateHead<RopePairing::kHalves>(rope, rope_dim, row + i);
    }
  }
}

// Stores a token's key and value of one head.
template <typename T>
void StoreToken(const KvLayer& layer, int64_t block, int64_t head, int64_t token, const T* key,
                const T* value) {
  T* keys = reinterpret_cast<T*>(KeysOfHead(layer, block, head)) + token;
  T* values = reinterpret_cast<T*>(ValuesOfHead(layer, block, head));
  for (int64_t i = 0; i < layer.key_dim; ++i) keys[i * kKvBlockTokens] = key[i];
  std::memcpy(values + token * layer.value_dim, value, layer.value_dim * sizeof(T));
}

// The same in pairs. REQUIRES: key has a 0 behind an odd number of codes.
template <>
void StoreToken<int16_t>(const KvLayer& layer, int64_t block, int64_t head, int64_t token,
                         const int16_t* key, const int16_t* value) {
  auto* keys = reinterpret_cast<int16_t*>(KeysOfHead(layer, block, head)) + 2 * token;
  for (int64_t i = 0; i < layer.key_dim; i += 2) {
    std::memcpy(keys + i * kKvBlockTokens, key + i, 2 * sizeof(int16_t));
  }
  auto* values = reinterpret_cast<int16_t*>(ValuesOfHead(layer, block, head)) +
                 token / 2 * 2 * layer.value_dim + token % 2;
  for (int64_t i = 0; i < layer.value_dim; ++i) values[2 * i] = value[i];
}

// A token's codes of one head, with the scales that belong to them.
template <typename Code>
struct CodedToken {
  Code key[kMaxHeadDim + 1], value[kMaxHeadDim];
  float key_scale, value_scale;

  void Store(const KvLayer& layer, int64_t block, int64_t head, int64_t token) const {
    StoreToken<Code>(layer, block, head, token, key, value);
    KvScales(layer, KeysOfHead(layer, block, head), layer.key_dim)[token] = key_scale;
    KvScales(layer, ValuesOfHead(layer, block, head), layer.value_dim)[token] = value_scale;
  }
};

}  // namespace

absl::Status CpuBackend::RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                                        const KvLayer& layer) {
  RETURN_IF_ERROR(CheckRopeAndStoreKv(step_index(), q, k, v, rope, layer));
  const std::vector<int64_t>& slots = step_index().slots[layer.cache_class];
  const RopeTable* table = rope.table < 0 ? nullptr : &step().ropes[rope.table];
  const int64_t dim = layer.key_dim, value_dim = layer.value_dim;
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(q.rows * (k.cols + v.cols) * sizeof(uint16_t)));
  auto* all_halves = reinterpret_cast<uint16_t*>(memory);
  ForRows(q.rows, q.cols + k.cols + v.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (table != nullptr) {
        const float* angles = table->angles.data() + t * table->dim;
        RotateHeads(angles, table->dim, rope.pairing, dim, q.cols, q.row<float>(t));
        RotateHeads(angles, table->dim, rope.pairing, dim, k.cols, k.row<float>(t));
      }
      if (layer.dtype == DType::kI8) {
        MixHeads(dim, MixedQueryScale(dim), q.cols, q.row<float>(t));
        MixHeads(dim, 1, k.cols, k.row<float>(t));
      }
      if (k.empty()) continue;
      int64_t block = slots[t] / kKvBlockTokens;
      int64_t token = slots[t] % kKvBlockTokens;
      if (layer.dtype == DType::kF32) {
        for (int64_t h = 0; h < layer.kv_heads; ++h) {
          StoreToken<float>(layer, block, h, token, k.row<float>(t) + h * dim,
                            v.row<float>(t) + h * value_dim);
        }
        continue;
      }
      if (layer.dtype == DType::kI8) {
        CodedToken<int8_t> coded;
        for (int64_t h = 0; h < layer.kv_heads; ++h) {
          coded.key_scale = kernels_.quantize_to_int8(k.row<float>(t) + h * dim, dim, coded.key);
          coded.value_scale =
              kernels_.quantize_to_int8(v.row<float>(t) + h * value_dim, value_dim, coded.value);
          coded.Store(layer, block, h, token);
        }
        continue;
      }
      if (layer.dtype == DType::kI16) {
        CodedToken<int16_t> coded;
        for (int64_t h = 0; h < layer.kv_heads; ++h) {
          coded.key_scale =
              kernels_.quantize_to_int16(k.row<float>(t) + h * dim, dim, kMostCode, coded.key);
          coded.key[dim] = 0;
          coded.value_scale = kernels_.quantize_to_int16(v.row<float>(t) + h * value_dim, value_dim,
                                                         kMostCode, coded.value);
          coded.Store(layer, block, h, token);
        }
        continue;
      }
      uint16_t* keys = all_halves + t * (k.cols + v.cols);
      uint16_t* values = keys + k.cols;
      kernels_.float_to_half(k.row<float>(t), k.cols, keys);
      kernels_.float_to_half(v.row<float>(t), v.cols, values);
      for (int64_t h = 0; h < layer.kv_heads; ++h) {
        StoreToken<uint16_t>(layer, block, h, token, keys + h * dim, values + h * value_dim);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::RotateTails(Tensor x, int64_t head_dim, const Rope& rope) {
  RETURN_IF_ERROR(CheckTurn(step_index(), x, head_dim, rope));
  const RopeTable& table = step().ropes[rope.table];
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      // Heads of which the first values turn, the last one without what is behind these.
      RotateHeads(table.angles.data() + t * table.dim, table.dim, rope.pairing, head_dim,
                  x.cols - (head_dim - table.dim), x.row<float>(t) + head_dim - table.dim);
    }
  });
  return absl::OkStatus();
}

}  // namespace lm

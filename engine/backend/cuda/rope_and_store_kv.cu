// Rotates a row's heads of q and k in place, then stores its k and v in the cache. A thread block
// has some query heads of a row that read the same KV head, the first ones that head, too.
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

// Of all heads of a row, or of some.
constexpr int kRowThreads = 256, kHeadThreads = 128;
constexpr int kQueryHeads = 4;  // a thread block

__device__ __forceinline__ void RotateHeads(const float* rope, int rope_dim, bool halves,
                                            int head_dim, int heads, float* row) {
  const int pairs = rope_dim / 2;
  for (int i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
    const int head = i / pairs, pair = i % pairs;
    const PairPlace place = PlaceOfPair(halves, pair, rope_dim);
    float* first = row + head * head_dim + place.first;
    RotatePair(rope[2 * pair], rope[2 * pair + 1], first, first + place.step);
  }
}

// MixHead of mix_head.h for so many heads, one behind the other, which other threads may have
// written.
__device__ __forceinline__ void MixHeads(int head_dim, int heads, float scale, float* row) {
  const int run = head_dim & -head_dim;
  for (int apart = 1; apart < run; apart *= 2) {
    __syncthreads();
    const float by = 2 * apart == run ? scale : 1.0f;
    for (int i = threadIdx.x; i < heads * head_dim / 2; i += blockDim.x) {
      float* const first = row + 2 * i - (i & (apart - 1));
      const float a = first[0], b = first[apart];
      first[0] = (a + b) * by;
      first[apart] = (a - b) * by;
    }
  }
}

// The greatest magnitude of a head's values, by its bits, in all threads of the block; of_warps has
// a place for each warp.
__device__ __forceinline__ uint32_t MaxBits(const float* head, int dim, uint32_t* of_warps) {
  uint32_t most = 0;
  for (int i = threadIdx.x; i < dim; i += kHeadThreads) {
    most = max(most, FloatToBits(head[i]) & 0x7fffffffu);
  }
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    most = max(most, __shfl_xor_sync(~0u, most, apart));
  }
  __syncthreads();  // who read the last head's is done
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = most;
  __syncthreads();
  for (int i = 0; i < kHeadThreads / kWarp; ++i) most = max(most, of_warps[i]);
  return most;
}

// The last values of each head; heads of which the first ones turn, from there on.
__global__ void TurnKernel(Matrix x, int64_t head_dim, Matrix rope, bool halves) {
  BeginKernel();
  const int64_t t = blockIdx.x;
  RotateHeads(rope.data + t * rope.stride, static_cast<int>(rope.cols), halves,
              static_cast<int>(head_dim), static_cast<int>(x.cols / head_dim),
              x.data + t * x.stride + head_dim - rope.cols);
}

template <DType kType>
__global__ void RopeAndStoreKvKernel(Matrix q, Matrix k, Matrix v, Matrix rope, bool halves,
                                     const int64_t* slots, KvCacheLayer layer, int parts) {
  LetNextKernelBegin();
  const int64_t t = blockIdx.x, slot = slots[t];  // the step's
  const int head = static_cast<int>(blockIdx.y) / parts;
  const int first = static_cast<int>(blockIdx.y) % parts * kQueryHeads;  // of the group
  const int key_dim = static_cast<int>(layer.key_dim),
            value_dim = static_cast<int>(layer.value_dim);
  const int rope_dim = static_cast<int>(rope.cols);
  const int group = static_cast<int>(q.cols) / key_dim / static_cast<int>(layer.kv_heads);
  const float* angles = rope.data + t * rope.stride;
  const float* values = v.data + t * v.stride + head * value_dim;
  float* keys = k.data + t * k.stride + head * key_dim;
  const int queries = min(group - first, kQueryHeads);
  float* query = q.data + t * q.stride + int64_t{head * group + first} * key_dim;
  WaitForKernelBefore();
  RotateHeads(angles, rope_dim, halves, key_dim, queries, query);
  if constexpr (kType == DType::kI8) {
    MixHeads(key_dim, queries, 1.0f / static_cast<float>(key_dim & -key_dim), query);
  }
  if (first > 0 || k.rows == 0) return;
  RotateHeads(angles, rope_dim, halves, key_dim, 1, keys);
  if constexpr (kType == DType::kI8) MixHeads(key_dim, 1, 1.0f, keys);
  __syncthreads();  // a thread stores what others have rotated
  const int64_t block = slot / kBlockTokens, token = slot % kBlockTokens;
  __shared__ uint32_t of_warps[kHeadThreads / kWarp];
  auto store = [&](KvPart part, const float* row, int dim, void* cache) {
    char* to =
        static_cast<char*>(cache) + KvHeadOffset<kType>(layer.block_stride, dim, block, head);
    if constexpr (kType == DType::kI8) {
      const ActivationScale scale = ScaleActivations(MaxBits(row, dim, of_warps));
      for (int i = threadIdx.x; i < dim; i += kHeadThreads) {
        StoreKvCode(part, row[i], scale, dim, token, i, to);
      }
      if (threadIdx.x == 0) StoreKvScale(scale, dim, token, to);
    } else {
      for (int i = threadIdx.x; i < dim; i += kHeadThreads) {
        StoreKv<kType>(part, row[i], dim, token, i, to);
      }
    }
  };
  store(KvPart::kKeys, keys, key_dim, layer.keys);
  store(KvPart::kValues, values, value_dim, layer.values);
}

}  // namespace

cudaError_t RotateTails(const Queue& queue, Matrix x, int64_t head_dim, Matrix rope, bool halves) {
  return Launch(queue, TurnKernel, Grid(x.rows), kRowThreads, x, head_dim, rope, halves);
}

cudaError_t RopeAndStoreKv(const Queue& queue, Matrix q, Matrix k, Matrix v, Matrix rope,
                           bool halves, const int64_t* slots, const KvCacheLayer& layer) {
  auto kernel = layer.dtype == DType::kF16  ? RopeAndStoreKvKernel<DType::kF16>
                : layer.dtype == DType::kI8 ? RopeAndStoreKvKernel<DType::kI8>
                                            : RopeAndStoreKvKernel<DType::kF32>;
  const int64_t group = q.cols / layer.key_dim / layer.kv_heads;
  const int64_t parts = DivideUp(group, kQueryHeads);
  return Launch(queue, kernel, Grid(q.rows, layer.kv_heads * parts), kHeadThreads, q, k, v, rope,
                halves, slots, layer, static_cast<int>(parts));
}

}  // namespace lm::cuda

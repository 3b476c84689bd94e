// Rotates a row's heads of q and k in place, then stores its k and v in the cache. One block a row.
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/op_arithmetic.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void RotateHeads(const float* rope, int64_t rope_dim, bool halves, int64_t head_dim,
                            int64_t cols, float* row) {
  const int64_t pairs = rope_dim / 2;
  for (int64_t i = threadIdx.x; i < cols / head_dim * pairs; i += kThreads) {
    const int64_t pair = i % pairs;
    const PairPlace place = PlaceOfPair(halves, pair, rope_dim);
    float* first = row + i / pairs * head_dim + place.first;
    RotatePair(rope[2 * pair], rope[2 * pair + 1], first, first + place.step);
  }
}

// The last values of each head; heads of which the first ones turn, from there on.
__global__ void TurnKernel(Matrix x, int64_t head_dim, Matrix rope, bool halves) {
  BeginKernel();
  const int64_t t = blockIdx.x;
  RotateHeads(rope.data + t * rope.stride, rope.cols, halves, head_dim, x.cols,
              x.data + t * x.stride + head_dim - rope.cols);
}

template <DType kType>
__global__ void RopeAndStoreKvKernel(Matrix q, Matrix k, Matrix v, Matrix rope, bool halves,
                                     const int64_t* slots, KvCacheLayer layer) {
  LetNextKernelBegin();
  const int64_t t = blockIdx.x, slot = slots[t];  // the step's
  WaitForKernelBefore();
  const float* angles = rope.data + t * rope.stride;
  const float* values = v.data + t * v.stride;
  float* keys = k.data + t * k.stride;
  RotateHeads(angles, rope.cols, halves, layer.key_dim, q.cols, q.data + t * q.stride);
  RotateHeads(angles, rope.cols, halves, layer.key_dim, k.cols, keys);
  __syncthreads();  // a thread stores what others have rotated
  const int64_t block = slot / kBlockTokens, token = slot % kBlockTokens;
  auto store = [&](KvPart part, const float* row, int64_t dim, void* cache) {
    auto head_of = [&](int64_t head) {
      return static_cast<char*>(cache) + KvHeadOffset<kType>(layer.block_stride, dim, block, head);
    };
    if constexpr (kType == DType::kI8) {
      for (int64_t h = threadIdx.x; h < layer.kv_heads; h += kThreads) {
        StoreKvInt8(row + h * dim, dim, token, head_of(h));
      }
    } else {
      for (int64_t i = threadIdx.x; i < layer.kv_heads * dim; i += kThreads) {
        StoreKv<kType>(part, row[i], dim, token, i % dim, head_of(i / dim));
      }
    }
  };
  store(KvPart::kKeys, keys, layer.key_dim, layer.keys);
  store(KvPart::kValues, values, layer.value_dim, layer.values);
}

}  // namespace

cudaError_t Turn(const Queue& queue, Matrix x, int64_t head_dim, Matrix rope, bool halves) {
  return Launch(queue, TurnKernel, Grid(x.rows), kThreads, x, head_dim, rope, halves);
}

cudaError_t RopeAndStoreKv(const Queue& queue, Matrix q, Matrix k, Matrix v, Matrix rope,
                           bool halves, const int64_t* slots, const KvCacheLayer& layer) {
  auto kernel = layer.dtype == DType::kF16  ? RopeAndStoreKvKernel<DType::kF16>
                : layer.dtype == DType::kI8 ? RopeAndStoreKvKernel<DType::kI8>
                                            : RopeAndStoreKvKernel<DType::kF32>;
  return Launch(queue, kernel, Grid(q.rows), kThreads, q, k, v, rope, halves, slots, layer);
}

}  // namespace lm::cuda

#include "tests/benchmarks/kernel_work.h"

#include <cstring>
#include <ctime>
#include <utility>

#include "engine/base/float16.h"
#include "engine/base/random.h"

namespace lm {
namespace {

// In [-1/2, 1/2), on the backend.
Buffer RandomFloats(Backend* backend, int64_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = RandomUniform(2, i) - 0.5;
  Buffer buffer = backend->Allocate(values.size() * sizeof(float)).value();
  (void)backend->Upload(values.data(), buffer.data(), buffer.bytes());
  return buffer;
}

}  // namespace

double Clock::Now() const {
  timespec time;
  clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  double seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  return cpu ? seconds / threads : seconds;
}

Buffer RandomBlocks(DType dtype, int64_t n, int64_t k) {
  Buffer buffer = Buffer::AllocateHost(n * RowBytes(dtype, k)).value();
  auto* words = static_cast<uint16_t*>(buffer.data());
  uint16_t small = dtype == DType::kBF16 ? 0x3c00 : FloatToHalf(0.01f);
  for (size_t i = 0; i < buffer.bytes() / 2; ++i) {
    // No exponent of all ones in any 16 bits, so no infinity and no NaN in any type.
    uint64_t bits = RandomBits(1, i / 4) >> (16 * (i % 4));
    words[i] = static_cast<uint16_t>((bits & 0x83ff) | (small & 0x3c00));
  }
  return buffer;
}

size_t ColdCopies(size_t bytes) {
  constexpr size_t kColdBytes = size_t{384} << 20;
  return std::clamp<size_t>(kColdBytes / bytes, 1, 64);
}

std::vector<std::unique_ptr<WeightMatrix>> LoadColdCopies(Backend* backend, DType dtype,
                                                          const WeightShape& shape,
                                                          const Buffer& blocks) {
  std::vector<std::unique_ptr<WeightMatrix>> weights;
  for (size_t i = ColdCopies(blocks.bytes()); i > 0; --i) {
    Buffer copy = Buffer::AllocateHost(blocks.bytes()).value();
    std::memcpy(copy.data(), blocks.data(), blocks.bytes());
    weights.push_back(backend->LoadMatrix(dtype, shape.n, shape.k, std::move(copy)).value());
  }
  return weights;
}

int64_t ProductsAtATime(const WeightShape& shape, int64_t tokens, size_t copies) {
  return std::clamp<int64_t>(20'000'000 / (shape.n * shape.k * tokens), 1, copies);
}

double MatMulSeconds(Backend* backend, const std::vector<std::unique_ptr<WeightMatrix>>& weights,
                     const WeightShape& shape, int64_t tokens, const Clock& clock, double window) {
  const Buffer x = RandomFloats(backend, tokens * shape.k);
  Buffer out = backend->Allocate(tokens * shape.n * 4).value();
  Tensor in(x.data(), DType::kF32, tokens, shape.k);
  Tensor result(out.data(), DType::kF32, tokens, shape.n);
  // A device is given enough that the wait for the last is lost among them.
  int64_t batch = backend->uses_host_memory() ? ProductsAtATime(shape, tokens, weights.size())
                                              : std::clamp<int64_t>(weights.size(), 8, 64);
  double seconds = clock.BestSeconds(
      [&](int run) {
        for (int64_t i = 0; i < batch; ++i) {
          (void)backend->MatMul(*weights[(run * batch + i) % weights.size()], in, {}, result);
        }
        (void)backend->Synchronize();
      },
      window);
  return seconds / batch;
}

namespace {

// Random keys and values of all tokens, in the first layer and copied to the others.
void FillCache(Backend* backend, const AttentionWork& work, const KvLayer& layer) {
  StepTables step;
  step.blocks.resize(1);
  const std::vector<int32_t> tokens(work.context);
  for (int32_t s = 0, block = 0; s < work.sequences; ++s) {
    step.Append(tokens.data(), work.context, 0);
    for (int32_t b = 0; b < BlocksFor(work.context); ++b) step.blocks[0].push_back(block++);
  }
  (void)backend->BeginStep(&step);
  const int64_t rows = int64_t{work.sequences} * work.context;
  const int64_t cols = int64_t{layer.kv_heads} * layer.key_dim;
  const Buffer keys = RandomFloats(backend, rows * cols);
  const Buffer values = RandomFloats(backend, rows * cols);
  const Tensor k(keys.data(), DType::kF32, rows, cols), v(values.data(), DType::kF32, rows, cols);
  (void)backend->RopeAndStoreKv(k, k, v, {}, layer);
  const int64_t layer_bytes = layer.keys_bytes() + layer.values_bytes();
  for (int32_t block = 0; block < layer.num_blocks; ++block) {
    char* const first = static_cast<char*>(layer.keys) + block * layer.block_stride;
    for (int i = 1; i < work.layers; ++i) {
      (void)backend->Copy(first, first + i * layer_bytes, layer_bytes);
    }
  }
}

}  // namespace

AttentionSpeed MeasureAttention(Backend* backend, const AttentionWork& work, const Clock& clock,
                                double window) {
  constexpr int32_t kDim = 64;
  int32_t blocks = (work.context + kKvBlockTokens - 1) / kKvBlockTokens;
  KvLayer layer = {.dtype = work.kv_type,
                   .num_blocks = blocks * work.sequences,
                   .kv_heads = work.kv_heads,
                   .key_dim = kDim,
                   .value_dim = kDim};
  const int64_t layer_bytes = layer.keys_bytes() + layer.values_bytes();
  layer.block_stride = work.layers * layer_bytes;
  Buffer cache = backend->Allocate(layer.num_blocks * layer.block_stride).value();
  layer.keys = cache.data();
  layer.values = static_cast<char*>(cache.data()) + layer.keys_bytes();
  FillCache(backend, work, layer);
  int64_t rows = int64_t{work.sequences} * work.queries;
  const Buffer q = RandomFloats(backend, rows * work.heads * kDim);
  Buffer out = backend->Allocate(q.bytes()).value();
  StepTables step;
  step.blocks.resize(1);
  const std::vector<int32_t> tokens(work.queries);
  for (int32_t s = 0; s < work.sequences; ++s) {
    step.Append(tokens.data(), work.queries, work.context - work.queries);
    for (int32_t b = 0; b < blocks; ++b) {
      step.blocks[0].push_back(b < work.shared / kKvBlockTokens ? b : s * blocks + b);
    }
  }
  (void)backend->BeginStep(&step);
  Tensor in(q.data(), DType::kF32, rows, work.heads * kDim);
  Tensor result(out.data(), DType::kF32, rows, work.heads * kDim);
  const int batch = work.layers;
  double seconds = clock.BestSeconds(
                       [&](int) {
                         for (int i = 0; i < batch; ++i) {
                           layer.keys = static_cast<char*>(cache.data()) + i * layer_bytes;
                           layer.values = static_cast<char*>(layer.keys) + layer.keys_bytes();
                           (void)backend->Attention(in, layer, {.scale = 0.125f}, result);
                         }
                         (void)backend->Synchronize();
                       },
                       window) /
                   batch;
  // Positions seen, all queries.
  double seen = work.queries * (work.context - (work.queries - 1) / 2.0) * work.sequences;
  return {seconds, layer.num_blocks * layer_bytes / seconds,
          4.0 * work.heads * kDim * seen / seconds};
}

}  // namespace lm

// ProductInput (backend.h) -> packed_input.cuh's units, in one pass over x: norm, activation and
// rounding have the bits of the ops one after the other.
#include "engine/backend/cuda/pack_16.cuh"
#include "engine/backend/cuda/packed_input.cuh"

namespace lm::cuda {
namespace {

constexpr int kColsPerBlock = kQuadBlocks * 32;  // where no norm needs the whole row

// Value i of a token's input. A row of the norm's is a group.
__device__ float InputValue(const InputRows& input, const RowNorm& norm, int64_t token, int64_t i) {
  const float* row = input.x.data + token * input.x.stride;
  switch (input.kind) {
    case InputKind::kNormed:
      return norm.Apply(input.norm, row[i], i);
    case InputKind::kActivated:
      return Activate(input.activation, row[i]);
    case InputKind::kGated:
      return Activate(input.activation, row[i]) * GateFactor(input.activation, row[input.cols + i]);
    case InputKind::kPlain:
      break;
  }
  return row[i];
}

__device__ int64_t PlaceOf(const InputRows& input, int64_t token) {
  return input.places == nullptr ? token : input.places[token];
}

__device__ RowNorm NormOfInput(const InputRows& input, int64_t token, double* sums) {
  if (input.kind != InputKind::kNormed) return {};
  return FindNorm(input.norm, input.x.data + token * input.x.stride, sums);
}

// Four values at a time, where they lie so.
__global__ __launch_bounds__(kNormThreads) void PackQuadsKernel(InputRows input, char* to) {
  constexpr int kAtATime = 2;
  __shared__ double sums[kNormWarps];
  BeginKernel();
  const int64_t token = blockIdx.x, place = PlaceOf(input, token);
  const float* row = input.x.data + token * input.x.stride;
  const int own = threadIdx.x % kBlockLanes, own_block = threadIdx.x / kBlockLanes;
  const int units = static_cast<int>((input.cols + kUnitCols - 1) / kUnitCols);
  const int begin = static_cast<int>(blockIdx.y * input.cols_per_block) / 32;
  const int end = min(begin + static_cast<int>(input.cols_per_block) / 32, 2 * units);
  const int end_col = min(static_cast<int>(input.cols), end * 32);
  constexpr PackedFormat kFormat = kPackedFormat<DType::kQ8_0>;
  char* tile = to + place / kTileTokens * units * InputUnitBytes(kFormat);
  const int g = static_cast<int>(place % kTileTokens);

  QuadOfRow quads[kAtATime];  // asked for before the norm is found
  const auto read = [&](int first) {
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      quads[n].Read(input, row, (first + n * kQuadBlocks) * 32 + own * kQuad, end_col);
    }
  };
  read(begin + own_block);
  const RowNorm norm = NormOfInput(input, token, sums);
  for (int first = begin + own_block; first - own_block < end; first += kAtATime * kQuadBlocks) {
    if (first - own_block > begin) read(first);
#pragma unroll
    for (int n = 0; n < kAtATime; ++n) {
      const int block = first + n * kQuadBlocks, column = block * 32 + own * kQuad;
      if (block - own_block >= end) break;
      const bool exists = column < end_col;  // whole blocks
      float values[kQuad] = {};
      if (exists) quads[n].Form(input, norm, column, values);
      const PackedQuad packed = PackQuad<true>(values);
      if (block >= end) continue;
      char* unit = tile + block / 2 * InputUnitBytes(kFormat);
      const int half = block % 2;
      *reinterpret_cast<uint32_t*>(unit + half * 256 + (g * 4 + own % 4) * 8 + own / 4 * 4) =
          packed.word;
      if (own > 0) continue;
      float* scales = reinterpret_cast<float*>(unit + kInputScales) + half * kTileTokens + g;
      scales[0] = exists ? packed.s : 0.0f;
      scales[2 * kTileTokens] = static_cast<float>(packed.first + packed.second);
      scales[4 * kTileTokens] = static_cast<float>(packed.first);
    }
  }
}

// A warp makes a block of 32; a thread, one of its values.
__global__ void PackQuantizedInputKernel(InputRows input, char* to) {
  __shared__ double sums[kNormWarps];
  BeginKernel();
  const int64_t token = blockIdx.x, place = PlaceOf(input, token);
  const RowNorm norm = NormOfInput(input, token, sums);
  const int lane = threadIdx.x % kWarp;
  const int64_t units = (input.cols + kUnitCols - 1) / kUnitCols;
  const int64_t begin = int64_t{blockIdx.y} * input.cols_per_block / 32;
  const int64_t end = min(begin + input.cols_per_block / 32, 2 * units);
  constexpr PackedFormat kFormat = kPackedFormat<DType::kQ8_0>;
  char* tile = to + place / kTileTokens * units * InputUnitBytes(kFormat);
  const int g = static_cast<int>(place % kTileTokens);
  for (int64_t b = begin + threadIdx.x / kWarp; b < end; b += kNormWarps) {
    const bool exists = b * 32 < input.cols;  // whole blocks
    const float value = exists ? InputValue(input, norm, token, b * 32 + lane) : 0.0f;
    const uint32_t max_bits = __reduce_max_sync(~0u, FloatToBits(value) & 0x7fffffffu);
    const ActivationScale scale = ScaleActivations(max_bits);
    const int q = QuantizeActivation(value, scale);
    const int first = __reduce_add_sync(~0u, lane < 16 ? q : 0);
    const int second = __reduce_add_sync(~0u, lane < 16 ? 0 : q);
    char* unit = tile + b / 2 * InputUnitBytes(kFormat);
    const int half = static_cast<int>(b % 2);
    unit[half * 256 + (g * 4 + lane % 16 / 4) * 8 + lane / 16 * 4 + lane % 4] =
        static_cast<char>(q);
    if (lane == 0) {
      float* scales = reinterpret_cast<float*>(unit + kInputScales) + half * kTileTokens + g;
      scales[0] = exists ? scale.s : 0.0f;
      scales[2 * kTileTokens] = static_cast<float>(first + second);
      scales[4 * kTileTokens] = static_cast<float>(first);
    }
  }
}

// Four values at a time, where they lie so; a thread block a token. kKept: quads of a thread that
// are formed once.
template <bool kBf16, int kThreads, int kKept>
__global__ __launch_bounds__(kThreads) void Pack16QuadsKernel(InputRows input, char* to,
                                                              float* inverse_factors) {
  constexpr int kStride = kThreads * kQuad;
  constexpr PackedFormat kFormat = kPackedFormat < kBf16 ? DType::kBF16 : DType::kF16 > ;
  __shared__ double sums[kNormWarps];
  __shared__ uint32_t greatest[kThreads / kWarp];
  BeginKernel();
  const int64_t token = blockIdx.x, place = PlaceOf(input, token);
  const float* row = input.x.data + token * input.x.stride;
  const int cols = static_cast<int>(input.cols), own = static_cast<int>(threadIdx.x) * kQuad;
  const int units = (cols + kUnitCols - 1) / kUnitCols, end = units * kUnitCols;
  QuadOfRow quads[kKept];
#pragma unroll
  for (int n = 0; n < kKept; ++n) quads[n].Read(input, row, own + n * kStride, cols);
  const RowNorm norm = NormOfInput(input, token, sums);
  uint32_t max_bits = 0;
  const auto form = [&](const QuadOfRow& quad, int column, float(&values)[kQuad]) {
    if (column < cols) quad.Form(input, norm, column, values);
    max_bits = GreatestMagnitude(max_bits, values);
  };
  float kept[kKept][kQuad] = {};
#pragma unroll
  for (int n = 0; n < kKept; ++n) form(quads[n], own + n * kStride, kept[n]);
  const auto form_again = [&](int column, float(&values)[kQuad]) {
    QuadOfRow quad;
    quad.Read(input, row, column, cols);
    form(quad, column, values);
  };
  for (int column = own + kKept * kStride; column < cols; column += kStride) {
    float values[kQuad] = {};
    form_again(column, values);
  }
  const float factor = FactorOfRow<kThreads / kWarp>(max_bits, greatest);
  if (threadIdx.x == 0) inverse_factors[place] = 1.0f / factor;

  char* tile = to + place / kTileTokens * units * InputUnitBytes(kFormat);
  const int g = static_cast<int>(place % kTileTokens);
  const auto store = [&](const float(&values)[kQuad], int column) {
    if (column >= end) return;
    StoreQuad16<kBf16, 1024>(values, factor, column,
                             tile + int64_t{column / kUnitCols} * InputUnitBytes(kFormat) +
                                 column % kUnitCols / 16 * 256 + g * 32);
  };
#pragma unroll
  for (int n = 0; n < kKept; ++n) store(kept[n], own + n * kStride);
  for (int column = own + kKept * kStride; column < end; column += kStride) {
    float values[kQuad] = {};
    form_again(column, values);
    store(values, column);
  }
}

// A thread block a token: its factor comes of its greatest value.
template <bool kBf16>
__global__ void Pack16InputKernel(InputRows input, char* to, float* inverse_factors) {
  __shared__ double sums[kNormWarps];
  __shared__ uint32_t greatest[kNormWarps];
  BeginKernel();
  const int64_t token = blockIdx.x, place = PlaceOf(input, token);
  const RowNorm norm = NormOfInput(input, token, sums);
  uint32_t max_bits = 0;
  for (int64_t i = threadIdx.x; i < input.cols; i += kNormThreads) {
    max_bits = max(max_bits, FloatToBits(InputValue(input, norm, token, i)) & 0x7fffffffu);
  }
  const float factor = FactorOfRow<kNormWarps>(max_bits, greatest);
  if (threadIdx.x == 0) inverse_factors[place] = 1.0f / factor;

  constexpr PackedFormat kFormat = kPackedFormat < kBf16 ? DType::kBF16 : DType::kF16 > ;
  const int64_t units = (input.cols + kUnitCols - 1) / kUnitCols;
  char* tile = to + place / kTileTokens * units * InputUnitBytes(kFormat);
  const int g = static_cast<int>(place % kTileTokens);
  for (int64_t i = threadIdx.x; i < units * kUnitCols; i += kNormThreads) {
    const float value = i < input.cols ? InputValue(input, norm, token, i) * factor : 0.0f;
    const int k = static_cast<int>(i % 16), column = static_cast<int>(i % kUnitCols);
    char* unit = tile + i / kUnitCols * InputUnitBytes(kFormat);
    auto* at = reinterpret_cast<uint16_t*>(unit + column / 16 * 256 + (g * 4 + k % 8 / 2) * 8 +
                                           k / 8 * 4 + k % 2 * 2);
    if constexpr (kBf16) {
      const uint16_t first = StoreBf16(value);
      at[0] = first;
      at[512] = StoreBf16(value - LoadBf16(first));
    } else {
      at[0] = StoreF16(value);
    }
  }
}

template <bool kBf16>
cudaError_t Pack16(const Queue& queue, const InputRows& input, char* units, float* factors) {
  const auto launch = [&](auto kernel, int threads) {
    return Launch(queue, kernel, Grid(input.x.rows), threads, input, units, factors);
  };
  if (!IsReadInQuads(input)) return launch(Pack16InputKernel<kBf16>, kNormThreads);
  constexpr int kShort = 2 * kNormThreads * kQuad, kManyThreads = 1024;
  if (input.cols <= kShort) return launch(Pack16QuadsKernel<kBf16, kNormThreads, 2>, kNormThreads);
  if (input.kind == InputKind::kNormed) {  // whose sums have an order
    return launch(Pack16QuadsKernel<kBf16, kNormThreads, 4>, kNormThreads);
  }
  return launch(Pack16QuadsKernel<kBf16, kManyThreads, 2>, kManyThreads);
}

}  // namespace

int64_t PackedInputBytes(DType dtype, int64_t tokens, int64_t cols) {
  const int64_t tiles = DivideUp(tokens, kTileTokens), units = DivideUp(cols, kUnitCols);
  const PackedFormat format = dtype == DType::kF16    ? kPackedFormat<DType::kF16>
                              : dtype == DType::kBF16 ? kPackedFormat<DType::kBF16>
                                                      : kPackedFormat<DType::kQ8_0>;
  const int64_t factors = DivideUp(tokens, 4) * 16;
  return factors + tiles * units * InputUnitBytes(format);
}

cudaError_t PackInput(const Queue& queue, DType dtype, InputRows input, void* to,
                      PackedInput* packed) {
  const int64_t tokens = input.x.rows;
  const int64_t places = input.places == nullptr ? tokens : input.num_places;
  auto* factors = static_cast<float*>(to);
  char* units = static_cast<char*>(to) + DivideUp(places, 4) * 16;
  const bool is_16 = dtype == DType::kF16 || dtype == DType::kBF16;
  *packed = {units, is_16 ? factors : nullptr, places, DivideUp(input.cols, kUnitCols)};
  if (is_16) {
    return dtype == DType::kF16 ? Pack16<false>(queue, input, units, factors)
                                : Pack16<true>(queue, input, units, factors);
  }
  input.cols_per_block =
      input.kind == InputKind::kNormed ? packed->units * kUnitCols : int64_t{kColsPerBlock};
  return Launch(queue, IsReadInQuads(input) ? PackQuadsKernel : PackQuantizedInputKernel,
                Grid(tokens, DivideUp(packed->units * kUnitCols, input.cols_per_block)),
                kNormThreads, input, units);
}

}  // namespace lm::cuda

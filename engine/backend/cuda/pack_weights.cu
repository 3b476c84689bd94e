// GGUF's blocks -> packed_weights.cuh's planes, and rows of those as floats.
#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/packed_weights.cuh"

namespace lm::cuda {
namespace {

constexpr int kThreads = 256;

// Rows [first_row, first_row + num_rows) of the matrix, as the file has them.
struct RawRows {
  const uint16_t* data;
  int64_t first_row;
  int64_t num_rows;
};

template <DType kType>
__device__ WeightBlock LoadRawBlock(const RawRows& raw, int64_t row, int64_t b, int64_t cols) {
  constexpr WeightFormat kFormat = kWeightFormat<kType>;
  const int64_t row_words = cols / kFormat.values * (kFormat.bytes / 2);
  return LoadWeightBlock<kType>(raw.data + (row - raw.first_row) * row_words, b);
}

// What a code is in the planes: the low and the high part of a byte of A.
template <DType kType>
__device__ int CodeOf(const WeightBlock& block, int k) {
  const int code = static_cast<int8_t>(block.codes[k / 4] >> (k % 4 * 8));
  return code - kWeightFormat<kType>.offset;
}

// One thread makes a block of the rows g and g + 8 of a panel.
template <DType kType>
__global__ void PackQuantizedKernel(RawRows raw, PackedWeights w, char* to) {
  BeginKernel();
  constexpr PackedFormat kFormat = kPackedFormat<kType>;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t blocks = 2 * w.shape.units;
  const int64_t panel = raw.first_row / kPanelRows + at / (8 * blocks);
  const int g = static_cast<int>(at / blocks % 8);
  const int64_t block = at % blocks;
  const int b = static_cast<int>(block % 2);
  const int64_t of_panel = block / 2, unit = w.shape.Unit(panel, of_panel);
  if (panel * kPanelRows >= raw.first_row + raw.num_rows) return;

  WeightBlock rows[2];
  bool exists[2];
  for (int hi = 0; hi < 2; ++hi) {
    const int64_t row = panel * kPanelRows + hi * 8 + g;
    exists[hi] = row < raw.first_row + raw.num_rows && block < w.cols / 32;
    if (exists[hi]) rows[hi] = LoadRawBlock<kType>(raw, row, block, w.cols);
  }
  auto code = [&](int hi, int k) { return exists[hi] ? CodeOf<kType>(rows[hi], k) : 0; };

  auto* codes = reinterpret_cast<uint32_t*>(to + unit * kFormat.code_bytes());
  for (int t = 0; t < 4; ++t) {
    const int lane = 4 * g + t;
    uint32_t upper = 0;
    for (int half = 0; half < 2; ++half) {
      const int k = 16 * half + 4 * t;
      if constexpr (kFormat.codes == Codes::kInt8) {
        for (int hi = 0; hi < 2; ++hi) {
          uint32_t word = 0;
          for (int j = 0; j < 4; ++j) word |= uint32_t(code(hi, k + j) & 255) << (8 * j);
          codes[b * 128 + lane * 4 + 2 * half + hi] = word;
        }
      } else {
        uint32_t word = 0;
        for (int hi = 0; hi < 2; ++hi) {
          for (int j = 0; j < 4; ++j) {
            const uint32_t value = code(hi, k + j);
            const int shift = kFormat.codes == Codes::kTable4 ? 16 * hi + 4 * j : 8 * j + 4 * hi;
            word |= (value & 15u) << shift;
            upper |= (value >> 4 & 3u) << (8 * j + 2 * (2 * half + hi));
          }
        }
        codes[lane * 4 + 2 * b + half] = word;
      }
    }
    if constexpr (kFormat.codes == Codes::kInt6) {
      reinterpret_cast<uint32_t*>(to + w.shape.high + unit * 256)[lane * 2 + b] = upper;
    }
  }

  char* record = to + w.shape.scales + unit * kFormat.scale_bytes() + g * kFormat.record();
  char* minima = record + kFormat.scale_record();
  for (int hi = 0; hi < 2; ++hi) {
    const WeightBlock& row = rows[hi];
    const int i = 2 * hi + b;
    const float d = exists[hi] ? row.d : 0.0f, m = exists[hi] ? row.m : 0.0f;
    auto scale = [&](int half) { return exists[hi] ? row.scale[half] : 0; };
    auto min = [&](int half) { return exists[hi] ? row.min[half] : 0; };
    if constexpr (kFormat.scales == ScaleKind::kHalf || kFormat.scales == ScaleKind::kBf16) {
      constexpr bool kBf16 = kFormat.scales == ScaleKind::kBf16;
      reinterpret_cast<uint16_t*>(record)[i] = kBf16 ? StoreBf16(d) : StoreF16(d);
      if constexpr (kFormat.minima) reinterpret_cast<uint16_t*>(minima)[i] = StoreF16(m);
    } else if constexpr (kFormat.scales == ScaleKind::kFloat) {
      float* three = reinterpret_cast<float*>(record) + 3 * i;
      three[0] = d;
      three[1] = static_cast<float>(scale(0));
      three[2] = static_cast<float>(scale(1));
    } else {
      constexpr int kParts = kFormat.halves() ? 2 : 1;
      for (int part = 0; part < kParts; ++part) {
        record[kParts * i + part] = static_cast<char>(scale(part));
        if constexpr (kFormat.minima) minima[kParts * i + part] = static_cast<char>(min(part));
      }
      if (block % (2 * kUnitsOfSuper) == 0) {
        const int64_t supers = (w.shape.units + kUnitsOfSuper - 1) / kUnitsOfSuper;
        auto* dm = reinterpret_cast<uint16_t*>(to + w.shape.supers +
                                               (panel * supers + of_panel / kUnitsOfSuper) * 64 +
                                               g * 8 + hi * 4);
        dm[0] = StoreF16(d);
        dm[1] = StoreF16(m);
      }
    }
  }
}

// One thread makes a lane's 16 bytes of 16 columns.
__global__ void Pack16Kernel(RawRows raw, PackedWeights w, char* to) {
  BeginKernel();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int lane = static_cast<int>(at % 32);
  const int64_t sixteens = 4 * w.shape.units;
  const int64_t panel = raw.first_row / kPanelRows + at / 32 / sixteens;
  const int64_t sixteen = at / 32 % sixteens;
  if (panel * kPanelRows >= raw.first_row + raw.num_rows) return;
  const int64_t unit = w.shape.Unit(panel, sixteen / 4);
  auto* out = reinterpret_cast<uint16_t*>(to + unit * 2048 + sixteen % 4 * 512 + lane * 16);
  for (int i = 0; i < 8; ++i) {
    const int reg = i / 2;
    const int64_t row = panel * kPanelRows + lane / 4 + reg % 2 * 8;
    const int64_t col = sixteen * 16 + reg / 2 * 8 + lane % 4 * 2 + i % 2;
    const bool exists = row < raw.first_row + raw.num_rows && col < w.cols;
    out[i] = exists ? raw.data[(row - raw.first_row) * w.cols + col] : uint16_t{0};
  }
}

__device__ __forceinline__ int32_t TokenOf(int32_t id, const PickedToken* picked) {
  return id < 0 ? max(picked[~id].token, 0) : id;
}

template <DType kType>
__global__ void EmbedPackedKernel(PackedWeights w, const int32_t* ids, const PickedToken* picked,
                                  float scale, Matrix out) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= w.cols) return;
  const int32_t token = TokenOf(ids[blockIdx.x], picked);
  out.data[blockIdx.x * out.stride + i] = PackedValue<kType>(w, token, i) * scale;
}

__global__ void EmbedFloatKernel(const float* data, int64_t cols, const int32_t* ids,
                                 const PickedToken* picked, float scale, Matrix out) {
  BeginKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= cols) return;
  const int32_t token = TokenOf(ids[blockIdx.x], picked);
  out.data[blockIdx.x * out.stride + i] = data[token * cols + i] * scale;
}

}  // namespace

PackedShape ShapeOfPacked(DType dtype, int64_t rows, int64_t cols) {
  PackedShape shape = {};
  if (dtype == DType::kF32) {
    shape.bytes = rows * cols * static_cast<int64_t>(sizeof(float));
    return shape;
  }
  WithPackedType(dtype, [&](auto type) {
    shape = PackedShape::Of(kPackedFormat<type()>, rows, cols);
    return cudaSuccess;
  });
  return shape;
}

cudaError_t PackWeights(const Queue& queue, DType dtype, const PackedWeights& w, const void* raw,
                        int64_t first_row, int64_t num_rows) {
  const RawRows rows = {static_cast<const uint16_t*>(raw), first_row, num_rows};
  const int64_t panels = DivideUp(num_rows, kPanelRows);
  char* to = const_cast<char*>(w.data);
  if (dtype == DType::kF16 || dtype == DType::kBF16) {
    return Launch(queue, Pack16Kernel, Grid(DivideUp(panels * 4 * w.shape.units * 32, kThreads)),
                  kThreads, rows, w, to);
  }
  return WithQuantizedType(dtype, [&](auto type) {
    return Launch(queue, PackQuantizedKernel<type()>,
                  Grid(DivideUp(panels * 8 * 2 * w.shape.units, kThreads)), kThreads, rows, w, to);
  });
}

cudaError_t Embed(const Queue& queue, DType dtype, const PackedWeights& w, const int32_t* ids,
                  const PickedToken* picked, float scale, Matrix out) {
  const dim3 grid = Grid(out.rows, DivideUp(w.cols, kThreads));
  if (dtype == DType::kF32) {
    return Launch(queue, EmbedFloatKernel, grid, kThreads, reinterpret_cast<const float*>(w.data),
                  w.cols, ids, picked, scale, out);
  }
  return WithPackedType(dtype, [&](auto type) {
    return Launch(queue, EmbedPackedKernel<type()>, grid, kThreads, w, ids, picked, scale, out);
  });
}

}  // namespace lm::cuda

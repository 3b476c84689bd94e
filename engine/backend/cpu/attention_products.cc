#include "engine/backend/cpu/attention_products.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/cpu/kv_layout.h"
#include "engine/backend/cpu/prefetch.h"
#include "engine/base/float16.h"

namespace lm {
namespace {

constexpr int kKeyPanels = kKvBlockTokens / kAttentionPanel;

float LoadKvValue(DType dtype, const char* values, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(values)[i];
  if (dtype == DType::kI8) return reinterpret_cast<const int8_t*>(values)[i];
  return HalfToFloat(reinterpret_cast<const uint16_t*>(values)[i]);
}

// Calls multiply(row, tokens, panel, panels) for tiles that cover the block's rows and `panels`.
template <typename F>
void ForTiles(const CpuKernels& kernels, const AttendedBlock& block, int panels, F multiply) {
  for (int panel = 0; panel < panels;) {
    const FloatTile tile = kernels.ChooseFloatTile(block.end_row - block.first_row, panels - panel);
    for (int row = block.first_row; row < block.end_row; row += tile.tokens) {
      multiply(row, std::min(tile.tokens, block.end_row - row), panel, tile.panels);
    }
    panel += tile.panels;
  }
}

class FloatProducts final : public AttentionProducts {
 public:
  FloatProducts(const CpuKernels& kernels, const KvLayer& layer, int group, int64_t sum_stride)
      : kernels_(kernels), layer_(layer), group_(group), sum_stride_(sum_stride) {}

  void LoadQuery(const float* query, int row, const AttentionScratch& work) const override {
    std::memcpy(work.queries + row * kScoreStride, query, layer_.key_dim * sizeof(float));
  }
  float QueryScale(int, const AttentionScratch&) const override { return 1; }

  void Score(const AttendedBlock& keys, const AttentionScratch& work) const override {
    ForTiles(kernels_, keys, kKeyPanels, [&](int row, int tokens, int panel, int panels) {
      FloatProduct product = {
          .type = layer_.dtype,
          .w = keys.head + RowBytes(layer_.dtype, panel * kAttentionPanel),
          .k_stride = kKvBlockTokens,
          .panel_stride = kAttentionPanel,
          .panels = panels,
          .x = work.queries + row * kScoreStride,
          .packed = false,
          .tokens = tokens,
          .k = layer_.key_dim,
          .acc = work.scores + row * kScoreStride + keys.token + panel * kAttentionPanel,
          .acc_stride = kScoreStride,
          .accumulate = Accumulate::kReplace};
      product.PrefetchBehind(row == keys.first_row ? keys.distance_to_next : 0);
      kernels_.float_product(product);
    });
    if (HasScales(layer_.dtype)) Scale(keys, layer_.key_dim, work);
  }

  // What all rows see, together; then what later ones see beyond, query by query: no row may touch
  // values behind its own position, not even with weight zero.
  void AddValues(const AttendedBlock& values, absl::FunctionRef<int(int row)> visible,
                 const AttentionScratch& work, float* sums) const override {
    if (HasScales(layer_.dtype)) Scale(values, layer_.value_dim, work);
    int common = kKvBlockTokens;
    for (int row = values.first_row; row < values.end_row; row += group_) {
      common = std::min(common, visible(row));
    }
    AddPart(values, 0, common, work, sums);
    for (int row = values.first_row; row < values.end_row; row += group_) {
      const int seen = visible(row);
      if (seen == common) continue;
      AttendedBlock own = values;
      own.distance_to_next = 0;
      own.first_row = row;
      own.end_row = row + group_;
      AddPart(own, common, seen - common, work, sums);
    }
  }

 private:
  // Multiplies a block's scores, or weights, by the scales of its tokens.
  void Scale(const AttendedBlock& block, int64_t dim, const AttentionScratch& work) const {
    const float* scales = KvScales(layer_, block.head, dim);
    for (int row = block.first_row; row < block.end_row; ++row) {
      kernels_.multiply(work.scores + row * kScoreStride + block.token, scales, kKvBlockTokens);
    }
  }

  // Of `count` positions of the block from `first` on.
  void AddPart(const AttendedBlock& values, int first, int count, const AttentionScratch& work,
               float* sums) const {
    const int64_t dim = layer_.value_dim;
    const int full_panels = static_cast<int>(dim / kAttentionPanel);
    const int tail = static_cast<int>(dim % kAttentionPanel);
    const char* rows_of_v = values.head + RowBytes(layer_.dtype, first * dim);
    FloatProduct product = {.type = layer_.dtype,
                            .w = nullptr,
                            .k_stride = dim,
                            .panel_stride = kAttentionPanel,
                            .panels = 1,
                            .x = nullptr,
                            .packed = false,
                            .tokens = 0,
                            .k = count,
                            .acc = nullptr,
                            .acc_stride = sum_stride_,
                            .accumulate = Accumulate::kContinue};
    auto multiply = [&](int row, int tokens, int panel, int panels) {
      product.panels = panels;
      product.tokens = tokens;
      product.x = work.scores + row * kScoreStride + values.token + first;
      product.acc = sums + row * sum_stride_ + panel * kAttentionPanel;
      product.PrefetchBehind(row == values.first_row ? values.distance_to_next : 0);
      kernels_.float_product(product);
    };
    ForTiles(kernels_, values, full_panels, [&](int row, int tokens, int panel, int panels) {
      product.w = rows_of_v + RowBytes(layer_.dtype, panel * kAttentionPanel);
      multiply(row, tokens, panel, panels);
    });
    if (tail == 0) return;
    // The last columns, where a vector would reach into the next row: copied out, zeros beside.
    for (int64_t i = 0; i < product.k; ++i) {
      const int64_t at = i * dim + full_panels * kAttentionPanel;
      float* columns = work.tail + i * kAttentionPanel;
      for (int j = 0; j < tail; ++j) columns[j] = LoadKvValue(layer_.dtype, rows_of_v, at + j);
      std::fill(columns + tail, columns + kAttentionPanel, 0.0f);
    }
    product.type = DType::kF32;
    product.w = work.tail;
    product.k_stride = kAttentionPanel;
    ForTiles(kernels_, values, 1, [&](int row, int tokens, int, int panels) {
      multiply(row, tokens, full_panels, panels);
    });
  }

  const CpuKernels& kernels_;
  const KvLayer& layer_;
  const int group_;
  const int64_t sum_stride_;
};

class Int16Products final : public AttentionProducts {
 public:
  Int16Products(const CpuKernels& kernels, const KvLayer& layer, int64_t sum_stride)
      : kernels_(kernels), layer_(layer), sum_stride_(sum_stride) {}

  void LoadQuery(const float* query, int row, const AttentionScratch& work) const override {
    int16_t* codes = Codes(work.queries, row);
    work.query_scales[row] =
        kernels_.quantize_to_int16(query, layer_.key_dim, kMostQueryCode, codes);
    if (layer_.key_dim % 2 == 1) codes[layer_.key_dim] = 0;
  }
  float QueryScale(int row, const AttentionScratch& work) const override {
    return work.query_scales[row];
  }

  void Score(const AttendedBlock& keys, const AttentionScratch& work) const override {
    const float* scales = KvScales(layer_, keys.head, layer_.key_dim);
    PrefetchNextScales(keys, scales);
    ForTiles(kernels_, keys, kKeyPanels, [&](int row, int tokens, int panel, int panels) {
      kernels_.int16_product(
          {.scores = true,
           .w = PairsAt(keys, panel),
           .k_stride = kKvBlockTokens,
           .panels = panels,
           .x = Codes(work.queries, row),
           .tokens = tokens,
           .pairs = (layer_.key_dim + 1) / 2,
           .scales = scales + panel * kAttentionPanel,
           .acc = work.scores + row * kScoreStride + keys.token + panel * kAttentionPanel,
           .acc_stride = kScoreStride,
           .prefetch_distance = row == keys.first_row ? keys.distance_to_next : 0});
    });
  }

  // Positions that a row does not see have codes of weight 0, and all codes are numbers. The last
  // panel may reach beyond a row, behind the last one into the scales: columns that nobody reads.
  void AddValues(const AttendedBlock& values, absl::FunctionRef<int(int row)> /*visible*/,
                 const AttentionScratch& work, float* sums) const override {
    static_assert(kKvBlockTokens * sizeof(float) >= 2 * kAttentionPanel * sizeof(int16_t));
    const float* scales = KvScales(layer_, values.head, layer_.value_dim);
    PrefetchNextScales(values, scales);
    kernels_.quantize_weights(work.scores + values.first_row * kScoreStride + values.token, scales,
                              values.end_row - values.first_row,
                              work.weight_scales + values.first_row);
    const int panels = static_cast<int>(sum_stride_ / kAttentionPanel);
    ForTiles(kernels_, values, panels, [&](int row, int tokens, int panel, int panels) {
      kernels_.int16_product(
          {.scores = false,
           .w = PairsAt(values, panel),
           .k_stride = layer_.value_dim,
           .panels = panels,
           .x = Codes(work.scores + values.token, row),
           .tokens = tokens,
           .pairs = kKvBlockTokens / 2,
           .scales = work.weight_scales + row,
           .acc = sums + row * sum_stride_ + panel * kAttentionPanel,
           .acc_stride = sum_stride_,
           .prefetch_distance = row == values.first_row ? values.distance_to_next : 0});
    });
  }

 private:
  static void PrefetchNextScales(const AttendedBlock& block, const float* scales) {
    if (block.distance_to_next == 0) return;
    Prefetch(reinterpret_cast<const char*>(scales) + block.distance_to_next,
             kKvBlockTokens * sizeof(float));
  }
  static int16_t* Codes(float* rows, int row) {
    return reinterpret_cast<int16_t*>(rows + row * kScoreStride);
  }
  static const int16_t* PairsAt(const AttendedBlock& block, int panel) {
    return reinterpret_cast<const int16_t*>(block.head) + 2 * kAttentionPanel * panel;
  }

  const CpuKernels& kernels_;
  const KvLayer& layer_;
  const int64_t sum_stride_;
};

}  // namespace

std::unique_ptr<AttentionProducts> MakeAttentionProducts(const CpuKernels& kernels,
                                                         const KvLayer& layer, int group,
                                                         int64_t sum_stride) {
  if (layer.dtype == DType::kI16) {
    return std::make_unique<Int16Products>(kernels, layer, sum_stride);
  }
  return std::make_unique<FloatProducts>(kernels, layer, group, sum_stride);
}

}  // namespace lm

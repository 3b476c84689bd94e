// Products with float weights. K goes by in chunks of kFloatChunk, as backend.h has it;
// for each, all tiles of tokens, so that a chunk's weights stay in the nearest caches and 16-bit
// ones are converted once.
//
// oneDNN multiplies 128 tokens and 64 columns at a time; what is left over, and every product where
// its bits differ, is done by our own kernels.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/matmul_tiles.h"
#include "engine/backend/cpu/prefetch.h"
#include "engine/backend/first_error.h"
#include "engine/base/status_macros.h"

namespace lm {

static_assert(OneDnnProduct::kColumns == kStripRows);

OneDnnProduct* CpuBackend::FindOneDnnProduct(int64_t k) {
  auto [entry, added] = onednn_.try_emplace(k);
  if (added) entry->second = OneDnnProduct::Create(k, pool_.num_threads(), kernels_);
  return entry->second.get();
}

absl::Status CpuBackend::MultiplyFloat(const ProductArguments& args) {
  const PanelMatrix& w = args.w;
  const int64_t rows = args.out.rows;
  int64_t many = rows / OneDnnProduct::kTokens * OneDnnProduct::kTokens;
  // Chunks of K: all whole but the last.
  int64_t tail = w.cols() % kFloatChunk;
  bool usable = many > 0 && (w.cols() < kFloatChunk || FindOneDnnProduct(kFloatChunk) != nullptr) &&
                (tail == 0 || FindOneDnnProduct(tail) != nullptr);
  if (!usable) many = 0;
  if (many > 0) RETURN_IF_ERROR(MultiplyManyTokens(args.Rows(0, many)));
  return many < rows ? MultiplyFewTokens(args.Rows(many, rows - many)) : absl::OkStatus();
}

absl::Status CpuBackend::MultiplyManyTokens(const ProductArguments& args) {
  const PanelMatrix& w = args.w;
  const int64_t rows = args.out.rows;
  constexpr int64_t kXStride = OneDnnProduct::kXStride;
  int64_t num_chunks = (w.cols() + kFloatChunk - 1) / kFloatChunk;
  auto chunk_size = [&](int64_t chunk) {
    return std::min<int64_t>(kFloatChunk, w.cols() - chunk * kFloatChunk);
  };
  std::vector<OneDnnProduct*> products;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    products.push_back(FindOneDnnProduct(chunk_size(chunk)));
  }

  // Activations, as [chunk][token][kXStride].
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(num_chunks * rows * kXStride * sizeof(float)));
  float* packed = reinterpret_cast<float*>(memory);
  RETURN_IF_ERROR(ForInputRows(args.input, Tiles(rows, 1), [&](int64_t t, const float* values) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      std::memcpy(packed + (chunk * rows + t) * kXStride, values + chunk * kFloatChunk,
                  chunk_size(chunk) * sizeof(float));
    }
  }));

  struct Parts {
    float* weights;  // a chunk of a strip, where it is not F32 in memory
    float* sums;     // [token][kStripRows]
    char* piece;     // for PanelMatrix::Get
  };
  bool convert = w.dtype() != DType::kF32;
  auto lay_out = [&](ScratchLayout* layout) {
    return Parts{layout->Take<float>(convert ? kFloatChunk * kStripRows : 0),
                 layout->Take<float>(rows * kStripRows),
                 layout->Take<char>(w.piece_scratch_bytes())};
  };
  ScratchLayout measure;
  lay_out(&measure);
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * measure.used()));
  std::atomic<bool> failed{false};
  FirstError error;
  ForItems(w.num_strips(), [&](int64_t strip, int worker) {
    if (!args.Wants(strip * kStripRows)) return;
    ScratchLayout layout(scratch + worker * measure.used());
    Parts parts = lay_out(&layout);
    const absl::StatusOr<PanelMatrix::Piece> there = w.Get(strip, parts.piece);
    if (!there.ok()) return error.Add(strip, there.status());
    const char* const begin = reinterpret_cast<const char*>(there->codes);
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      const char* from = begin + RowBytes(w.dtype(), chunk * kFloatChunk * kStripRows);
      const float* weights = reinterpret_cast<const float*>(from);
      if (convert) {
        kernels_.to_float(w.dtype(), from, chunk_size(chunk) * kStripRows, parts.weights);
        weights = parts.weights;
      }
      for (int64_t t = 0; t < rows; t += OneDnnProduct::kTokens) {
        if (!products[chunk]->Multiply(worker, chunk > 0, packed + (chunk * rows + t) * kXStride,
                                       weights, parts.sums + t * kStripRows)) {
          failed.store(true, std::memory_order_relaxed);
        }
      }
    }
    StoreTile(parts.sums, kStripRows, strip * kStripRows, 0, rows, w.row_scales(), args.bias,
              args.result, args.out);
  });
  RETURN_IF_ERROR(error.status());
  if (failed.load()) return absl::InternalError("MatMul: oneDNN failed");
  return absl::OkStatus();
}

absl::Status CpuBackend::MultiplyFewTokens(const ProductArguments& args) {
  const PanelMatrix& w = args.w;
  const int64_t rows = args.out.rows;
  FloatTile choice = kernels_.ChooseFloatTile(rows, kStripRows / kPanelRows);
  Tiles tiles(rows, choice.tokens);
  int64_t k = w.cols();

  // Activations, as [tile][k][token of the tile].
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(rows * k * sizeof(float)));
  float* packed = reinterpret_cast<float*>(memory);
  RETURN_IF_ERROR(ForInputRows(args.input, tiles, [&](int64_t t, const float* values) {
    const int64_t tile = tiles.of(t), first = tiles.begin(tile);
    const int size = tiles.size(tile);
    float* to = packed + first * k + (t - first);
    for (int64_t i = 0; i < k; ++i) to[i * size] = values[i];
  }));

  // With several tiles 16-bit weights are worth converting first; BF16 has kernels for few tokens.
  bool convert = w.dtype() != DType::kF32 &&
                 (tiles.count > 1 || (w.dtype() == DType::kBF16 && choice.panels < 4));
  struct Parts {
    float* weights;  // a chunk of a strip
    float* sums;     // [token][kStripRows]
    char* piece;     // for PanelMatrix::Get
  };
  auto lay_out = [&](ScratchLayout* layout) {
    return Parts{layout->Take<float>(convert ? kFloatChunk * kStripRows : 0),
                 layout->Take<float>(rows * kStripRows),
                 layout->Take<char>(w.piece_scratch_bytes())};
  };
  ScratchLayout measure;
  lay_out(&measure);
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * measure.used()));

  FirstError error;
  auto multiply_strip = [&](int64_t strip, int worker) {
    if (!args.Wants(strip * kStripRows)) return;
    ScratchLayout layout(scratch + worker * measure.used());
    Parts parts = lay_out(&layout);
    const absl::StatusOr<PanelMatrix::Piece> there = w.Get(strip, parts.piece);
    if (!there.ok()) return error.Add(strip, there.status());
    for (int64_t begin = 0; begin < k; begin += kFloatChunk) {
      const char* weights =
          reinterpret_cast<const char*>(there->codes) + RowBytes(w.dtype(), begin * kStripRows);
      FloatProduct product = {.type = w.dtype(),
                              .w = nullptr,
                              .k_stride = kStripRows,
                              .panel_stride = kPanelRows,
                              .panels = choice.panels,
                              .x = nullptr,
                              .packed = true,
                              .tokens = 0,
                              .k = std::min<int64_t>(kFloatChunk, k - begin),
                              .acc = nullptr,
                              .acc_stride = kStripRows,
                              .accumulate = begin == 0 ? Accumulate::kReplace : Accumulate::kAdd};
      if (convert) {
        kernels_.to_float(w.dtype(), weights, product.k * kStripRows, parts.weights);
        product.type = DType::kF32;
        weights = reinterpret_cast<const char*>(parts.weights);
      }
      for (int column = 0; column < kStripRows; column += choice.panels * kPanelRows) {
        product.w = weights + RowBytes(product.type, column);
        for (int64_t tile = 0; tile < tiles.count; ++tile) {
          product.tokens = tiles.size(tile);
          product.x = packed + tiles.begin(tile) * k + begin * product.tokens;
          product.acc = parts.sums + tiles.begin(tile) * kStripRows + column;
          product.prefetch_distance = tile == 0 && !convert ? kPrefetchDistance : 0;
          kernels_.float_product(product);
        }
      }
    }
    StoreTile(parts.sums, kStripRows, strip * kStripRows, 0, rows, w.row_scales(), args.bias,
              args.result, args.out);
  };
  if (static_cast<int64_t>(w.bytes()) * rows < kBytesWorthSharing) {
    for (int64_t strip = 0; strip < w.num_strips(); ++strip) multiply_strip(strip, 0);
  } else {
    ForItems(w.num_strips(), multiply_strip);
  }
  return error.status();
}

}  // namespace lm

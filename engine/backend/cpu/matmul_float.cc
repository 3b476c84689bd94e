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
#include "engine/base/first_error.h"
#include "engine/base/status_macros.h"

namespace lm {

static_assert(OneDnnProduct::kColumns == kStripRows);

namespace {

// Steps of k whose weights, 64 columns of F32, stay in an L1 cache: 32 KB. Where one panel is
// multiplied at a time, half as many make the calls too short.
constexpr int64_t kStepsInL1 = 128;

// A product of our own kernels, strip by strip of the weights. What is passed over once is asked
// for on the way. Else a part's weights stay in the L1 cache for all passes, and the next part's
// are asked for meanwhile, so many bytes at each step of each pass.
class FewTokensProduct {
 public:
  // A worker's scratch.
  struct Parts {
    float* weights;  // a part of a strip
    float* sums;     // [token][kStripRows]
    float* chain;    // likewise, of a chunk that has several parts
    char* piece;     // for PanelMatrix::Get
  };

  // x: [tile][k][token of the tile]. All of them outlive it.
  FewTokensProduct(const CpuKernels& kernels, const PanelMatrix& w, const Tiles& tiles,
                   const FloatTile& choice, const float* x)
      : kernels_(kernels), w_(w), tiles_(tiles), choice_(choice), x_(x) {}

  Parts LayOut(ScratchLayout* layout) const {
    return {layout->Take<float>(convert_ ? part_ * kStripRows : 0),
            layout->Take<float>(tiles_.tokens * kStripRows),
            layout->Take<float>(part_ < kFloatChunk ? tiles_.tokens * kStripRows : 0),
            layout->Take<char>(w_.piece_scratch_bytes())};
  }

  // parts.sums of a strip; next: the strip that comes then, or null.
  void MultiplyStrip(const char* strip, const char* next, const Parts& parts) const {
    auto at = [&](int64_t step) { return strip + RowBytes(w_.dtype(), step * kStripRows); };
    const int64_t k = w_.cols();
    int64_t chunk = 0;
    for (int abreast = abreast_; abreast > 1; abreast /= 2) {
      const int64_t steps = abreast * kFloatChunk;
      for (; chunk + steps <= k; chunk += steps) {
        MultiplyPart(at(chunk), chunk, chunk + kFloatChunk, next,
                     chunk == 0 ? Accumulate::kReplace : Accumulate::kAdd, parts.sums, nullptr,
                     abreast);
      }
    }
    for (; chunk < k; chunk += kFloatChunk) {
      const int64_t chunk_end = std::min<int64_t>(chunk + kFloatChunk, k);
      const bool whole = chunk_end - chunk <= part_;
      float* const chain = chunk == 0 || whole ? parts.sums : parts.chain;
      for (int64_t begin = chunk; begin < chunk_end; begin += part_) {
        const int64_t end = std::min(begin + part_, chunk_end);
        const Accumulate accumulate = begin > chunk        ? Accumulate::kContinue
                                      : whole && chunk > 0 ? Accumulate::kAdd
                                                           : Accumulate::kReplace;
        MultiplyPart(at(begin), begin, end, end < k ? at(end) : next, accumulate, chain,
                     parts.weights);
      }
      if (chain == parts.chain)
        kernels_.add_scaled(parts.sums, chain, 1, tiles_.tokens * kStripRows);
    }
  }

 private:
  // The steps [begin, end) of k, which lie in one chunk, and the same of `abreast` - 1 chunks
  // behind it; converted: room for them as F32.
  void MultiplyPart(const char* weights, int64_t begin, int64_t end, const char* next,
                    Accumulate accumulate, float* acc, float* converted, int abreast = 1) const {
    FloatProduct product = {.type = w_.dtype(),
                            .w = nullptr,
                            .k_stride = kStripRows,
                            .panel_stride = kPanelRows,
                            .panels = choice_.panels,
                            .x = nullptr,
                            .packed = true,
                            .tokens = 0,
                            .k = end - begin,
                            .parts = abreast,
                            .acc = nullptr,
                            .acc_stride = kStripRows,
                            .accumulate = accumulate};
    if (convert_) {
      kernels_.to_float(w_.dtype(), weights, product.k * kStripRows, converted);
      product.type = DType::kF32;
      weights = reinterpret_cast<const char*>(converted);
    }
    for (int column = 0; column < kStripRows; column += columns_) {
      product.w = weights + RowBytes(product.type, column);
      for (int64_t tile = 0; tile < tiles_.count; ++tile) {
        product.tokens = tiles_.size(tile);
        product.x = x_ + tiles_.begin(tile) * w_.cols() + begin * product.tokens;
        product.acc = acc + tiles_.begin(tile) * kStripRows + column;
        if (once_) {
          product.PrefetchBehind(kPrefetchDistance / abreast);
        } else if (next != nullptr) {
          product.prefetch = next;
          product.prefetch_step = spread_bytes_;
          next += spread_bytes_ * product.k;
        }
        kernels_.float_product(product);
      }
    }
  }

  const CpuKernels& kernels_;
  const PanelMatrix& w_;
  const Tiles& tiles_;
  const FloatTile choice_;
  const float* const x_;
  const int64_t columns_ = choice_.panels * kPanelRows;
  // With several tiles 16-bit weights are worth converting first; BF16 has kernels for few tokens.
  const bool convert_ = w_.dtype() != DType::kF32 &&
                        (tiles_.count > 1 || (w_.dtype() == DType::kBF16 && choice_.panels < 4));
  const bool once_ = tiles_.count == 1 && !convert_;
  const int abreast_ = once_ ? kernels_.FloatParts(choice_) : 1;  // chunks
  const int64_t part_ = once_ ? kFloatChunk : kStepsInL1;
  const int64_t passes_ = kStripRows / columns_ * tiles_.count;
  const int64_t spread_bytes_ = (RowBytes(w_.dtype(), kStripRows) + passes_ - 1) / passes_;
};

}  // namespace

OneDnnProduct* CpuBackend::FindOneDnnProduct(int64_t k) {
  auto [entry, added] = onednn_.try_emplace(k);
  if (added) entry->second = OneDnnProduct::Create(k, pool_.num_threads(), isa_);
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
  const int64_t rows = args.out.rows, k = w.cols();
  const FloatTile choice = kernels_.ChooseFloatTile(rows, kStripRows / kPanelRows);
  const Tiles tiles(rows, choice.tokens);

  // Activations, as [tile][k][token of the tile].
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(rows * k * sizeof(float)));
  float* packed = reinterpret_cast<float*>(memory);
  RETURN_IF_ERROR(ForInputRows(args.input, tiles, [&](int64_t t, const float* values) {
    const int64_t tile = tiles.of(t), first = tiles.begin(tile);
    const int size = tiles.size(tile);
    float* to = packed + first * k + (t - first);
    for (int64_t i = 0; i < k; ++i) to[i * size] = values[i];
  }));

  const FewTokensProduct product(kernels_, w, tiles, choice, packed);
  ScratchLayout measure;
  product.LayOut(&measure);
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * measure.used()));
  FirstError error;
  auto multiply_strip = [&](int64_t strip, int worker) {
    if (!args.Wants(strip * kStripRows)) return;
    ScratchLayout layout(scratch + worker * measure.used());
    const FewTokensProduct::Parts parts = product.LayOut(&layout);
    const absl::StatusOr<PanelMatrix::Piece> there = w.Get(strip, parts.piece);
    if (!there.ok()) return error.Add(strip, there.status());
    const int64_t next = strip + pool_.num_threads();  // most likely this thread's
    product.MultiplyStrip(reinterpret_cast<const char*>(there->codes),
                          w.has(next) ? w.strip(next, 0) : nullptr, parts);
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

// Products with block weights, over panels of 16 output columns.
//
// A pair of panels is multiplied with all tokens, tile by tile: the pair's weights stay in the
// nearest caches, the activations stream past.
#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/matmul_tiles.h"
#include "engine/backend/cpu/prefetch.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// With one tile of tokens weights are used once: unpack as many blocks of codes, or of scales
// alone, as stay in the L1 cache. Multiples of the eight blocks that share a K type's scales.
constexpr int64_t kBlocksToUnpack = 8;
constexpr int64_t kBlocksOfScales = 32;

// A few pages of weights an item keep the hardware's prefetcher going.
constexpr int64_t kBytesAnItem = 64 * 1024;
constexpr int64_t kItemsAThread = 4;

}  // namespace

absl::Status CpuBackend::MultiplyQuantized(const ProductArguments& args) {
  const PanelMatrix& w = args.w;
  const Tensor out = args.out;
  const PanelFormat& format = w.format();
  int64_t num_blocks = w.cols() / kActivationBlock;
  // Eight-bit codes are bytes in memory already. Few tokens take the others as they are: unpacking
  // them four times costs less than a trip to the cache.
  bool bytes = format.low_bits == 8;
  bool packed = !bytes && out.rows <= 4 * kernels_.packed_tokens;
  bool unpack = !bytes && !packed;
  Tiles tiles(out.rows, packed               ? kernels_.packed_tokens
                        : format.half_scales ? kernels_.half_scale_tokens
                                             : kernels_.quantized_tokens);

  // Activations, as [tile][block][token of the tile].
  ASSIGN_OR_RETURN(char* memory, inputs_.Get(out.rows * num_blocks * sizeof(ActivationRecord)));
  auto* records = reinterpret_cast<ActivationRecord*>(memory);
  RETURN_IF_ERROR(ForInputRows(args.input, Tiles(out.rows, 1), [&](int64_t t, const float* values) {
    const int64_t tile = tiles.of(t), first = tiles.begin(tile);
    kernels_.quantize_activations(format, values, num_blocks,
                                  records + first * num_blocks + (t - first), tiles.size(tile));
  }));

  int64_t chunk = tiles.count > 1 ? num_blocks : unpack ? kBlocksToUnpack : kBlocksOfScales;
  chunk = std::min(chunk, num_blocks);
  int panels = kernels_.panels;
  int width = panels * kPanelRows;
  int64_t scales_a_panel = format.unpacked_scales * kPanelRows;
  struct Parts {
    uint8_t* codes;  // [block][panel][512]
    float* scales;   // [block][panel][scales_a_panel]
    float* sums;     // [token][width]
  };
  auto lay_out = [&](ScratchLayout* layout) {
    return Parts{layout->Take<uint8_t>(unpack ? chunk * panels * kUnpackedBlockBytes : 0),
                 layout->Take<float>(chunk * panels * scales_a_panel),
                 layout->Take<float>(kernels_.quantized_tokens * width)};
  };
  ScratchLayout measure;
  lay_out(&measure);
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * measure.used()));

  // The blocks from `begin` on of `panels` panels, unpacked.
  auto unpack_blocks = [&](int64_t first_panel, int64_t begin, int64_t count, const Parts& parts) {
    for (int p = 0; p < panels; ++p) {
      kernels_.unpack_scales(
          format, w.scales(first_panel + p) + begin / format.blocks_per_group * format.scale_step,
          count, parts.scales + p * scales_a_panel, panels * scales_a_panel);
      if (!unpack) continue;
      kernels_.unpack_codes(format, w.codes(first_panel + p) + begin * format.code_step, count,
                            parts.codes + p * kUnpackedBlockBytes, panels * kUnpackedBlockBytes);
    }
  };

  // With several tiles a pair's codes are asked for while the pair before is multiplied, so many
  // bytes for each block of each tile.
  constexpr int64_t kLine = 64;
  const int64_t code_bytes = w.pair_code_bytes();
  const int64_t spread_bytes = (code_bytes / (tiles.count * num_blocks) / kLine + 1) * kLine;
  auto prefetch = [&](int64_t first_panel, int64_t next_panel, int64_t tile, int64_t block) {
    if (tiles.count == 1) {
      return unpack ? nullptr : w.codes(first_panel) + block * format.code_step + kPrefetchDistance;
    }
    const int64_t at = (tile * num_blocks + block) * spread_bytes;
    return next_panel < 0 || at >= code_bytes ? nullptr : w.codes(next_panel) + at;
  };
  const int prefetch_bytes =
      static_cast<int>(tiles.count == 1 ? panels * format.code_bytes : spread_bytes);

  // `panels` panels times all tokens. next_panel begins the pair whose turn comes next, or is -1.
  auto multiply = [&](int64_t first_panel, int64_t next_panel, const Parts& parts) {
    if (next_panel >= 0) Prefetch(w.scales(next_panel), static_cast<int>(w.pair_scale_bytes()));
    // Results go straight to `out` where the kernel has no more to do about them.
    const int64_t column = first_panel * kPanelRows;
    const bool added = args.result == ProductResult::kIsAdded;
    const bool direct = args.bias.empty() && w.row_scales().empty() && column + width <= out.cols &&
                        (!added || chunk == num_blocks);
    for (int64_t tile = 0; tile < tiles.count; ++tile) {
      int tokens = tiles.size(tile);
      // The results go to as many pages as there are tokens: have them at hand by then.
      for (int t = 0; t < tokens; ++t) {
        const float* to = out.row<float>(tiles.begin(tile) + t) + column;
        for (int i = 0; i < width; i += 16) __builtin_prefetch(to + i, 1);
      }
      for (int64_t begin = 0; begin < num_blocks; begin += chunk) {
        int64_t count = std::min(chunk, num_blocks - begin);
        if (tile == 0) unpack_blocks(first_panel, begin, count, parts);
        kernels_.quantized_product(
            {.format = &format,
             .codes = unpack ? parts.codes : w.codes(first_panel) + begin * format.code_step,
             .codes_step = unpack ? panels * kUnpackedBlockBytes : format.code_step,
             .packed = packed,
             .prefetch = prefetch(first_panel, next_panel, tile, begin),
             .prefetch_bytes = prefetch_bytes,
             .prefetch_step = tiles.count == 1 ? format.code_step : spread_bytes,
             .scales = parts.scales,
             .x = records + tiles.begin(tile) * num_blocks + begin * tokens,
             .tokens = tokens,
             .num_blocks = count,
             .acc = direct ? out.row<float>(tiles.begin(tile)) + column : parts.sums,
             .acc_stride = direct ? out.row_bytes / int64_t{sizeof(float)} : width,
             .accumulate = begin > 0         ? Accumulate::kContinue
                           : direct && added ? Accumulate::kAdd
                                             : Accumulate::kReplace});
      }
      if (direct) continue;
      StoreTile(parts.sums, width, column, tiles.begin(tile), tokens, w.row_scales(), args.bias,
                args.result, out);
    }
  };

  // An item has as many pairs as make a run of memory worth a thread's turn, and few enough that
  // every thread gets several.
  int64_t pairs_an_item =
      std::clamp<int64_t>(w.num_pairs() / (kItemsAThread * pool_.num_threads()), 1,
                          std::max<int64_t>(1, kBytesAnItem / w.pair_bytes()));
  auto item = [&](int64_t i, int worker) {
    ScratchLayout layout(scratch + worker * measure.used());
    Parts parts = lay_out(&layout);
    const int64_t first_pair = i * pairs_an_item;
    const int64_t end_pair = std::min(first_pair + pairs_an_item, w.num_pairs());
    // Most likely the other threads take the items up to there.
    const int64_t next_item = first_pair + pairs_an_item * pool_.num_threads();
    for (int64_t pair = first_pair; pair < end_pair; ++pair) {
      if (!args.Wants(pair * kPairRows)) continue;
      const int64_t next_pair = pair + 1 < end_pair ? pair + 1 : next_item;
      for (int64_t p = 0; p < kPanelsAPair; p += panels) {
        const int64_t panel = pair * kPanelsAPair + p;
        const bool last = p + panels == kPanelsAPair && next_pair < w.num_pairs();
        if (panel * kPanelRows < w.rows()) {
          multiply(panel, last ? next_pair * kPanelsAPair : -1, parts);
        }
      }
    }
  };
  int64_t items = (w.num_pairs() + pairs_an_item - 1) / pairs_an_item;
  if (static_cast<int64_t>(w.bytes()) * out.rows < kBytesWorthSharing) {
    for (int64_t i = 0; i < items; ++i) item(i, 0);
  } else {
    ForItems(items, item);
  }
  return absl::OkStatus();
}

}  // namespace lm

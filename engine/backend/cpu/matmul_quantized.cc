// Products with block weights, over panels of 16 output columns.
//
// A pair of panels is multiplied with all tokens, tile by tile: the pair's weights stay in the
// nearest caches, the activations stream past. Items, runs of pairs, are what threads share: those
// of all products that are made at once.
#include <algorithm>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/matmul_tiles.h"
#include "engine/backend/cpu/prefetch.h"
#include "engine/base/first_error.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// With one tile of tokens weights are used once: unpack as many blocks of codes, or of scales
// alone, as stay in the L1 cache. Multiples of the eight blocks that share a K type's scales.
constexpr int64_t kBlocksToUnpack = 8;
constexpr int64_t kBlocksOfScales = 32;

// What a thread asks for ahead ends with the run of pairs that it has taken: at the next one's
// beginning it waits for memory, which a megabyte makes a small part. Of what is passed over
// several times as much less.
constexpr int64_t kBytesAnItem = 1024 * 1024;
constexpr int64_t kLeastBytesAnItem = 64 * 1024;
constexpr int64_t kItemsAThread = 4;

// What is read side by side is not asked for where it begins: less than so much of each is no gain.
constexpr int64_t kLeastBytesARun = 32 * 1024;

// How many pairs make an item, at most `most`, where threads that take them in turn are to end
// together; a multiple of `runs` if that can be.
int64_t PairsAnItem(int64_t pairs, int64_t threads, int64_t most, int64_t runs) {
  const int64_t share = (pairs + threads - 1) / threads;
  for (const int64_t step : {runs, int64_t{1}}) {
    for (int64_t size = most / step * step; size > 1; size -= step) {
      const int64_t turns = ((pairs + size - 1) / size + threads - 1) / threads;
      if (turns * size <= share + share / 32) return size;
    }
  }
  return 1;
}

constexpr int64_t kLine = 64;

}  // namespace

// How one product is made.
class CpuBackend::QuantizedPlan {
 public:
  QuantizedPlan(const CpuBackend& backend, const ProductArguments& args);

  // Of the activations, and of a thread that runs an item.
  int64_t record_bytes() const {
    return args_.out.rows * num_blocks_ * static_cast<int64_t>(sizeof(ActivationRecord));
  }
  int64_t scratch_bytes() const {
    ScratchLayout measure;
    LayOut(&measure);
    return measure.used();
  }
  int64_t bytes_read() const { return static_cast<int64_t>(args_.w.bytes()) * args_.out.rows; }
  int64_t num_items() const { return (args_.w.num_pairs() + pairs_an_item_ - 1) / pairs_an_item_; }

  // Quantises the activations, into record_bytes() of memory that stays until the last item is run.
  absl::Status ReadInput(CpuBackend* backend, char* records);
  void RunItem(int64_t item, char* scratch, FirstError* error) const;

 private:
  struct Parts {
    uint8_t* codes;  // [block][panel][block_bytes_]
    float* scales;   // [block][panel][scales_a_panel_]
    float* sums;     // [run][token][width_]
    char* piece;     // for PanelMatrix::Get
    PanelMatrix::Piece pair;
  };
  // Pairs that are multiplied side by side, so many pairs apart.
  struct Runs {
    int count;
    int64_t pairs;
  };
  Parts LayOut(ScratchLayout* layout) const {
    return Parts{layout->Take<uint8_t>(unpack_ ? chunk_ * panels_ * block_bytes_ : 0),
                 layout->Take<float>(panel_scales_ ? 0 : chunk_ * panels_ * scales_a_panel_),
                 layout->Take<float>(runs_ * kernels_.quantized_tokens * width_),
                 layout->Take<char>(args_.w.piece_scratch_bytes()),
                 {}};
  }
  static int64_t MostTokens(const CpuKernels& kernels, const PanelFormat& format, bool packed) {
    if (packed) return kernels.packed_tokens;
    return format.half_scales ? kernels.half_scale_tokens : kernels.quantized_tokens;
  }
  static int SplitTokens(const CpuKernels& kernels, const PanelFormat& format) {
    return kernels.split_tokens[format.low_bits == 8];
  }
  int64_t MostPairsAnItem(int64_t runs) const;
  int ChooseRuns() const;
  void UnpackBlocks(int64_t first_panel, int64_t begin, int64_t count, const Parts& parts) const;
  // Where a panel of the pair that is multiplied begins.
  const uint8_t* CodesOf(int64_t panel, const Parts& parts) const {
    return parts.pair.codes + panel % kPanelsAPair * format_.code_bytes;
  }
  const uint8_t* ScalesOf(int64_t panel, const Parts& parts) const {
    return parts.pair.scales + panel % kPanelsAPair * format_.group_scale_bytes;
  }
  const uint8_t* NextCodes(int64_t first_panel, int64_t next_panel, int64_t tile, int64_t block,
                           const Parts& parts) const;
  void Multiply(int64_t first_panel, int64_t next_panel, const Parts& parts) const;
  void MultiplyTile(int64_t first_panel, int64_t next_panel, int64_t tile, const Parts& parts,
                    Runs runs) const;
  bool AreInMemory(int64_t first_pair, int64_t count) const;

  const ProductArguments args_;
  const CpuKernels& kernels_;
  const PanelFormat& format_;
  const int threads_;
  const int64_t num_blocks_;
  // Eight-bit codes are bytes in memory already. Few tokens take the others as they are: unpacking
  // them four times costs less than a trip to the cache. For many tokens signed bytes may be split.
  const bool split_, packed_, unpack_;
  const int64_t block_bytes_;  // of unpacked codes
  const Tiles tiles_;
  // Likewise few tokens take the scales as they are.
  const bool panel_scales_;
  const int64_t chunk_;
  const int panels_, width_;
  const int64_t scales_a_panel_;
  // Over a pair's blocks. Where there are several, its codes are asked for while the pair before is
  // multiplied, so many bytes for each block of each pass: the first pass would wait for memory,
  // and memory for the others.
  const int64_t passes_, spread_bytes_;
  // How many pairs are read side by side where an item has as many.
  const int runs_;
  // As many as make a run of memory worth a thread's turn, and few enough that every thread gets
  // several items.
  const int64_t pairs_an_item_;
  const ActivationRecord* records_ = nullptr;  // [tile][block][token of the tile]
};

CpuBackend::QuantizedPlan::QuantizedPlan(const CpuBackend& backend, const ProductArguments& args)
    : args_(args),
      kernels_(backend.kernels_),
      format_(args.w.format()),
      threads_(backend.pool_.num_threads()),
      num_blocks_(args.w.cols() / kActivationBlock),
      split_(format_.signed_bytes && SplitTokens(kernels_, format_) > 0 &&
             args.out.rows >= SplitTokens(kernels_, format_)),
      packed_(format_.low_bits < 8 && args.out.rows <= kernels_.most_packed[format_.half_scales]),
      unpack_(split_ || (format_.low_bits < 8 && !packed_)),
      block_bytes_(split_ ? kSplitBlockBytes : kUnpackedBlockBytes),
      tiles_(args.out.rows, MostTokens(kernels_, format_, packed_)),
      panel_scales_(format_.direct_scales && !unpack_ &&
                    tiles_.size(tiles_.count - 1) <= kernels_.packed_tokens),
      chunk_(std::min(num_blocks_, tiles_.count > 1 || panel_scales_ ? num_blocks_
                                   : unpack_                         ? kBlocksToUnpack
                                                                     : kBlocksOfScales)),
      panels_(tiles_.size(tiles_.count - 1) <= kernels_.pair_tokens ? kPanelsAPair
                                                                    : kernels_.panels),
      width_(panels_ * kPanelRows),
      scales_a_panel_(format_.unpacked_scales * kPanelRows),
      passes_(tiles_.count * (kPanelsAPair / panels_)),
      spread_bytes_((args.w.pair_code_bytes() / (passes_ * num_blocks_) / kLine + 1) * kLine),
      runs_(ChooseRuns()),
      pairs_an_item_(PairsAnItem(args.w.num_pairs(), threads_, MostPairsAnItem(runs_), runs_)) {}

// The most pairs an item of pairs that are multiplied so many side by side.
int64_t CpuBackend::QuantizedPlan::MostPairsAnItem(int64_t runs) const {
  const int64_t bytes = std::max(kBytesAnItem / passes_, kLeastBytesAnItem);
  return std::min(args_.w.num_pairs() / (kItemsAThread * threads_),
                  std::max(runs, bytes / args_.w.pair_bytes()));
}

int CpuBackend::QuantizedPlan::ChooseRuns() const {
  if (!panel_scales_ || passes_ > 1) return 1;
  const int runs = kernels_.QuantizedRuns(format_, tiles_.size(0));
  return MostPairsAnItem(runs) / runs * args_.w.pair_code_bytes() < kLeastBytesARun ? 1 : runs;
}

absl::Status CpuBackend::QuantizedPlan::ReadInput(CpuBackend* backend, char* memory) {
  auto* records = reinterpret_cast<ActivationRecord*>(memory);
  records_ = records;
  return backend->ForInputRows(
      args_.input, Tiles(args_.out.rows, 1), [&](int64_t t, const float* values) {
        const int64_t tile = tiles_.of(t), first = tiles_.begin(tile);
        kernels_.quantize_activations(format_, values, num_blocks_,
                                      records + first * num_blocks_ + (t - first),
                                      tiles_.size(tile));
      });
}

// The blocks from `begin` on of `panels_` panels, unpacked.
void CpuBackend::QuantizedPlan::UnpackBlocks(int64_t first_panel, int64_t begin, int64_t count,
                                             const Parts& parts) const {
  if (panel_scales_) return;
  for (int p = 0; p < panels_; ++p) {
    kernels_.unpack_scales(
        format_,
        ScalesOf(first_panel + p, parts) + begin / format_.blocks_per_group * format_.scale_step,
        count, parts.scales + p * scales_a_panel_, panels_ * scales_a_panel_);
    if (!unpack_) continue;
    (split_ ? kernels_.split_codes : kernels_.unpack_codes)(
        format_, CodesOf(first_panel + p, parts) + begin * format_.code_step, count,
        parts.codes + p * block_bytes_, panels_ * block_bytes_);
  }
}

// What to prefetch from a block of a tile on, or null.
const uint8_t* CpuBackend::QuantizedPlan::NextCodes(int64_t first_panel, int64_t next_panel,
                                                    int64_t tile, int64_t block,
                                                    const Parts& parts) const {
  if (passes_ == 1) {
    if (unpack_) return nullptr;
    return CodesOf(first_panel, parts) + block * format_.code_step + kPrefetchDistance;
  }
  const int64_t pass = first_panel % kPanelsAPair * tiles_.count + tile;
  const int64_t at = (pass * num_blocks_ + block) * spread_bytes_;
  if (next_panel < 0 || at >= args_.w.pair_code_bytes()) return nullptr;
  return args_.w.codes(next_panel) + at;
}

// `panels_` panels times all tokens. next_panel begins the pair whose turn comes next, or is -1.
void CpuBackend::QuantizedPlan::Multiply(int64_t first_panel, int64_t next_panel,
                                         const Parts& parts) const {
  if (next_panel >= 0 && first_panel % kPanelsAPair == 0 && !(panel_scales_ && passes_ == 1)) {
    Prefetch(args_.w.scales(next_panel), static_cast<int>(args_.w.pair_scale_bytes()));
  }
  for (int64_t tile = 0; tile < tiles_.count; ++tile) {
    MultiplyTile(first_panel, next_panel, tile, parts, {.count = 1, .pairs = 0});
  }
}

void CpuBackend::QuantizedPlan::MultiplyTile(int64_t first_panel, int64_t next_panel, int64_t tile,
                                             const Parts& parts, Runs runs) const {
  const PanelMatrix& w = args_.w;
  const Tensor out = args_.out;
  // Results go straight to `out` where the kernel has no more to do about them.
  const int64_t column = first_panel * kPanelRows;
  const bool added = args_.result == ProductResult::kIsAdded;
  const int64_t columns_a_run = runs.pairs * kPairRows;
  const int64_t last_column = column + (runs.count - 1) * columns_a_run;
  const bool direct = args_.bias.empty() && w.row_scales().empty() &&
                      last_column + width_ <= out.cols && (!added || chunk_ == num_blocks_);
  const int tokens = tiles_.size(tile);
  // The results go to as many pages as there are tokens: have them at hand by then.
  for (int t = 0; t < tokens; ++t) {
    const float* to = out.row<float>(tiles_.begin(tile) + t) + column;
    for (int i = 0; i < width_; i += 16) __builtin_prefetch(to + i, 1);
  }
  for (int64_t begin = 0; begin < num_blocks_; begin += chunk_) {
    const int64_t count = std::min(chunk_, num_blocks_ - begin);
    if (tile == 0) UnpackBlocks(first_panel, begin, count, parts);
    (split_ ? kernels_.split_product : kernels_.quantized_product)(
        {.format = &format_,
         .panels = panels_,
         .codes = unpack_ ? parts.codes : CodesOf(first_panel, parts) + begin * format_.code_step,
         .codes_step = unpack_ ? panels_ * block_bytes_ : format_.code_step,
         .packed = packed_,
         .prefetch = NextCodes(first_panel, next_panel, tile, begin, parts),
         .prefetch_bytes =
             static_cast<int>(passes_ == 1 ? kPanelsAPair * format_.code_bytes : spread_bytes_),
         .prefetch_step = passes_ == 1 ? format_.code_step : spread_bytes_,
         .scales =
             panel_scales_ ? static_cast<const void*>(ScalesOf(first_panel, parts)) : parts.scales,
         .panel_scales = panel_scales_,
         .scales_ahead = passes_ == 1,
         .runs = runs.count,
         .codes_run = runs.pairs * w.pair_code_bytes(),
         .scales_run = runs.pairs * w.pair_scale_bytes(),
         .acc_run = direct ? columns_a_run : tokens * width_,
         .x = records_ + tiles_.begin(tile) * num_blocks_ + begin * tokens,
         .tokens = tokens,
         .num_blocks = count,
         .acc = direct ? out.row<float>(tiles_.begin(tile)) + column : parts.sums,
         .acc_stride = direct ? out.row_bytes / int64_t{sizeof(float)} : width_,
         .accumulate = begin > 0         ? Accumulate::kContinue
                       : direct && added ? Accumulate::kAdd
                                         : Accumulate::kReplace});
  }
  if (direct) return;
  for (int run = 0; run < runs.count; ++run) {
    StoreTile(parts.sums + run * tokens * width_, width_, column + run * columns_a_run,
              tiles_.begin(tile), tokens, w.row_scales(), args_.bias, args_.result, out);
  }
}

// Whether so many pairs, all of them wanted, are.
bool CpuBackend::QuantizedPlan::AreInMemory(int64_t first_pair, int64_t count) const {
  if (count == 0 || !args_.w.has(first_pair + count - 1)) return false;
  for (int64_t pair = first_pair; pair < first_pair + count; ++pair) {
    if (!args_.Wants(pair * kPairRows)) return false;
  }
  return true;
}

void CpuBackend::QuantizedPlan::RunItem(int64_t item, char* scratch, FirstError* error) const {
  const PanelMatrix& w = args_.w;
  ScratchLayout layout(scratch);
  Parts parts = LayOut(&layout);
  const int64_t first_pair = item * pairs_an_item_;
  const int64_t end_pair = std::min(first_pair + pairs_an_item_, w.num_pairs());
  // Most likely the other threads take the items up to there.
  const int64_t next_item = first_pair + pairs_an_item_ * threads_;
  int64_t pair = first_pair;
  const Runs runs = {.count = runs_, .pairs = (end_pair - first_pair) / runs_};
  if (runs_ > 1 && AreInMemory(first_pair, runs.count * runs.pairs)) {
    for (; pair < first_pair + runs.pairs; ++pair) {
      const int64_t panel = pair * kPanelsAPair;
      parts.pair = {w.codes(panel), w.scales(panel)};
      MultiplyTile(panel, -1, 0, parts, runs);
    }
    pair = first_pair + runs.count * runs.pairs;
  }
  for (; pair < end_pair; ++pair) {
    if (!args_.Wants(pair * kPairRows)) continue;
    const absl::StatusOr<PanelMatrix::Piece> there = w.Get(pair, parts.piece);
    if (!there.ok()) return error->Add(pair, there.status());
    parts.pair = *there;
    const int64_t next_pair = pair + 1 < end_pair ? pair + 1 : next_item;
    for (int64_t p = 0; p < kPanelsAPair; p += panels_) {
      const int64_t panel = pair * kPanelsAPair + p;
      if (panel * kPanelRows < w.rows()) {
        Multiply(panel, w.has(next_pair) ? next_pair * kPanelsAPair : -1, parts);
      }
    }
  }
}

absl::Status CpuBackend::MultiplyQuantized(absl::Span<const ProductArguments> products) {
  std::vector<QuantizedPlan> plans;
  plans.reserve(products.size());
  std::vector<int64_t> first_items;  // of each plan
  int64_t record_bytes = 0, scratch_bytes = 0, bytes_read = 0, items = 0;
  for (const ProductArguments& args : products) {
    const QuantizedPlan& plan = plans.emplace_back(*this, args);
    first_items.push_back(items);
    items += plan.num_items();
    record_bytes += plan.record_bytes();
    scratch_bytes = std::max(scratch_bytes, plan.scratch_bytes());
    bytes_read += plan.bytes_read();
  }
  ASSIGN_OR_RETURN(char* records, inputs_.Get(record_bytes));
  for (QuantizedPlan& plan : plans) {
    RETURN_IF_ERROR(plan.ReadInput(this, records));
    records += plan.record_bytes();
  }
  ASSIGN_OR_RETURN(char* scratch, workers_.Get(pool_.num_threads() * scratch_bytes));
  FirstError error;
  auto run = [&](int64_t item, int worker) {
    const size_t plan =
        std::upper_bound(first_items.begin(), first_items.end(), item) - first_items.begin() - 1;
    plans[plan].RunItem(item - first_items[plan], scratch + worker * scratch_bytes, &error);
  };
  if (bytes_read < kBytesWorthSharing) {
    for (int64_t item = 0; item < items; ++item) run(item, 0);
  } else {
    ForItems(items, run);
  }
  return error.status();
}

}  // namespace lm

// oneDNN's products beside the CPU backend's, by shape and instruction set: where the library would
// win, whether or not the contract of MatMul (backend.h) lets us use what it computes.
//
//   onednn_bench [isa=avx2|avx512_core_vnni|avx512_core_bf16|avx512_core_amx] [ours=NAME]
//                [threads=N] [only=F32,Q8_0,F16,attention] [tokens=1,8,...] [shapes=PART]
//                [window=SECONDS] [clock=wall|cpu] [format=lines|markdown]
//
// isa= is the most that oneDNN may use (nothing: all there is), ours= what we use; by default AVX2
// beside avx2, else the best. In turns, in the same process, the best of the runs in `window`, and
// of 5 at least. Weights go round through more copies than any cache holds. With more than one
// thread the machine must have nothing else to do: the threads of OpenMP wait for one another, some
// milliseconds where one has lost its processor. clock=cpu is as in kernel_bench and counts that
// waiting; OMP_WAIT_POLICY=passive makes it sleep.
//
//   F32    f32 x f32, packed weights. Beside our F32, which from 128 tokens on is oneDNN itself, in
//          pieces of a fixed size.
//   Q8_0   u8 x s8 -> s32 over all of K, packed weights: less than our product, which multiplies
//          by a scale each 32 values of K and quantises its activations, so an upper bound.
//   Q8_0 by blocks   the s32 products of each 32 values of K, which scaled and added in order would
//          give our bits. The products alone, a batched matmul in pieces whose sums fit the caches.
//   F16    bf16 x bf16 -> f32, packed weights, activations that are bf16 already; where oneDNN has
//          it in the processor's instructions. Beside our F16, whose sums and activations are f32.
//   attention   f32 (rows x 64) x (64 x 256), "scores", and (rows x 256) x (256 x 64), "values",
//          of 8 KV heads, plain keys and values in the caches. Ours is attention as a whole at as
//          many rows a KV head over 1024 positions, with softmax and F16 keys and values; its time
//          is that of as many operations at its rate.
//
// A line: a product, the time and speed of each, who is more than 10% faster, and what oneDNN calls
// its implementation. format=markdown prints tables too, and the lines to stderr; there a cell is
// oneDNN's Gop/s : ours, the greater in bold where it is more than 10% faster.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/backend/registry.h"
#include "tests/benchmarks/comparison.h"
#include "tests/benchmarks/kernel_work.h"

namespace lm {
namespace {

using dnnl::memory;
using Type = memory::data_type;

struct OneDnnIsa {
  const char* name;
  dnnl_cpu_isa_t isa;
};
constexpr OneDnnIsa kOneDnnIsas[] = {
    {"avx2", dnnl_cpu_isa_avx2},
    {"avx512_core_vnni", dnnl_cpu_isa_avx512_core_vnni},
    {"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16},
    {"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx},
};

struct Options {
  BackendOptions backend;
  Clock clock;
  dnnl_cpu_isa_t isa = dnnl_cpu_isa_all;
  std::vector<std::string> only = {"F32", "Q8_0", "F16", "attention"};
  std::vector<int64_t> tokens = {1, 8, 32, 128, 512};
  std::string shapes;  // those whose names contain it
  double window = 0.1;
  bool markdown = false;

  bool Wants(absl::string_view part) const {
    return std::find(only.begin(), only.end(), part) != only.end();
  }
};

// False where an argument says nothing.
bool ParseOptions(int argc, char** argv, Options* options) {
  options->backend.threads = DefaultThreads();
  bool ours_given = false;
  auto set_ours = [&](absl::string_view name) {
    for (Isa isa : AvailableIsas()) {
      if (IsaName(isa) != name) continue;
      options->backend.isa = isa;
      return true;
    }
    return false;
  };
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    bool good = true;
    if (absl::ConsumePrefix(&argument, "threads=")) {
      good = absl::SimpleAtoi(argument, &options->backend.threads);
    } else if (absl::ConsumePrefix(&argument, "isa=")) {
      good = false;
      for (const OneDnnIsa& isa : kOneDnnIsas) {
        if (isa.name != argument) continue;
        options->isa = isa.isa;
        good = true;
      }
    } else if (absl::ConsumePrefix(&argument, "ours=")) {
      good = ours_given = set_ours(argument);
    } else if (absl::ConsumePrefix(&argument, "only=")) {
      options->only = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "tokens=")) {
      options->tokens.clear();
      for (absl::string_view t : absl::StrSplit(argument, ',')) {
        options->tokens.push_back(0);
        good = good && absl::SimpleAtoi(t, &options->tokens.back());
      }
    } else if (absl::ConsumePrefix(&argument, "shapes=")) {
      options->shapes = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "window=")) {
      good = absl::SimpleAtod(argument, &options->window);
    } else if (absl::ConsumePrefix(&argument, "clock=")) {
      options->clock.cpu = argument == "cpu";
      good = options->clock.cpu || argument == "wall";
    } else if (absl::ConsumePrefix(&argument, "format=")) {
      options->markdown = argument == "markdown";
      good = options->markdown || argument == "lines";
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr, "%s?\n", argv[i]);
      return false;
    }
  }
  if (options->isa == dnnl_cpu_isa_avx2 && !ours_given) set_ours("avx2");
  options->clock.threads = options->backend.threads;
  return true;
}

// (batch, m, k) x (batch, k, n) of types x, w -> out.
struct MatMulSize {
  int64_t batch, m, k, n;
};
struct MatMulTypes {
  Type x, w, out;
};

memory::desc Plain(const MatMulSize& size, int64_t rows, int64_t columns, Type type) {
  if (size.batch == 1) return {{rows, columns}, type, memory::format_tag::ab};
  return {{size.batch, rows, columns}, type, memory::format_tag::abc};
}

// Makes oneDNN's products of one type and times them.
class OneDnn {
 public:
  explicit OneDnn(const Options& options)
      : options_(options), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  // Multiplies x (tokens, k) by cold weights (n, k) and sets the fields of `result` that are
  // oneDNN's. With by_blocks, the products of each 32 values of K.
  void TimeWeights(const MatMulTypes& types, const WeightShape& shape, int64_t tokens,
                   bool by_blocks, Comparison* result);
  // Multiplies x (rows, k) by (k, n), `heads` times, plain and in the caches.
  void TimePlain(const MatMulSize& size, Comparison* result);

 private:
  using Arguments = std::unordered_map<int, memory>;

  // The primitive for weights packed as it likes, or plain ones; nullopt where there is only the
  // reference, which is for checking and would take minutes.
  std::optional<dnnl::matmul::primitive_desc> Find(const MatMulTypes& types, const MatMulSize& size,
                                                   bool packed, Comparison* result);
  memory Random(const memory::desc& desc);
  // Makes packed_: the pieces of one product's weights, then those of the next copy. Kept while
  // they are asked for in the same form.
  void PackWeights(const memory::desc& packed, Type type, const MatMulSize& piece, int64_t pieces);

  const Options& options_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  memory::desc packed_desc_;
  std::vector<memory> packed_;
};

std::optional<dnnl::matmul::primitive_desc> OneDnn::Find(const MatMulTypes& types,
                                                         const MatMulSize& size, bool packed,
                                                         Comparison* result) {
  memory::desc w = Plain(size, size.k, size.n, types.w);
  if (packed) w = memory::desc(w.dims(), types.w, memory::format_tag::any);
  dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(Plain(size, size.m, size.k, types.x), w,
                                                       Plain(size, size.m, size.n, types.out)),
                                    engine_, /*allow_empty=*/true);
  result->theirs = 0;
  result->implementation = desc ? desc.impl_info_str() : "none";
  if (!desc || absl::StrContains(result->implementation, "ref")) return std::nullopt;
  return desc;
}

memory OneDnn::Random(const memory::desc& desc) {
  memory result(desc, engine_);
  DType dtype = desc.data_type() == Type::f32    ? DType::kF32
                : desc.data_type() == Type::bf16 ? DType::kBF16
                                                 : DType::kI8;
  Buffer values = RandomBlocks(dtype, 1, desc.get_size() / RowBytes(dtype, 1));
  std::memcpy(result.get_data_handle(), values.data(), values.bytes());
  return result;
}

void OneDnn::PackWeights(const memory::desc& packed, Type type, const MatMulSize& piece,
                         int64_t pieces) {
  size_t count = pieces * ColdCopies(packed.get_size() * pieces);
  if (packed == packed_desc_ && packed_.size() == count) return;
  packed_.clear();
  packed_desc_ = packed;
  memory plain = Random(Plain(piece, piece.k, piece.n, type));
  for (size_t i = 0; i < count; ++i) {
    packed_.emplace_back(packed, engine_);
    if (i == 0) {
      dnnl::reorder(plain, packed_[0]).execute(stream_, plain, packed_[0]);
      stream_.wait();
    } else {
      std::memcpy(packed_[i].get_data_handle(), packed_[0].get_data_handle(), packed.get_size());
    }
  }
}

void OneDnn::TimeWeights(const MatMulTypes& types, const WeightShape& shape, int64_t tokens,
                         bool by_blocks, Comparison* result) {
  MatMulSize piece = {1, tokens, shape.k, shape.n};
  if (by_blocks) {
    constexpr int64_t kBlock = 32, kMostTokens = 128, kMostBlocks = 64, kColumns = 64;
    const int64_t most_bytes = (int64_t{1} << 20) * options_.backend.threads;
    piece = {std::min(shape.k / kBlock, kMostBlocks), std::min(tokens, kMostTokens), kBlock,
             kColumns};
    while (tokens % piece.m != 0) --piece.m;
    for (int64_t n = kColumns; n <= shape.n; n += kColumns) {
      if (shape.n % n == 0 && piece.batch * piece.m * n * 4 <= most_bytes) piece.n = n;
    }
  }
  auto desc = Find(types, piece, /*packed=*/true, result);
  if (!desc) return;
  const int64_t k_pieces = shape.k / (piece.batch * piece.k), n_pieces = shape.n / piece.n;
  const int64_t token_pieces = tokens / piece.m;
  PackWeights(desc->weights_desc(), types.w, piece, k_pieces * n_pieces);

  dnnl::matmul primitive(*desc);
  memory out(desc->dst_desc(), engine_);
  std::vector<memory> x;
  for (int64_t i = 0; i < token_pieces * k_pieces; ++i) x.push_back(Random(desc->src_desc()));
  // All the calls of one product, then those with the next copy.
  std::vector<Arguments> calls;
  for (size_t w = 0; w < packed_.size(); ++w) {
    for (int64_t t = 0; t < token_pieces; ++t) {
      calls.push_back({{DNNL_ARG_SRC, x[w % k_pieces * token_pieces + t]},
                       {DNNL_ARG_WEIGHTS, packed_[w]},
                       {DNNL_ARG_DST, out}});
    }
  }
  const size_t calls_of_one = k_pieces * n_pieces * token_pieces;
  const size_t copies = calls.size() / calls_of_one;
  const int64_t batch = ProductsAtATime(shape, tokens, copies);
  result->theirs = options_.clock.BestSeconds(
                       [&](int run) {
                         for (int64_t i = 0; i < batch; ++i) {
                           size_t first = (run * batch + i) % copies * calls_of_one;
                           for (size_t call = first; call < first + calls_of_one; ++call) {
                             primitive.execute(stream_, calls[call]);
                           }
                         }
                         stream_.wait();
                       },
                       options_.window) /
                   batch;
}

void OneDnn::TimePlain(const MatMulSize& size, Comparison* result) {
  auto desc = Find({Type::f32, Type::f32, Type::f32}, size, /*packed=*/false, result);
  if (!desc) return;
  dnnl::matmul primitive(*desc);
  Arguments call = {{DNNL_ARG_SRC, Random(desc->src_desc())},
                    {DNNL_ARG_WEIGHTS, Random(desc->weights_desc())},
                    {DNNL_ARG_DST, memory(desc->dst_desc(), engine_)}};
  result->theirs = options_.clock.BestSeconds(
      [&](int) {
        primitive.execute(stream_, call);
        stream_.wait();
      },
      options_.window);
}

// Weights of one type of ours, and oneDNN's forms of their products.
struct Form {
  const char* name;
  MatMulTypes types;
  bool by_blocks = false;
};
struct WeightProducts {
  DType dtype;
  std::vector<Form> forms;
};

std::vector<Comparison> BenchWeights(Backend* backend, const Options& options,
                                     const WeightProducts& products) {
  std::vector<std::vector<Comparison>> by_form(products.forms.size());
  for (const WeightShape& shape : kWeightShapes) {
    if (!absl::StrContains(shape.name, options.shapes)) continue;
    if (absl::StrContains(shape.name, "head")) continue;  // it is as "up" is, and large
    Buffer blocks = RandomBlocks(products.dtype, shape.n, shape.k);
    auto weights = LoadColdCopies(backend, products.dtype, shape, blocks);
    std::vector<OneDnn> onednn(products.forms.size(), OneDnn(options));
    for (int64_t tokens : options.tokens) {
      double ours = MatMulSeconds(backend, weights, shape, tokens, options.clock, options.window);
      for (size_t i = 0; i < onednn.size(); ++i) {
        const Form& form = products.forms[i];
        Comparison result = {form.name, shape.name, tokens, 2.0 * shape.n * shape.k * tokens,
                             0,         ours};
        onednn[i].TimeWeights(form.types, shape, tokens, form.by_blocks, &result);
        PrintLine(result, options.markdown ? stderr : stdout);
        by_form[i].push_back(std::move(result));
      }
    }
  }
  std::vector<Comparison> all;
  for (auto& results : by_form) std::move(results.begin(), results.end(), std::back_inserter(all));
  return all;
}

std::vector<Comparison> BenchAttention(Backend* backend, const Options& options) {
  constexpr int kHeads = 8, kGroup = 4, kDim = 64, kChunk = 256;
  std::vector<Comparison> all;
  for (const char* product : {"scores", "values"}) {
    for (int rows : {24, 128, 512}) {
      MatMulSize size = {kHeads, rows, kDim, kChunk};
      if (product == std::string("values")) std::swap(size.k, size.n);
      double ops = 2.0 * kHeads * rows * kDim * kChunk;
      AttentionSpeed ours =
          MeasureAttention(backend, {16, kHeads * kGroup, kHeads, 1, 1024, rows / kGroup},
                           options.clock, options.window);
      Comparison result = {"attention", product, rows, ops, 0, ops / ours.flops_per_second};
      OneDnn(options).TimePlain(size, &result);
      PrintLine(result, options.markdown ? stderr : stdout);
      all.push_back(std::move(result));
    }
  }
  return all;
}

// Throws where oneDNN does.
int Main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, &options)) return 2;
  if (dnnl_set_max_cpu_isa(options.isa) != dnnl_success) {
    std::fprintf(stderr, "oneDNN does not take that isa\n");
    return 1;
  }
  omp_set_num_threads(options.backend.threads);
  auto backend = CreateBackend(options.backend);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return 1;
  }
  const dnnl_cpu_isa_t effective = dnnl_get_effective_cpu_isa();
  const char* effective_name = "another instruction set";
  for (const OneDnnIsa& isa : kOneDnnIsas) {
    if (isa.isa == effective) effective_name = isa.name;
  }
  MachineCeilings ceilings = MeasureCeilings(options.backend.threads, options.backend.isa);
  const dnnl_version_t* version = dnnl_version();
  std::printf(
      "oneDNN %d.%d.%d with %s beside ours with %s, %d threads: memory %.1f GB/s, fp32 %.0f "
      "GFLOP/s, int8 %.0f Gop/s\n",
      version->major, version->minor, version->patch, effective_name,
      IsaName(options.backend.isa).data(), options.backend.threads,
      ceilings.read_bytes_per_second / 1e9, ceilings.fp32_flops_per_second / 1e9,
      ceilings.int8_ops_per_second / 1e9);

  std::vector<WeightProducts> weights = {
      {DType::kF32, {{"F32", {Type::f32, Type::f32, Type::f32}}}},
      {DType::kQ8_0,
       {{"Q8_0", {Type::u8, Type::s8, Type::s32}},
        {"Q8_0 by blocks", {Type::u8, Type::s8, Type::s32}, true}}}};
  if ((effective & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16) {
    weights.push_back({DType::kF16, {{"F16", {Type::bf16, Type::bf16, Type::f32}}}});
  }
  std::vector<Comparison> all;
  for (const WeightProducts& products : weights) {
    if (!options.Wants(Traits(products.dtype).name)) continue;
    std::vector<Comparison> results = BenchWeights(backend->get(), options, products);
    std::move(results.begin(), results.end(), std::back_inserter(all));
  }
  if (options.markdown) PrintTable(all);
  if (options.Wants("attention")) {
    all = BenchAttention(backend->get(), options);
    if (options.markdown) PrintTable(all);
  }
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  try {
    return lm::Main(argc, argv);
  } catch (const dnnl::error& error) {
    std::fprintf(stderr, "oneDNN: %s\n", error.what());
    return 1;
  }
}

// MatMul and Attention of the CPU backend as shares of what the machine can do, measured in the
// same run.
//
//   kernel_bench [threads=N] [isa=NAME] [types=Q8_0,F32,...] [tokens=1,8,...] [shapes=PART]
//                [device=cpu] [clock=wall|cpu]
//
// clock=cpu counts the process's CPU time, shared out over its threads: what an op costs where
// other programs keep the machine busy. Weights go round through more copies than any cache holds,
// as the layers of a model do. A line shows the time of a product, the share of the memory ceiling
// at which its weights were read, and the share of the arithmetic ceiling: int8 for blocks, fp32
// for floats.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/backend/registry.h"
#include "engine/base/float16.h"
#include "engine/base/random.h"

namespace lm {
namespace {

struct Shape {
  const char* name;
  int64_t n, k;
};
constexpr Shape kShapes[] = {
    {"135M qkv", 960, 576},    {"135M up", 3072, 576}, {"135M down", 576, 1536},
    {"135M head", 49152, 576}, {"1B qkv", 3072, 2048}, {"1B up", 16384, 2048},
    {"1B down", 2048, 8192},
};
constexpr int64_t kColdBytes = int64_t{384} << 20;

// Random blocks whose scales are ordinary numbers.
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

bool cpu_clock = false;

// Seconds from an unknown beginning.
double Now(int threads) {
  timespec time;
  clock_gettime(cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  double seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  return cpu_clock ? seconds / threads : seconds;
}

struct Options {
  BackendOptions backend;
  std::string shapes;  // those whose names contain it
  std::vector<DType> types;
  std::vector<int64_t> tokens = {1, 8, 32, 128, 512};
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  options.backend.threads = AvailableCpus();
  std::vector<std::string> types = {"Q8_0", "Q4_0", "Q4_K", "Q6_K", "F16", "F32"};
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "threads=")) {
      (void)absl::SimpleAtoi(argument, &options.backend.threads);
    } else if (absl::ConsumePrefix(&argument, "device=")) {
      options.backend.device = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "types=")) {
      types = absl::StrSplit(argument, ',');
    } else if (absl::ConsumePrefix(&argument, "tokens=")) {
      options.tokens.clear();
      for (absl::string_view t : absl::StrSplit(argument, ',')) {
        options.tokens.push_back(0);
        (void)absl::SimpleAtoi(t, &options.tokens.back());
      }
    } else if (absl::ConsumePrefix(&argument, "shapes=")) {
      options.shapes = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "clock=")) {
      cpu_clock = argument == "cpu";
    } else if (absl::ConsumePrefix(&argument, "isa=")) {
      for (Isa isa : AvailableIsas()) {
        if (IsaName(isa) == argument) options.backend.isa = isa;
      }
    }
  }
  for (const std::string& name : types) {
    for (int i = 0; i <= static_cast<int>(DType::kIQ4_XS); ++i) {
      if (Traits(static_cast<DType>(i)).name == name)
        options.types.push_back(static_cast<DType>(i));
    }
  }
  return options;
}

// The best time of body(run) in seconds: what the machine can do when it is not disturbed.
template <typename F>
double BestSeconds(int threads, F body) {
  double best = 1e9;
  double stop = Now(threads) + 0.25;
  for (int run = 0; run < 5 || Now(threads) < stop; ++run) {
    double begin = Now(threads);
    body(run);
    best = std::min(best, Now(threads) - begin);
  }
  return best;
}

void BenchMatMul(Backend* backend, const Options& options, const MachineCeilings& ceilings,
                 DType dtype, const Shape& shape) {
  Buffer blocks = RandomBlocks(dtype, shape.n, shape.k);
  size_t copies = std::clamp<size_t>(kColdBytes / blocks.bytes(), 1, 64);
  std::vector<std::unique_ptr<WeightMatrix>> weights;
  double load_begin = Now(options.backend.threads);
  for (size_t i = 0; i < copies; ++i) {
    Buffer copy = Buffer::AllocateHost(blocks.bytes()).value();
    std::memcpy(copy.data(), blocks.data(), blocks.bytes());
    weights.push_back(backend->LoadMatrix(dtype, shape.n, shape.k, std::move(copy)).value());
  }
  double load_seconds = Now(options.backend.threads) - load_begin;
  std::printf("%-6s %-9s load   %10.1f us  %6.1f GB/s\n", Traits(dtype).name.data(), shape.name,
              load_seconds / copies * 1e6, blocks.bytes() * copies / load_seconds / 1e9);
  int64_t most = *std::max_element(options.tokens.begin(), options.tokens.end());
  Buffer x = backend->Allocate(most * shape.k * 4).value();
  Buffer out = backend->Allocate(most * shape.n * 4).value();
  std::vector<float> values(most * shape.k);
  for (size_t i = 0; i < values.size(); ++i) values[i] = RandomUniform(2, i) - 0.5;
  (void)backend->Upload(values.data(), x.data(), x.bytes());
  for (int64_t tokens : options.tokens) {
    Tensor in(x.data(), DType::kF32, tokens, shape.k);
    Tensor result(out.data(), DType::kF32, tokens, shape.n);
    // Enough products at a time that one is not lost in the clock.
    int64_t batch = std::clamp<int64_t>(20'000'000 / (shape.n * shape.k * tokens), 1, copies);
    double seconds =
        BestSeconds(options.backend.threads,
                    [&](int run) {
                      for (int64_t i = 0; i < batch; ++i) {
                        (void)backend->MatMul(*weights[(run * batch + i) % copies], in, {}, result);
                      }
                      (void)backend->Synchronize();
                    }) /
        batch;
    double bytes = weights[0]->bytes() / seconds;
    double ops = 2.0 * shape.n * shape.k * tokens / seconds;
    double peak =
        Traits(dtype).quantised ? ceilings.int8_ops_per_second : ceilings.fp32_flops_per_second;
    std::printf("%-6s %-9s T=%-4ld %10.1f us  %6.1f GB/s %4.0f%%  %7.1f Gop/s %4.0f%%\n",
                Traits(dtype).name.data(), shape.name, static_cast<long>(tokens), seconds * 1e6,
                bytes / 1e9, 100 * bytes / ceilings.read_bytes_per_second, ops / 1e9,
                100 * ops / peak);
    std::fflush(stdout);
  }
}

// One layer of attention: `sequences` of `context` cached tokens, the last `queries` of each
// asking; the first `shared` tokens are the same for all.
void BenchAttention(Backend* backend, const Options& options, const MachineCeilings& ceilings,
                    const char* name, int32_t heads, int32_t kv_heads, int32_t sequences,
                    int32_t context, int32_t queries, int32_t shared = 0) {
  constexpr int32_t kDim = 64;
  int32_t blocks = (context + kKvBlockTokens - 1) / kKvBlockTokens;
  KvLayer layer = {nullptr, nullptr, DType::kF16, blocks * sequences, kv_heads, kDim};
  Buffer keys = backend->Allocate(layer.num_blocks * layer.block_bytes()).value();
  Buffer values = backend->Allocate(layer.num_blocks * layer.block_bytes()).value();
  layer.keys = keys.data();
  layer.values = values.data();
  int64_t rows = int64_t{sequences} * queries;
  Buffer q = backend->Allocate(rows * heads * kDim * 4).value();
  Buffer out = backend->Allocate(q.bytes()).value();
  std::vector<std::vector<int32_t>> tables(sequences);
  std::vector<SequenceSpan> spans;
  for (int32_t s = 0; s < sequences; ++s) {
    for (int32_t b = 0; b < blocks; ++b) {
      tables[s].push_back(b < shared / kKvBlockTokens ? b : s * blocks + b);
    }
    spans.push_back({s * queries, queries, context - queries, tables[s]});
  }
  Tensor in(q.data(), DType::kF32, rows, heads * kDim);
  Tensor result(out.data(), DType::kF32, rows, heads * kDim);
  double seconds = BestSeconds(options.backend.threads, [&](int) {
    (void)backend->Attention(in, spans, layer, 0.125f, result);
    (void)backend->Synchronize();
  });
  double seen = queries * (context - (queries - 1) / 2.0) * sequences;  // positions, all queries
  double flops = 4.0 * heads * kDim * seen / seconds;
  double bytes = 2.0 * layer.num_blocks * layer.block_bytes() / seconds;
  std::printf("attention %-24s %10.1f us  %6.1f GB/s %4.0f%%  %7.1f GFLOP/s %4.0f%%\n", name,
              seconds * 1e6, bytes / 1e9, 100 * bytes / ceilings.read_bytes_per_second, flops / 1e9,
              100 * flops / ceilings.fp32_flops_per_second);
}

int Main(int argc, char** argv) {
  Options options = ParseOptions(argc, argv);
  auto backend = CreateBackend(options.backend);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return 1;
  }
  MachineCeilings ceilings = MeasureCeilings(options.backend.threads, options.backend.isa);
  std::printf("%s, %d threads: memory %.1f GB/s, fp32 %.0f GFLOP/s, int8 %.0f GOP/s\n",
              IsaName(options.backend.isa).data(), options.backend.threads,
              ceilings.read_bytes_per_second / 1e9, ceilings.fp32_flops_per_second / 1e9,
              ceilings.int8_ops_per_second / 1e9);
  for (DType dtype : options.types) {
    for (const Shape& shape : kShapes) {
      if (std::string(shape.name).find(options.shapes) == std::string::npos) continue;
      if (shape.k % Traits(dtype).block_size != 0) continue;
      BenchMatMul(backend->get(), options, ceilings, dtype, shape);
    }
  }
  BenchAttention(backend->get(), options, ceilings, "135M decode 1 x 1024", 9, 3, 1, 1024, 1);
  BenchAttention(backend->get(), options, ceilings, "135M decode 16 x 512", 9, 3, 16, 512, 1);
  BenchAttention(backend->get(), options, ceilings, "135M decode 32 x 1056", 9, 3, 32, 1056, 1);
  BenchAttention(backend->get(), options, ceilings, "135M the same, 1024 shared", 9, 3, 32, 1056, 1,
                 1024);
  BenchAttention(backend->get(), options, ceilings, "135M prefill 512", 9, 3, 1, 512, 512);
  BenchAttention(backend->get(), options, ceilings, "1B decode 1 x 4096", 32, 8, 1, 4096, 1);
  BenchAttention(backend->get(), options, ceilings, "1B prefill 512 of 2048", 32, 8, 1, 2048, 512);
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) { return lm::Main(argc, argv); }

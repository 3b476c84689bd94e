// MatMul and Attention of the CPU backend as shares of what the machine can do, measured in the
// same run.
//
//   kernel_bench [threads=N] [isa=NAME] [types=Q8_0,F32,...] [tokens=1,8,...] [shapes=PART]
//                [kv=f16|int16|int8|f32] [device=cpu] [clock=wall|cpu]
//
// clock=cpu counts the process's CPU time, shared out over its threads: what an op costs where
// other programs keep the machine busy. Weights go round through more copies than any cache holds,
// as the layers of a model do. A line shows the time of a product, the share of the memory ceiling
// at which its weights were read, and the share of the arithmetic ceiling: int8 for blocks, fp32
// for floats.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/backend/registry.h"
#include "tests/benchmarks/kernel_work.h"

namespace lm {
namespace {

struct Options {
  BackendOptions backend;
  Clock clock;
  std::string shapes;  // those whose names contain it, of attention too
  std::vector<DType> types;
  std::vector<int64_t> tokens = {1, 8, 32, 128, 512};
  DType kv_type = DType::kF16;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  options.backend.threads = DefaultThreads();
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
    } else if (absl::ConsumePrefix(&argument, "kv=")) {
      options.kv_type = argument == "int16"  ? DType::kI16
                        : argument == "int8" ? DType::kI8
                        : argument == "f32"  ? DType::kF32
                                             : DType::kF16;
    } else if (absl::ConsumePrefix(&argument, "clock=")) {
      options.clock.cpu = argument == "cpu";
    } else if (absl::ConsumePrefix(&argument, "isa=")) {
      for (Isa isa : AvailableIsas()) {
        if (IsaName(isa) == argument) options.backend.isa = isa;
      }
    }
  }
  options.clock.threads = options.backend.threads;
  for (const std::string& name : types) {
    for (int i = 0; i < kNumDTypes; ++i) {
      if (Traits(static_cast<DType>(i)).name == name)
        options.types.push_back(static_cast<DType>(i));
    }
  }
  return options;
}

void BenchMatMul(Backend* backend, const Options& options, const MachineCeilings& ceilings,
                 DType dtype, const WeightShape& shape) {
  Buffer blocks = RandomBlocks(dtype, shape.n, shape.k);
  double load_begin = options.clock.Now();
  auto weights = LoadColdCopies(backend, dtype, shape, blocks);
  double load_seconds = (options.clock.Now() - load_begin) / weights.size();
  std::printf("%-6s %-9s load   %10.1f us  %6.1f GB/s\n", Traits(dtype).name, shape.name,
              load_seconds * 1e6, shape.n * RowBytes(dtype, shape.k) / load_seconds / 1e9);
  for (int64_t tokens : options.tokens) {
    double seconds = MatMulSeconds(backend, weights, shape, tokens, options.clock);
    double bytes = weights[0]->bytes() / seconds;
    double ops = 2.0 * shape.n * shape.k * tokens / seconds;
    double peak =
        Traits(dtype).quantised ? ceilings.int8_ops_per_second : ceilings.fp32_flops_per_second;
    std::printf("%-6s %-9s T=%-4ld %10.1f us  %6.1f GB/s %4.0f%%  %7.1f Gop/s %4.0f%%\n",
                Traits(dtype).name, shape.name, static_cast<long>(tokens), seconds * 1e6,
                bytes / 1e9, 100 * bytes / ceilings.read_bytes_per_second, ops / 1e9,
                100 * ops / peak);
    std::fflush(stdout);
  }
}

void BenchAttention(Backend* backend, const Options& options, const MachineCeilings& ceilings,
                    const char* name, AttentionWork work) {
  if (std::string(name).find(options.shapes) == std::string::npos) return;
  work.kv_type = options.kv_type;
  AttentionSpeed speed = MeasureAttention(backend, work, options.clock);
  std::printf("attention %-24s %10.1f us  %6.1f GB/s %4.0f%%  %7.1f GFLOP/s %4.0f%%\n", name,
              speed.seconds * 1e6, speed.bytes_per_second / 1e9,
              100 * speed.bytes_per_second / ceilings.read_bytes_per_second,
              speed.flops_per_second / 1e9,
              100 * speed.flops_per_second / ceilings.fp32_flops_per_second);
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
    for (const WeightShape& shape : kWeightShapes) {
      if (std::string(shape.name).find(options.shapes) == std::string::npos) continue;
      if (shape.k % Traits(dtype).block_size != 0) continue;
      BenchMatMul(backend->get(), options, ceilings, dtype, shape);
    }
  }
  BenchAttention(backend->get(), options, ceilings, "135M decode 1 x 1024", {30, 9, 3, 1, 1024, 1});
  BenchAttention(backend->get(), options, ceilings, "135M decode 1 x 8192", {30, 9, 3, 1, 8192, 1});
  BenchAttention(backend->get(), options, ceilings, "135M decode 16 x 512", {30, 9, 3, 16, 512, 1});
  BenchAttention(backend->get(), options, ceilings, "135M decode 32 x 1056",
                 {30, 9, 3, 32, 1056, 1});
  BenchAttention(backend->get(), options, ceilings, "135M the same, 1024 shared",
                 {30, 9, 3, 32, 1056, 1, 1024});
  BenchAttention(backend->get(), options, ceilings, "135M prefill 512", {30, 9, 3, 1, 512, 512});
  BenchAttention(backend->get(), options, ceilings, "135M prefill 512 of 8192",
                 {30, 9, 3, 1, 8192, 512});
  BenchAttention(backend->get(), options, ceilings, "1B decode 1 x 4096", {16, 32, 8, 1, 4096, 1});
  BenchAttention(backend->get(), options, ceilings, "1B prefill 512 of 2048",
                 {16, 32, 8, 1, 2048, 512});
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) { return lm::Main(argc, argv); }

// Counts what steps of a model ask of a GPU, without one: the kernels' real grids, of which some
// thread blocks are run on the host.
//
//   cuda_counts MODEL.gguf [thread blocks of a launch: 4] [device: cuda:0]
//
// Writes a line for each kernel and grid of each step, columns divided by tabs, the first line
// naming them; and one for the host's calls, as the kernel "host". Steps: decodeN, N rows of 1,024
// tokens each with their own cache; prefillN@P, N tokens from position P on. Of devices that
// compute together, cuda:0+cuda:1, the kernels are those of the first.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "tests/engine/backend/cuda_on_host/access_counts.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm {
namespace {

constexpr int kContext = 1024;

// `rows` sequences, the next `count` tokens of each from `position` on, in blocks of their own.
ModelStep StepOf(const LanguageModel& model, int rows, int count, int position) {
  ModelStep step;
  step.tables.blocks.resize(model.cache().classes.size());
  const int32_t used = BlocksFor(position + count);
  std::vector<int32_t> tokens(count);
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < count; ++i) tokens[i] = (row + i) % 64;
    step.tables.Append(tokens.data(), count, position, model.cache().recurrent() ? row : -1);
    for (std::vector<int32_t>& blocks : step.tables.blocks) {
      for (int32_t b = 0; b < used; ++b) blocks.push_back(row * used + b);
    }
    SamplingRow sample;
    sample.row = (row + 1) * count - 1;
    step.samples.push_back(sample);
  }
  return step;
}

void Print(const std::string& step) {
  for (const on_host::LaunchCounts& c : on_host::TakeCounts()) {
    std::printf("%s\t%s\t%u\t%u\t%u\t%d\t%lld", step.c_str(), c.kernel.c_str(), c.grid.x, c.grid.y,
                c.block.x, c.shared_bytes, static_cast<long long>(c.launches));
    for (const double value : {c.loads.requests,
                               c.loads.sectors,
                               c.loads.bytes,
                               c.stores.requests,
                               c.stores.sectors,
                               c.stores.bytes,
                               c.shared.requests,
                               c.shared.wavefronts,
                               c.shared.least_wavefronts,
                               c.dram_bytes,
                               c.mma_int8,
                               c.mma_16,
                               c.mma_instructions,
                               c.fma,
                               c.shuffles,
                               c.barriers,
                               c.most_burst_bytes,
                               c.most_load_waits,
                               c.most_copy_waits,
                               c.early_launches,
                               c.early_bytes}) {
      std::printf("\t%.10g", value);
    }
    std::printf("\n");
  }
  const on_host::RuntimeCounts host = on_host::TakeRuntimeCounts();
  std::printf("%s\thost\t%lld\t%lld\t%lld\t%lld\t%lld\t%lld\n", step.c_str(),
              static_cast<long long>(host.graph_launches), static_cast<long long>(host.launches),
              static_cast<long long>(host.synchronisations), static_cast<long long>(host.copies),
              static_cast<long long>(host.kernels), static_cast<long long>(host.joins));
}

int Run(const char* path, int64_t most_blocks, const char* device) {
  on_host::Simulation& simulation = on_host::TheSimulation();
  simulation.checks = false;
  simulation.most_blocks = most_blocks;
  auto model = Model::Load(path, {.device = device, .threads = 1, .kv_bytes = int64_t{1} << 31});
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  LanguageModel& language_model = (*model)->language_model();
  struct Kind {
    const char* name;
    int rows, count, position;
  };
  constexpr Kind kKinds[] = {{"decode1", 1, 1, kContext},   {"decode8", 8, 1, kContext},
                             {"decode32", 32, 1, kContext}, {"decode64", 64, 1, kContext},
                             {"prefill512@0", 1, 512, 0},   {"prefill512@7680", 1, 512, 7680}};
  std::printf(
      "step\tkernel\tgrid_x\tgrid_y\tthreads\tshared_bytes\tlaunches\tload_requests\tload_sectors\t"
      "load_bytes\tstore_requests\tstore_sectors\tstore_bytes\tshared_requests\twavefronts\t"
      "least_wavefronts\tdram_bytes\tmma_int8\tmma_16\tmma_instructions\tfma\tshuffles\tbarriers\t"
      "most_burst_bytes\tmost_load_waits\tmost_copy_waits\tearly_launches\tearly_bytes\n");
  for (const Kind& kind : kKinds) {
    // What chooses experts must be computed; experts' groups differ, and tiles of decoding rows.
    simulation.most_blocks_of = {{"Embed", 0},
                                 {"Normalize", 0},
                                 {"MultiplyFloat", 0},
                                 {"MultiplySmallFloat", 0},
                                 {"ChooseExperts", 0},
                                 {"GroupSlots", 0},
                                 {"MultiplyStreamedOfExperts", 16 * most_blocks},
                                 {"MultiplyManyOfExperts", 4 * most_blocks},
                                 {"AttentionTiles", (kind.count == 1 ? 16 : 3) * most_blocks}};
    // The last time everything has its room, and a decoding step its graph (of several devices what
    // they gave each other last belongs to the list, too).
    constexpr int kLast = 3;
    for (int time = kind.count == 1 ? 0 : kLast; time <= kLast; ++time) {
      simulation.counts = time == kLast;
      simulation.most_blocks = time == kLast ? most_blocks : 1;
      on_host::TakeRuntimeCounts();
      const std::atomic<bool> cancel{false};
      StepResults results;
      const absl::Status status = language_model.Run(
          StepOf(language_model, kind.rows, kind.count, kind.position), cancel, &results);
      if (!status.ok()) {
        std::fprintf(stderr, "%s: %s\n", kind.name, status.ToString().c_str());
        return 1;
      }
    }
    simulation.counts = false;
    Print(kind.name);
  }
  return 0;
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "cuda_counts MODEL.gguf [thread blocks of a launch] [device]\n");
    return 2;
  }
  return lm::Run(argv[1], argc > 2 ? std::atoll(argv[2]) : 4, argc > 3 ? argv[3] : "cuda:0");
}

// Writes an adapter (LoRA) of random numbers for a model, and the model with its sum in the
// weights.
//
//   random_adapter MODEL.gguf OUT.gguf [rank=4] [alpha=8] [seed=1] [merged=PATH] [scale=1]
//
// The merged file is of a model with F32 weights.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_split.h"
#include "tests/engine/model/random_adapter.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: random_adapter MODEL.gguf OUT.gguf [rank=] [alpha=] [seed=] [merged=] "
                 "[scale=]\n");
    return 2;
  }
  lm::RandomAdapter::Options options;
  std::string merged;
  float scale = 1;
  for (int i = 3; i < argc; ++i) {
    const std::pair<std::string, std::string> option =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (option.first == "rank") options.rank = std::atoi(option.second.c_str());
    if (option.first == "alpha") options.alpha = std::strtof(option.second.c_str(), nullptr);
    if (option.first == "seed") options.seed = std::strtoull(option.second.c_str(), nullptr, 10);
    if (option.first == "merged") merged = option.second;
    if (option.first == "scale") scale = std::strtof(option.second.c_str(), nullptr);
  }
  const lm::RandomAdapter adapter(argv[1], options);
  adapter.Write(argv[2]);
  if (!merged.empty()) adapter.Merge(argv[1], scale, merged);
  std::printf("%zu tensors\n", adapter.updates().size());
}

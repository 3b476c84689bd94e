// Dumps a model's logits, for comparison with another engine's on the same file.
//
//   lm_logits MODEL.gguf OUT.f32 1,15,27 [device=cpu] [threads=0] [kv_type=auto] [chunk=512]
//   [context=0] [mtp=0]
//             [lora=PATH:SCALE[,PATH:SCALE]]
//
// OUT.f32 gets one row of vocab_size F32 values a token. The tokens are fed in chunks of `chunk`.
// With mtp=1 the rows are of the layer of mtp.h, for each token but the last of a chunk:
// llama.cpp's are those of a context of LLAMA_CONTEXT_TYPE_MTP over the token behind and
// llama_get_embeddings_nextn's row of each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/model/model.h"
#include "tests/parity/lora_option.h"

namespace lm {
namespace {

struct Arguments {
  std::string model;
  std::string out;
  std::vector<int32_t> tokens;
  ModelOptions options;
  int32_t chunk = 512;
  bool mtp = false;
  AdapterSet adapters = {};
};

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(arguments.model, arguments.options));
  LanguageModel& language_model = model->language_model();
  const int32_t count = static_cast<int32_t>(arguments.tokens.size());
  const CacheShape& cache = language_model.cache();
  for (const CacheClass& c : cache.classes) {
    if (BlocksFor(count) > c.num_blocks) {
      return absl::InvalidArgumentError("more tokens than the KV cache holds");
    }
  }
  const std::atomic<bool> cancel{false};
  std::ofstream out(arguments.out, std::ios::binary);
  StepResults results;
  for (int32_t begin = 0; begin < count; begin += arguments.chunk) {
    const int32_t tokens = std::min(arguments.chunk, count - begin);
    ModelStep step;
    step.tables.blocks.resize(cache.classes.size());
    step.tables.Append(arguments.tokens.data() + begin, tokens, begin, cache.recurrent() ? 0 : -1);
    for (std::vector<int32_t>& blocks : step.tables.blocks) {
      blocks.resize(BlocksFor(begin + tokens));
      std::iota(blocks.begin(), blocks.end(), 0);
    }
    AppendAdapted(0, tokens, arguments.adapters, &step.adapted);
    step.logit_rows.resize(tokens);
    std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
    if (arguments.mtp) step.hidden_rows = step.logit_rows;
    ModelStep guess{.tables = step.tables, .logit_rows = step.logit_rows};
    RETURN_IF_ERROR(language_model.Run(std::move(step), cancel, &results));
    if (arguments.mtp) {
      guess.tables.tokens.erase(guess.tables.tokens.begin());
      guess.tables.sequences[0].num_tokens -= 1;
      guess.tables.sequences[0].state = -1;
      guess.logit_rows.pop_back();
      results.hidden.resize(int64_t{tokens - 1} * language_model.hidden_size());
      guess.mtp_hidden = results.hidden;
      RETURN_IF_ERROR(language_model.Run(std::move(guess), cancel, &results));
    }
    out.write(reinterpret_cast<const char*>(results.logits.data()),
              static_cast<std::streamsize>(results.logits.size() * sizeof(float)));
  }
  out.close();
  return out.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + arguments.out);
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: lm_logits MODEL.gguf OUT.f32 id,id,... [device=] [threads=] [kv_type=] "
                 "[chunk=] [context=] [mtp=] [lora=]\n");
    return 2;
  }
  lm::Arguments arguments;
  arguments.model = argv[1];
  arguments.out = argv[2];
  for (absl::string_view id : absl::StrSplit(argv[3], ',')) {
    int32_t token;
    if (!absl::SimpleAtoi(id, &token)) return 2;
    arguments.tokens.push_back(token);
  }
  for (int i = 4; i < argc; ++i) {
    std::pair<std::string, std::string> option = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (option.first == "device") arguments.options.device = option.second;
    if (option.first == "threads") arguments.options.threads = std::atoi(option.second.c_str());
    if (option.first == "kv_type") {
      absl::StatusOr<std::optional<lm::DType>> type = lm::ParseKvType(option.second);
      if (!type.ok()) {
        std::fprintf(stderr, "lm_logits: %s\n", std::string(type.status().message()).c_str());
        return 2;
      }
      arguments.options.kv_type = *type;
    }
    if (option.first == "lora" &&
        !lm::ReadLoraOption(option.second, &arguments.options, &arguments.adapters)) {
      return 2;
    }
    if (option.first == "context") {
      arguments.options.context_length = std::atoi(option.second.c_str());
    }
    if (option.first == "mtp") arguments.mtp = option.second == "1";
    if (option.first == "chunk") arguments.chunk = std::max(1, std::atoi(option.second.c_str()));
  }
  absl::Status status = lm::Run(arguments);
  if (!status.ok()) std::fprintf(stderr, "lm_logits: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

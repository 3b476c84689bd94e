// Dumps what a model makes of texts given as tokens, for comparison with another engine's on the
// same file: one embedding each, or its scores where it is a reranker.
//
//   lm_embeddings MODEL.gguf OUT.f32 "1,15,27;1,3" [device=cpu] [threads=0] [kv_type=auto] [alone=0]
//                 [lora=PATH:SCALE[,PATH:SCALE]]
//
// @PATH instead of the texts reads them from a file. OUT.f32 gets one row of F32 values a text.
// They go to the engine together, or one by one (alone=1).
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"
#include "tests/parity/lora_option.h"

namespace lm {
namespace {

struct Arguments {
  std::string model;
  std::string out;
  std::vector<std::vector<int32_t>> texts;
  ModelOptions options;
  bool alone = false;
  AdapterSet adapters = {};
};

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(arguments.model, arguments.options));
  const ModelInfo info = model->info();
  ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Engine::Start(std::move(model), {}));
  std::vector<std::shared_ptr<Request>> requests;
  std::ofstream out(arguments.out, std::ios::binary);
  auto write = [&out](Request& request) {
    request.WaitFor(absl::InfiniteDuration());
    const std::vector<float>& values = request.result().embedding;
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    return request.result().status;
  };
  for (const std::vector<int32_t>& text : arguments.texts) {
    RequestSpec spec = {.prompt = text,
                        .adapters = arguments.adapters,
                        .embed = info.pooling.value_or(Pooling::kMean),
                        .ranks = info.ranks};
    ASSIGN_OR_RETURN(std::shared_ptr<Request> request, engine->Submit(std::move(spec)));
    if (arguments.alone) RETURN_IF_ERROR(write(*request));
    requests.push_back(std::move(request));
  }
  for (const auto& request : requests) {
    if (!arguments.alone) RETURN_IF_ERROR(write(*request));
  }
  out.close();
  return out.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + arguments.out);
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(
        stderr,
        "usage: lm_embeddings MODEL.gguf OUT.f32 \"id,id,...;id,...\" [device=] [threads=] "
        "[kv_type=] [alone=] [lora=]\n");
    return 2;
  }
  lm::Arguments arguments;
  arguments.model = argv[1];
  arguments.out = argv[2];
  std::string texts = argv[3];
  if (texts[0] == '@') {
    std::ifstream file(texts.substr(1));
    texts.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (absl::string_view text : absl::StrSplit(texts, ';')) {
    arguments.texts.emplace_back();
    for (absl::string_view id : absl::StrSplit(text, ',')) {
      arguments.texts.back().emplace_back();
      if (!absl::SimpleAtoi(id, &arguments.texts.back().back())) return 2;
    }
  }
  for (int i = 4; i < argc; ++i) {
    const std::pair<std::string, std::string> option =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (option.first == "device") arguments.options.device = option.second;
    if (option.first == "threads") arguments.options.threads = std::atoi(option.second.c_str());
    if (option.first == "lora" &&
        !lm::ReadLoraOption(option.second, &arguments.options, &arguments.adapters)) {
      return 2;
    }
    if (option.first == "alone") arguments.alone = option.second == "1";
    if (option.first == "kv_type") {
      const absl::StatusOr<std::optional<lm::DType>> type = lm::ParseKvType(option.second);
      if (!type.ok()) return 2;
      arguments.options.kv_type = *type;
    }
  }
  const absl::Status status = lm::Run(arguments);
  if (!status.ok()) std::fprintf(stderr, "lm_embeddings: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

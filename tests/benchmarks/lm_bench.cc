// Measures the engine on one model, each figure beside the ceiling of the machine it runs on.
//
//   lm_bench MODEL.gguf [--threads N] [--device cpu] [--only load,pp512,tg128,b1,b32,rows64]
//   [--reps 3] [--json]
//
// load      seconds until the model is loaded; first_token: until its first token is there
// pp512     prefill of 512 tokens, tokens/s
// tg128     decode of 128 tokens, one sequence, tokens/s
// b1 … b64  that many sequences with 128 tokens of context each (no sharing), 16 steps, tokens/s
// rows64    64 rows through the engine: 400 shared tokens, 40 own, 16 greedy out; rows/s
// Medians of `reps` runs. Shares: prefill and batches of the arithmetic ceiling (int8 for quantised
// weights, fp32 for float ones), single-stream decode of the bandwidth ceiling. Both ceilings are
// measured in the same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "engine/backend/machine_ceilings.h"

namespace lm {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Arguments {
  std::string model;
  ModelOptions options;
  std::vector<std::string> only;
  int reps = 3;
  bool json = false;

  bool Wants(const std::string& name) const {
    return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
  }
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int64_t ResidentMib() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096 / (1 << 20);
}

// Feeds sequences of a language model by hand, each in blocks of its own.
class Feeder {
 public:
  explicit Feeder(LanguageModel* model) : model_(*model), random_(1) {}

  int32_t RandomToken() { return 3 + static_cast<int32_t>(random_() % (model_.vocab_size() - 3)); }

  // One step: `tokens` more tokens of each of `sequences` sequences that stand at `position`.
  absl::Status Step(int sequences, int position, int tokens, int blocks_each) {
    tokens_.clear();
    spans_.clear();
    rows_.clear();
    blocks_.resize(sequences * blocks_each);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int s = 0; s < sequences; ++s) {
      spans_.push_back(
          {.first_row = static_cast<int32_t>(tokens_.size()),
           .num_tokens = tokens,
           .first_position = position,
           .blocks = absl::MakeConstSpan(blocks_).subspan(s * blocks_each, blocks_each)});
      for (int t = 0; t < tokens; ++t) tokens_.push_back(RandomToken());
      rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    }
    logits_.resize(rows_.size() * model_.vocab_size());
    const std::atomic<bool> cancel{false};
    return model_.Forward({.tokens = tokens_, .sequences = spans_, .logit_rows = rows_}, cancel,
                          absl::MakeSpan(logits_));
  }

 private:
  LanguageModel& model_;
  std::mt19937 random_;
  std::vector<int32_t> tokens_, blocks_, rows_;
  std::vector<SequenceSpan> spans_;
  std::vector<float> logits_;
};

constexpr int BlocksFor(int tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

absl::StatusOr<double> Prefill(LanguageModel* model, int tokens, int reps) {
  Feeder feeder(model);
  std::vector<double> rates;
  for (int r = 0; r <= reps; ++r) {  // the first run warms up
    auto begin = Clock::now();
    RETURN_IF_ERROR(feeder.Step(1, 0, tokens, BlocksFor(tokens)));
    if (r > 0) rates.push_back(tokens / SecondsSince(begin));
  }
  return Median(rates);
}

absl::StatusOr<double> Decode(LanguageModel* model, int sequences, int context, int steps,
                              int reps) {
  Feeder feeder(model);
  const int blocks = BlocksFor(context + steps + 1);
  if (blocks * sequences > model->num_kv_blocks()) {
    return absl::ResourceExhaustedError("the KV cache is too small for this batch");
  }
  if (context > 0) RETURN_IF_ERROR(feeder.Step(sequences, 0, context, blocks));
  std::vector<double> rates;
  for (int r = 0; r < reps; ++r) {
    RETURN_IF_ERROR(feeder.Step(sequences, context, 1, blocks));
    auto begin = Clock::now();
    for (int i = 1; i <= steps; ++i) {
      RETURN_IF_ERROR(feeder.Step(sequences, context + i, 1, blocks));
    }
    rates.push_back(sequences * steps / SecondsSince(begin));
  }
  return Median(rates);
}

// 64 rows through the engine, a new salt each time so that nothing is left of the run before.
absl::StatusOr<double> Rows(Engine* engine, int reps) {
  constexpr int kRows = 64, kShared = 400, kOwn = 40, kOut = 16;
  std::mt19937 random(2);
  const int32_t vocab = engine->model().info().vocab_size;
  auto token = [&] { return 3 + static_cast<int32_t>(random() % (vocab - 3)); };
  std::vector<std::pair<int32_t, double>> no_end;  // random weights may end an answer early
  for (int32_t id = 0; id < vocab; ++id) {
    if (engine->model().tokenizer().IsEndOfGeneration(id)) no_end.push_back({id, -1e9});
  }
  std::vector<double> rates;
  for (int r = 0; r < reps; ++r) {
    std::vector<int32_t> shared(kShared);
    for (int32_t& id : shared) id = token();
    auto begin = Clock::now();
    std::vector<std::shared_ptr<Request>> requests;
    for (int row = 0; row < kRows; ++row) {
      RequestSpec spec{.prompt = shared, .salt = absl::StrCat("bench ", r)};
      for (int i = 0; i < kOwn; ++i) spec.prompt.push_back(token());
      spec.options.max_tokens = kOut;
      spec.options.logit_bias = no_end;
      ASSIGN_OR_RETURN(std::shared_ptr<Request> request, engine->Submit(std::move(spec)));
      requests.push_back(std::move(request));
    }
    for (auto& request : requests) {
      request->WaitFor(absl::InfiniteDuration());
      RETURN_IF_ERROR(request->result().status);
      if (request->result().tokens_out != kOut) return absl::InternalError("a row ended early");
    }
    rates.push_back(kRows / SecondsSince(begin));
  }
  return Median(rates);
}

absl::Status Run(const Arguments& arguments) {
  nlohmann::ordered_json report;
  const int threads = arguments.options.threads > 0 ? arguments.options.threads : AvailableCpus();
  const MachineCeilings ceilings = MeasureCeilings(threads);

  auto begin = Clock::now();
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(arguments.model, arguments.options));
  const double load_seconds = SecondsSince(begin);
  const ModelInfo info = model->info();
  Feeder feeder(&model->language_model());
  RETURN_IF_ERROR(feeder.Step(1, 0, 1, 1));
  const double first_token_seconds = SecondsSince(begin);

  const bool floats = info.quantisation[0] == 'F' || info.quantisation[0] == 'B';
  const double arithmetic = floats ? ceilings.fp32_flops_per_second : ceilings.int8_ops_per_second;
  const double ops_per_token = 2.0 * static_cast<double>(info.parameters);
  if (!arguments.json) {
    std::printf("%s: %s, %.1f M parameters, %.1f MiB, %d threads\n", info.name.c_str(),
                info.quantisation.c_str(), info.parameters / 1e6, info.weight_bytes / 1048576.0,
                threads);
    std::printf("ceilings: %.1f GB/s read, %.0f GFLOP/s fp32, %.0f GOP/s int8\n",
                ceilings.read_bytes_per_second / 1e9, ceilings.fp32_flops_per_second / 1e9,
                ceilings.int8_ops_per_second / 1e9);
  }
  auto record = [&](const std::string& name, double value, const char* unit, double share,
                    const char* ceiling) {
    report[name] = value;
    if (arguments.json) return;
    std::printf("%-14s %10.2f %-9s", name.c_str(), value, unit);
    if (share > 0) std::printf(" %5.1f%% of %s", 100 * share, ceiling);
    std::printf("\n");
    std::fflush(stdout);
  };
  const char* arithmetic_name = floats ? "fp32 peak" : "int8 peak";

  if (arguments.Wants("load")) {
    record("load_s", load_seconds, "s", 0, "");
    record("first_token_s", first_token_seconds, "s", 0, "");
    record("rss_mib", static_cast<double>(ResidentMib()), "MiB", 0, "");
  }
  LanguageModel* language_model = &model->language_model();
  if (arguments.Wants("pp512")) {
    ASSIGN_OR_RETURN(double rate, Prefill(language_model, 512, arguments.reps));
    record("pp512", rate, "tokens/s", rate * ops_per_token / arithmetic, arithmetic_name);
  }
  if (arguments.Wants("tg128")) {
    ASSIGN_OR_RETURN(double rate, Decode(language_model, 1, 0, 128, arguments.reps));
    record("tg128", rate, "tokens/s",
           rate * static_cast<double>(info.weight_bytes) / ceilings.read_bytes_per_second,
           "bandwidth");
  }
  for (int batch : {1, 2, 4, 8, 16, 32, 64}) {
    const std::string name = absl::StrCat("b", batch);
    if (!arguments.Wants(name)) continue;
    ASSIGN_OR_RETURN(double rate, Decode(language_model, batch, 128, 16, arguments.reps));
    record(name, rate, "tokens/s", rate * ops_per_token / arithmetic, arithmetic_name);
  }
  if (arguments.Wants("rows64")) {
    std::shared_ptr<Engine> engine = Engine::Start(std::move(model), {});
    ASSIGN_OR_RETURN(double rate, Rows(engine.get(), arguments.reps));
    record("rows64", rate, "rows/s", 0, "");
  }
  if (arguments.json) std::printf("%s\n", report.dump().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  lm::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (word == "--json") {
      arguments.json = true;
    } else if (word == "--threads") {
      arguments.options.threads = std::atoi(value().c_str());
    } else if (word == "--device") {
      arguments.options.device = value();
    } else if (word == "--reps") {
      arguments.reps = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--only") {
      arguments.only = absl::StrSplit(value(), ',');
    } else if (word[0] != '-' && arguments.model.empty()) {
      arguments.model = word;
    } else {
      std::fprintf(stderr, "unknown argument '%s'; see the head of lm_bench.cc\n", word.c_str());
      return 2;
    }
  }
  absl::Status status = lm::Run(arguments);
  if (!status.ok()) std::fprintf(stderr, "lm_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

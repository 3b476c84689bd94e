// Measures the engine on one model, each figure beside the ceilings of the machine it runs on.
//
//   lm_bench MODEL.gguf [--threads N] [--only pp512,tg128,b32,rows64,...] [--reps 3] [--json]
//            [--device cpu] [--kv-mib N] [--kv-type auto] [--pack-cache DIR]
//            [--draft SMALL.gguf]
//            [--temperature T] [--top-k K] [--top-p P] [--min-p P] [--repeat-penalty R]
//
// load           load_s: seconds until the model is loaded; first_token_s: until its first token is
//                there, the load included; rss_mib: the process after it; the rest waits until
//                the weights are laid out
// pp512          prefill of 512 tokens, tokens/s
// tg128          decode of 128 tokens, one sequence, tokens/s
// b1 b2 ... b64  that many sequences with 128 tokens of context each (none shared), 16 steps,
//                tokens/s
// embed1 embed32 of a model that writes no texts: one text of 512 tokens, 32 of 128; tokens/s
// rows64         64 rows, 400 shared tokens, 40 own, 16 greedy out; rows/s
// These are the default. Only where they are asked for:
// lengths        prompts of 128 to 8,192 tokens (--longest): cost of a token against length, with
//                the KV cache and with everything computed again
// scaling        1, 2, ..., 64 rows of the rows64 protocol
// shared         decode step of 32 rows over a 1,024-token prefix, shared against copied, and the
//                KV memory of both
// speculation    answers that have been given before, and drawn ones, with guesses and without, in
//                turns (all other figures: without)
// kv             KV bytes a token, predicted and measured, and the waste of blocks
//
// All go through the Engine that SQL uses, `shared` through the model beneath it. Medians of `reps`
// runs. Two shares stand beside each rate: of arithmetic, the operations of the weights' products
// over the int8 peak (fp32 for float weights); of bandwidth, the bytes of weights (once a step, as
// the file stores them) and keys and values over the read rate. The ceilings are measured in the
// same run, and are the CPU's: another device has no shares. --json prints one object: the figures
// by their names, `ceilings`, and `shares` as {name: [arithmetic, bandwidth]}.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/base/cpu_features.h"
#include "engine/base/status_macros.h"
#include "tests/benchmarks/model_work.h"
#include "tests/benchmarks/sweeps.h"
#include "tests/benchmarks/timed_engine.h"

namespace lm {
namespace {

struct Arguments {
  std::string model;
  ModelOptions options;
  std::vector<std::string> only;
  int reps = 3;
  int longest = 8192;
  SamplingOptions sampling;  // how tokens are picked, by --temperature and so on; greedily
  bool json = false;

  bool Names(const std::string& name) const {
    return std::find(only.begin(), only.end(), name) != only.end();
  }
  bool Wants(const std::string& name) const { return only.empty() || Names(name); }
};

// The figures so far, and how they are shown.
class Report {
 public:
  // Without ceilings there are no shares.
  Report(const ModelWork& work, const std::optional<MachineCeilings>& ceilings, bool json)
      : work_(work), ceilings_(ceilings), json_(json) {
    if (!ceilings) return;
    values_["ceilings"] = {{"read_gb_s", ceilings->read_bytes_per_second / 1e9},
                           {"fp32_gflop_s", ceilings->fp32_flops_per_second / 1e9},
                           {"int8_gop_s", ceilings->int8_ops_per_second / 1e9}};
    if (json) return;
    std::printf("ceilings:");
    for (const auto& [name, value] : values_["ceilings"].items()) {
      std::printf(" %s %.1f", name.c_str(), value.get<double>());
    }
    std::printf("\n");
  }

  void Add(const std::string& name, double value, const char* unit) {
    values_[name] = value;
    if (!json_) std::printf("%-14s %10.3f %s\n", name.c_str(), value, unit);
  }

  // A rate whose `rate / per_second` is a number of times a second that `ops` operations are done
  // and `bytes` bytes are read.
  void AddRate(const std::string& name, double rate, const char* unit, double times_a_second,
               double ops, double bytes) {
    values_[name] = rate;
    if (!json_) std::printf("%-14s %10.2f %-9s", name.c_str(), rate, unit);
    if (ceilings_) {
      const double peak =
          work_.floats ? ceilings_->fp32_flops_per_second : ceilings_->int8_ops_per_second;
      const double arithmetic = times_a_second * ops / peak;
      const double bandwidth = times_a_second * bytes / ceilings_->read_bytes_per_second;
      values_["shares"][name] = {arithmetic, bandwidth};
      if (!json_) {
        std::printf(" %5.1f%% of %s peak, %.1f%% of bandwidth", 100 * arithmetic,
                    work_.floats ? "fp32" : "int8", 100 * bandwidth);
      }
    }
    if (!json_) std::printf("\n");
    std::fflush(stdout);
  }

  // A table, one line a row; or one object.
  void AddSeries(const std::string& name, const nlohmann::ordered_json& series) {
    values_[name] = series;
    if (json_) return;
    std::printf("%s\n", name.c_str());
    for (const auto& row : series.is_array() ? series : nlohmann::ordered_json{series}) {
      for (const auto& [key, value] : row.items()) {
        std::printf("  %s %s", key.c_str(),
                    value.is_number_float() ? absl::StrCat(value.get<double>()).c_str()
                                            : value.dump().c_str());
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  void PrintJson() const {
    if (json_) std::printf("%s\n", values_.dump().c_str());
  }

 private:
  const ModelWork work_;
  const std::optional<MachineCeilings> ceilings_;
  const bool json_;
  nlohmann::ordered_json values_;
};

absl::Status Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(TimedEngine engine, TimedEngine::Load(arguments.model, arguments.options, {}));
  ASSIGN_OR_RETURN(const ModelWork work,
                   ReadModelWork(arguments.model, engine.engine().model().info().kv_type));
  const int64_t resident = ResidentBytes();
  RETURN_IF_ERROR(engine.WaitUntilLaidOut());
  engine.set_sampling(arguments.sampling);
  const int threads = arguments.options.threads > 0 ? arguments.options.threads : DefaultThreads();
  const ModelInfo& info = engine.engine().model().info();
  if (!arguments.json) {
    std::printf("%s: %s, %.1f M parameters, %.1f MiB, %d threads\n", info.name.c_str(),
                info.quantisation.c_str(), static_cast<double>(info.parameters) / 1e6,
                (work.body_bytes + work.head_bytes) / 1048576.0, threads);
  }
  std::optional<MachineCeilings> ceilings;
  if (arguments.options.device == "cpu") ceilings = MeasureCeilings(threads);
  Report report(work, ceilings, arguments.json);
  if (arguments.Wants("load")) {
    report.Add("load_s", engine.load_seconds(), "s");
    report.Add("first_token_s", engine.first_token_seconds(), "s");
    report.Add("rss_mib", static_cast<double>(resident) / 1048576.0, "MiB");
  }
  if (!info.generates) {
    for (const auto& [texts, tokens] : {std::pair(1, 512), std::pair(32, 128)}) {
      const std::string name = absl::StrCat("embed", texts);
      if (!arguments.Wants(name)) continue;
      ASSIGN_OR_RETURN(double rate, engine.EmbedRate(texts, tokens, arguments.reps));
      const int all = texts * tokens;
      report.AddRate(name, rate, "tokens/s", rate / all, all * work.body_ops, work.body_bytes);
    }
    report.PrintJson();
    return absl::OkStatus();
  }
  const double step_bytes = work.body_bytes + work.head_bytes;
  if (arguments.Wants("pp512")) {
    constexpr int kTokens = 512;
    ASSIGN_OR_RETURN(double rate, engine.PrefillRate(kTokens, arguments.reps));
    report.AddRate("pp512", rate, "tokens/s", rate / kTokens,
                   kTokens * work.body_ops + work.head_ops, step_bytes);
  }
  const double decode_ops = work.body_ops + work.head_ops;
  if (arguments.Wants("tg128")) {
    constexpr int kSteps = 128;
    ASSIGN_OR_RETURN(double rate, engine.DecodeRate(1, 1, kSteps, arguments.reps));
    report.AddRate("tg128", rate, "tokens/s", rate, decode_ops,
                   step_bytes + work.kv_bytes * kSteps / 2);
  }
  for (int rows : {1, 2, 4, 8, 16, 32, 64}) {
    const std::string name = absl::StrCat("b", rows);
    if (!arguments.Wants(name)) continue;
    constexpr int kSteps = 16, kContext = 128;
    ASSIGN_OR_RETURN(double rate, engine.DecodeRate(rows, kContext, kSteps, arguments.reps));
    report.AddRate(name, rate, "tokens/s", rate / rows, rows * decode_ops,
                   step_bytes + rows * work.kv_bytes * (kContext + kSteps / 2));
  }
  if (arguments.Wants("rows64")) {
    constexpr int kRows = 64, kOut = 16;
    ASSIGN_OR_RETURN(Burst burst, engine.Rows(kRows, arguments.reps));
    report.AddRate(
        "rows64", kRows / burst.total, "rows/s", 1 / burst.total,
        static_cast<double>(burst.tokens_computed) * work.body_ops + kRows * kOut * work.head_ops,
        static_cast<double>(burst.steps) * step_bytes);
  }
  if (arguments.Names("lengths")) {
    ASSIGN_OR_RETURN(auto table, SweepLengths(&engine, arguments.longest));
    report.AddSeries("lengths", table);
  }
  if (arguments.Names("scaling")) {
    ASSIGN_OR_RETURN(auto table, SweepRows(&engine, arguments.reps));
    report.AddSeries("scaling", table);
  }
  if (arguments.Names("speculation")) {
    ASSIGN_OR_RETURN(auto table, SweepSpeculation(&engine, arguments.reps));
    report.AddSeries("speculation", table);
  }
  if (arguments.Names("kv")) {
    ASSIGN_OR_RETURN(auto figures, MeasureKv(&engine, work));
    report.AddSeries("kv", figures);
  }
  if (arguments.Names("shared")) {
    constexpr int kPrefix = 1024, kRows = 32;
    ASSIGN_OR_RETURN(auto figures, MeasureSharedPrefix(arguments.model, arguments.options, kPrefix,
                                                       kRows, arguments.reps));
    report.AddSeries("shared", figures);
  }
  report.PrintJson();
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
    } else if (word == "--kv-mib") {
      arguments.options.kv_bytes = std::atoll(value().c_str()) << 20;
    } else if (word == "--draft") {
      arguments.options.draft = value();
    } else if (word == "--pack-cache") {
      arguments.options.pack_cache = value();
    } else if (word == "--kv-type") {
      absl::StatusOr<std::optional<lm::DType>> type = lm::ParseKvType(value());
      if (!type.ok()) {
        std::fprintf(stderr, "lm_bench: %s\n", std::string(type.status().message()).c_str());
        return 2;
      }
      arguments.options.kv_type = *type;
    } else if (word == "--reps") {
      arguments.reps = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--temperature") {
      arguments.sampling.temperature = std::atof(value().c_str());
    } else if (word == "--top-k") {
      arguments.sampling.top_k = std::atoi(value().c_str());
    } else if (word == "--top-p") {
      arguments.sampling.top_p = std::atof(value().c_str());
    } else if (word == "--min-p") {
      arguments.sampling.min_p = std::atof(value().c_str());
    } else if (word == "--repeat-penalty") {
      arguments.sampling.repeat_penalty = std::atof(value().c_str());
    } else if (word == "--longest") {
      arguments.longest = std::atoi(value().c_str());
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

#include "tests/benchmarks/sweeps.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/block_manager.h"

namespace lm {
namespace {

using OrderedJson = nlohmann::ordered_json;

double Milliseconds(double seconds) { return 1e3 * seconds; }

// Rows over a common prefix, fed to the language model step by step, in blocks that lie where the
// caller put them.
class PrefixRows {
 public:
  PrefixRows(LanguageModel* model, int prefix, int rows)
      : model_(*model), prefix_(prefix), blocks_(rows) {}

  // Each row's own blocks follow `shared`, the prefix's.
  void PlaceShared(const std::vector<int32_t>& shared, int32_t own_blocks) {
    for (std::vector<int32_t>& blocks : blocks_) {
      blocks = shared;
      AppendFresh(own_blocks, &blocks);
    }
  }

  // Each row has all its blocks to itself, the prefix's copied from `shared` by the next step.
  void PlaceCopies(const std::vector<int32_t>& shared, int32_t own_blocks) {
    for (std::vector<int32_t>& blocks : blocks_) {
      blocks.clear();
      AppendFresh(static_cast<int32_t>(shared.size()) + own_blocks, &blocks);
      for (size_t i = 0; i < shared.size(); ++i) {
        copies_.push_back({.from = shared[i], .to = blocks[i], .tokens = kKvBlockTokens});
      }
    }
  }

  void AppendFresh(int32_t count, std::vector<int32_t>* blocks) {
    while (count-- > 0) blocks->push_back(next_block_++);
  }
  int32_t blocks_used() const { return next_block_; }

  absl::Status FeedPrefix(const std::vector<int32_t>& tokens, const std::vector<int32_t>& blocks) {
    ModelStep step;
    Append(tokens.data(), prefix_, 0, blocks, &step);
    return Run(std::move(step));
  }

  // One decode step of all rows, row r fed the token r + step.
  absl::Status Step(int step_number) {
    ModelStep step;
    step.cache_ops = std::exchange(copies_, {});
    for (size_t r = 0; r < blocks_.size(); ++r) {
      const int32_t token = 3 + (static_cast<int32_t>(r) + step_number) % (model_.vocab_size() - 3);
      Append(&token, 1, prefix_ + step_number, blocks_[r], &step);
    }
    return Run(std::move(step));
  }

  // Seconds of the median step.
  absl::StatusOr<double> TimeSteps(int steps, int reps) {
    std::vector<double> times;
    for (int r = 0; r <= reps; ++r) {
      for (int s = 0; s < steps; ++s) {
        const auto begin = std::chrono::steady_clock::now();
        RETURN_IF_ERROR(Step(s));
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (r > 0) times.push_back(took.count());
      }
    }
    return Median(times);
  }

  // Of the last step, (rows, vocabulary).
  const std::vector<float>& logits() const { return results_.logits; }

 private:
  // Appends tokens whose last logits are wanted.
  static void Append(const int32_t* tokens, int32_t count, int32_t first_position,
                     const std::vector<int32_t>& blocks, ModelStep* step) {
    step->tables.blocks.resize(1);
    step->tables.Append(tokens, count, first_position);
    step->tables.blocks[0].insert(step->tables.blocks[0].end(), blocks.begin(),
                                  blocks.begin() + BlocksFor(first_position + count));
    step->logit_rows.push_back(static_cast<int32_t>(step->tables.tokens.size()) - 1);
  }

  absl::Status Run(ModelStep step) { return model_.Run(std::move(step), cancel_, &results_); }

  LanguageModel& model_;
  const int32_t prefix_;
  const std::atomic<bool> cancel_{false};
  int32_t next_block_ = 0;
  std::vector<std::vector<int32_t>> blocks_;  // of each row
  std::vector<CacheOp> copies_;               // to be made
  StepResults results_;
};

}  // namespace

absl::StatusOr<nlohmann::ordered_json> SweepSpeculation(TimedEngine* engine, int reps) {
  constexpr int kContext = 128, kSteps = 128;
  const SamplingOptions asked = engine->sampling();
  OrderedJson table = OrderedJson::array();
  for (const char* answers : {"seen", "greedy", "drawn"}) {
    const bool seen = answers == absl::string_view("seen");
    engine->set_sampling({.temperature = answers == absl::string_view("drawn") ? 2.0 : 0.0});
    for (const int rows : {1, 8}) {
      std::vector<double> ratios, rates;
      const EngineStats before = engine->engine().Stats();
      std::vector<Prompt> prompts = engine->RandomPrompts(rows, kContext);
      for (int r = 0; r <= reps; ++r) {
        double seconds[2];
        for (const bool guesses : {r % 2 == 0, r % 2 != 0}) {  // in turns
          if (!seen) prompts = engine->RandomPrompts(rows, kContext);
          engine->set_speculate(guesses ? Speculate::kAuto : Speculate::kOff);
          ASSIGN_OR_RETURN(const Burst burst, engine->Run(prompts, kSteps + 1));
          seconds[guesses] = burst.decode;
        }
        if (r == 0) continue;  // a first look at what steps cost
        ratios.push_back(seconds[0] / seconds[1]);
        rates.push_back(rows * kSteps / seconds[1]);
      }
      const EngineStats after = engine->engine().Stats();
      table.push_back({{"answers", answers},
                       {"rows", rows},
                       {"times_as_fast", Median(ratios)},
                       {"tokens_per_second", Median(rates)},
                       {"drafted", after.tokens_drafted - before.tokens_drafted},
                       {"accepted", after.tokens_accepted - before.tokens_accepted},
                       {"steps_saved", after.steps_saved - before.steps_saved}});
    }
  }
  engine->set_sampling(asked);
  engine->set_speculate(Speculate::kOff);
  return table;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

absl::StatusOr<OrderedJson> SweepLengths(TimedEngine* engine, int longest) {
  constexpr int kSteps = 16;
  OrderedJson table = OrderedJson::array();
  for (int tokens = 128; tokens <= longest; tokens *= 2) {
    // The last length leaves room for the tokens that are decoded behind it.
    const int length = std::min(tokens, engine->engine().max_sequence_tokens() - kSteps - 1);
    if (length < tokens - 2 * kSteps) break;
    const int reps = tokens <= 1024 ? 3 : 1;
    ASSIGN_OR_RETURN(double prefill_rate, engine->PrefillRate(length, reps));
    ASSIGN_OR_RETURN(double decode_rate, engine->DecodeRate(1, length, kSteps, reps));
    const double prefill = length / prefill_rate;
    table.push_back({{"tokens", length},
                     {"prefill_tokens_s", prefill_rate},
                     {"prefill_ms_a_token", Milliseconds(1 / prefill_rate)},
                     {"decode_ms_a_token", Milliseconds(1 / decode_rate)},
                     {"recomputed_ms_a_token", Milliseconds(prefill)}});
  }
  return table;
}

absl::StatusOr<OrderedJson> SweepRows(TimedEngine* engine, int reps) {
  OrderedJson table = OrderedJson::array();
  for (int rows : {1, 2, 4, 8, 16, 32, 64}) {
    ASSIGN_OR_RETURN(Burst burst, engine->Rows(rows, reps));
    table.push_back({{"rows", rows},
                     {"seconds", burst.total},
                     {"rows_s", rows / burst.total},
                     {"tokens_computed", burst.tokens_computed},
                     {"steps", burst.steps}});
  }
  return table;
}

absl::StatusOr<OrderedJson> MeasureSharedPrefix(const std::string& path,
                                                const ModelOptions& options, int prefix, int rows,
                                                int reps) {
  constexpr int kSteps = 8;
  const int32_t prefix_blocks = BlocksFor(prefix), own_blocks = BlocksFor(kSteps) + 1;
  if (prefix % kKvBlockTokens != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prefix must be whole blocks of ", kKvBlockTokens, ", got ", prefix));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(path, options));
  LanguageModel& language_model = model->language_model();
  if (language_model.cache().classes.size() > 1 || language_model.cache().recurrent()) {
    return absl::UnimplementedError("only models of full attention can be measured so");
  }
  const int32_t needed = rows * (prefix_blocks + own_blocks) + prefix_blocks;
  if (needed > language_model.cache().classes[0].num_blocks) {
    return absl::ResourceExhaustedError(absl::StrCat("the copies need ", needed,
                                                     " KV blocks, the cache has ",
                                                     language_model.cache().classes[0].num_blocks));
  }
  std::vector<int32_t> tokens(prefix);
  std::iota(tokens.begin(), tokens.end(), 3);
  for (int32_t& token : tokens) token = 3 + token % (language_model.vocab_size() - 3);

  PrefixRows layout(&language_model, prefix, rows);
  std::vector<int32_t> shared;
  layout.AppendFresh(prefix_blocks, &shared);
  RETURN_IF_ERROR(layout.FeedPrefix(tokens, shared));
  layout.PlaceShared(shared, own_blocks);
  const int32_t shared_used = layout.blocks_used();
  ASSIGN_OR_RETURN(double shared_step, layout.TimeSteps(kSteps, reps));
  const std::vector<float> shared_logits = layout.logits();

  layout.PlaceCopies(shared, own_blocks);
  const int32_t copies_used = layout.blocks_used() - shared_used;
  ASSIGN_OR_RETURN(double copies_step, layout.TimeSteps(kSteps, reps));

  const double block_mib =
      static_cast<double>(language_model.cache().classes[0].block_bytes) / 1048576.0;
  return OrderedJson{{"prefix", prefix},
                     {"rows", rows},
                     {"shared_step_ms", Milliseconds(shared_step)},
                     {"copies_step_ms", Milliseconds(copies_step)},
                     {"shared_kv_mib", block_mib * shared_used},
                     {"copies_kv_mib", block_mib * copies_used},
                     {"same_bits", layout.logits() == shared_logits}};
}

absl::StatusOr<OrderedJson> MeasureKv(TimedEngine* engine, const ModelWork& work) {
  constexpr int kPrompts = 48, kLongest = 600, kOut = 8;
  auto blocks_used = [engine] {
    const EngineStats stats = engine->engine().Stats();
    return stats.kv_blocks_total - stats.kv_blocks_free;
  };
  // Everything else that grows with the size of a step has grown after this.
  RETURN_IF_ERROR(engine->Run(engine->RandomPrompts(kPrompts, kLongest / 8), kOut).status());
  std::vector<Prompt> prompts;
  int64_t tokens = 0;
  for (int i = 0; i < kPrompts; ++i) {
    prompts.push_back(engine->RandomPrompt(1 + engine->RandomToken() % kLongest));
    tokens += static_cast<int64_t>(prompts.back().size()) + kOut - 1;
  }
  const int64_t blocks_before = blocks_used(), resident_before = ResidentBytes();
  RETURN_IF_ERROR(engine->Run(prompts, kOut).status());
  const int64_t blocks = blocks_used() - blocks_before;
  const int64_t resident = ResidentBytes() - resident_before;
  const EngineStats stats = engine->engine().Stats();
  if (stats.kv_blocks_free == 0) {
    return absl::ResourceExhaustedError("the KV cache is too small to count what it holds");
  }
  const auto slots = static_cast<double>(blocks * kKvBlockTokens);
  const auto count = static_cast<double>(tokens);
  return OrderedJson{
      {"prompts", kPrompts},
      {"tokens", tokens},
      {"predicted_bytes_a_token", work.kv_bytes},
      {"allocated_bytes_a_slot", static_cast<double>(stats.kv_block_bytes) / kKvBlockTokens},
      {"resident_bytes_a_token", static_cast<double>(resident) / count},
      {"block_waste_percent", 100 * (1 - count / slots)}};
}

}  // namespace lm

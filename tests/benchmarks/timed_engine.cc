#include "tests/benchmarks/timed_engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"

namespace lm {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<TimedEngine> TimedEngine::Load(const std::string& path, const ModelOptions& model,
                                              const EngineOptions& options) {
  TimedEngine timed;
  const MonotonicTime begin = MonotonicTime::Now();
  ASSIGN_OR_RETURN(std::unique_ptr<Model> loaded, Model::Load(path, model));
  timed.load_seconds_ = absl::ToDoubleSeconds(MonotonicTime::Now() - begin);
  ASSIGN_OR_RETURN(timed.engine_, Engine::Start(std::move(loaded), options));
  if (timed.engine_->model().info().generates) {
    RETURN_IF_ERROR(timed.Run({timed.RandomPrompt(1)}, 1).status());
  } else {
    RETURN_IF_ERROR(timed.Embed({timed.RandomPrompt(1)}));
  }
  timed.first_token_seconds_ = absl::ToDoubleSeconds(MonotonicTime::Now() - begin);
  return timed;
}

absl::Status TimedEngine::WaitUntilLaidOut() const {
  const MonotonicTime end = MonotonicTime::Now() + absl::Minutes(5);
  while (!engine_->Stats().laid_out) {
    if (MonotonicTime::Now() > end)
      return absl::DeadlineExceededError("the weights are not laid out yet");
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::OkStatus();
}

int32_t TimedEngine::RandomToken() {
  return 3 + static_cast<int32_t>(random_() % (engine_->model().info().vocab_size - 3));
}

Prompt TimedEngine::RandomPrompt(int tokens) {
  Prompt prompt(tokens);
  for (int32_t& token : prompt) token = RandomToken();
  return prompt;
}

std::vector<Prompt> TimedEngine::RandomPrompts(int count, int tokens) {
  std::vector<Prompt> prompts(count);
  for (Prompt& prompt : prompts) prompt = RandomPrompt(tokens);
  return prompts;
}

absl::StatusOr<std::shared_ptr<Request>> TimedEngine::Submit(Prompt prompt, int max_tokens,
                                                             Priority priority) {
  RequestSpec spec{.prompt = std::move(prompt), .salt = "bench"};
  spec.options.max_tokens = max_tokens;
  spec.options.priority = priority;
  spec.options.speculate = speculate_;
  spec.options.temperature = sampling_.temperature;
  spec.options.top_k = sampling_.top_k;
  spec.options.top_p = sampling_.top_p;
  spec.options.min_p = sampling_.min_p;
  spec.options.repeat_penalty = sampling_.repeat_penalty;
  spec.options.logit_bias = no_end_;
  return engine_->Submit(std::move(spec));
}

absl::StatusOr<Burst> TimedEngine::Run(const std::vector<Prompt>& prompts, int max_tokens,
                                       bool together) {
  Burst burst;
  ASSIGN_OR_RETURN(bool complete, TryRun(prompts, max_tokens, together, &burst));
  if (complete) return burst;
  for (int32_t id = 0; id < engine_->model().info().vocab_size; ++id) {
    if (engine_->model().tokenizer().IsEndOfGeneration(id)) no_end_.push_back({id, -1e9});
  }
  ASSIGN_OR_RETURN(complete, TryRun(prompts, max_tokens, together, &burst));
  if (!complete) return absl::InternalError("an answer ended early with its end forbidden");
  return burst;
}

// False: an answer ended early.
absl::StatusOr<bool> TimedEngine::TryRun(const std::vector<Prompt>& prompts, int max_tokens,
                                         bool together, Burst* burst) {
  constexpr int kPlugTokens = 512;
  std::shared_ptr<Request> plug;
  if (together) {
    // Of equals, the longest answers would go first.
    ASSIGN_OR_RETURN(plug, Submit(RandomPrompt(kPlugTokens), 1, Priority::kInteractive));
  }
  const EngineStats before = engine_->Stats();
  MonotonicTime begin = MonotonicTime::Now();
  std::vector<std::shared_ptr<Request>> requests;
  for (const Prompt& prompt : prompts) {
    ASSIGN_OR_RETURN(std::shared_ptr<Request> request, Submit(prompt, max_tokens));
    requests.push_back(std::move(request));
  }
  if (plug != nullptr) {
    plug->WaitFor(absl::InfiniteDuration());
    RETURN_IF_ERROR(plug->result().status);
    begin = plug->submitted() + plug->result().total;
  }
  MonotonicTime earliest = MonotonicTime::InfiniteFuture(), latest = MonotonicTime::InfinitePast();
  MonotonicTime end = MonotonicTime::InfinitePast();
  *burst = {};
  for (const auto& request : requests) {
    request->WaitFor(absl::InfiniteDuration());
    const Generation& result = request->result();
    RETURN_IF_ERROR(result.status);
    if (result.tokens_out != max_tokens) return false;
    const MonotonicTime first = request->submitted() + result.time_to_first_token;
    earliest = std::min(earliest, first);
    latest = std::max(latest, first);
    end = std::max(end, request->submitted() + result.total);
    burst->tokens_decoded += result.tokens_out - 1;
  }
  const EngineStats after = engine_->Stats();
  burst->prefill = absl::ToDoubleSeconds(latest - begin);
  burst->decode = absl::ToDoubleSeconds(end - latest);
  burst->total = absl::ToDoubleSeconds(end - begin);
  burst->stagger = absl::ToDoubleSeconds(latest - earliest);
  burst->tokens_computed = after.tokens_prefilled - before.tokens_prefilled + burst->tokens_decoded;
  burst->steps = after.steps - before.steps;
  return true;
}

absl::StatusOr<double> TimedEngine::PrefillRate(int tokens, int reps) {
  std::vector<double> rates;
  for (int r = 0; r <= reps; ++r) {  // the first run warms up
    ASSIGN_OR_RETURN(Burst burst, Run({RandomPrompt(tokens)}, 1));
    if (r > 0) rates.push_back(tokens / burst.prefill);
  }
  return Median(rates);
}

absl::Status TimedEngine::Embed(const std::vector<Prompt>& prompts) {
  std::vector<std::shared_ptr<Request>> requests;
  for (const Prompt& prompt : prompts) {
    RequestSpec spec{.prompt = prompt};
    spec.embed = engine_->model().info().pooling.value_or(Pooling::kMean);
    ASSIGN_OR_RETURN(std::shared_ptr<Request> request, engine_->Submit(std::move(spec)));
    requests.push_back(std::move(request));
  }
  for (const auto& request : requests) {
    request->WaitFor(absl::InfiniteDuration());
    RETURN_IF_ERROR(request->result().status);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> TimedEngine::EmbedRate(int texts, int tokens, int reps) {
  std::vector<double> rates;
  for (int r = 0; r <= reps; ++r) {  // the first run warms up
    const std::vector<Prompt> prompts = RandomPrompts(texts, tokens);
    const MonotonicTime begin = MonotonicTime::Now();
    RETURN_IF_ERROR(Embed(prompts));
    if (r > 0)
      rates.push_back(texts * tokens / absl::ToDoubleSeconds(MonotonicTime::Now() - begin));
  }
  return Median(rates);
}

absl::StatusOr<double> TimedEngine::DecodeRate(int rows, int context, int steps, int reps) {
  const std::vector<Prompt> prompts = RandomPrompts(rows, context);
  RETURN_IF_ERROR(Run(prompts, 1).status());
  std::vector<double> rates;
  for (int r = 0; r < reps; ++r) {
    // A step may begin while the last rows are still being submitted: then again.
    constexpr int kMostTries = 10;
    Burst burst;
    int tries = 0;
    do {
      if (++tries > kMostTries) {
        return absl::InternalError(absl::StrCat(rows, " rows did not begin to decode together: ",
                                                burst.stagger, " s apart in ", burst.decode,
                                                " s; their prompts, and what states a model has, "
                                                "must fit into the cache (--kv-mib)"));
      }
      ASSIGN_OR_RETURN(burst, Run(prompts, steps + 1, /*together=*/true));
    } while (burst.stagger > 0.1 * burst.decode);
    rates.push_back(static_cast<double>(burst.tokens_decoded) / burst.decode);
  }
  return Median(rates);
}

absl::StatusOr<Burst> TimedEngine::Rows(int count, int reps) {
  constexpr int kShared = 400, kOwn = 40, kOut = 16;
  std::vector<Burst> bursts;
  for (int r = 0; r < reps; ++r) {
    const Prompt shared = RandomPrompt(kShared);
    std::vector<Prompt> prompts(count, shared);
    for (Prompt& prompt : prompts) {
      for (int i = 0; i < kOwn; ++i) prompt.push_back(RandomToken());
    }
    ASSIGN_OR_RETURN(Burst burst, Run(prompts, kOut));
    bursts.push_back(burst);
  }
  std::sort(bursts.begin(), bursts.end(),
            [](const Burst& a, const Burst& b) { return a.total < b.total; });
  return bursts[bursts.size() / 2];
}

}  // namespace lm

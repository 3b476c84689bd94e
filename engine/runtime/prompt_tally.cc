#include "engine/runtime/prompt_tally.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/reasoning.h"

namespace lm {

namespace {

// What stands for the tokens of a prompt where they are not known, so that equal beginnings have
// equal ones.
std::vector<int32_t> GuessedTokens(absl::string_view text) {
  std::vector<int32_t> tokens;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), sizeof(int32_t)))) {
    int32_t token = 0;
    std::memcpy(&token, text.data(), std::min(text.size(), sizeof token));
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Request>> PromptTally::Take(
    const std::shared_ptr<Generator>& generator, RequestSpec spec) {
  RETURN_IF_ERROR(generator->Validate(spec));
  ASSIGN_OR_RETURN(const std::optional<MemoKey> key,
                   MakeMemoKey(*generator, spec, /*owner=*/"", /*lasting=*/false));
  const bool guessed = spec.prompt.empty();
  const RequestSpec given = sample_ > 0 ? spec : RequestSpec();
  if (guessed) spec.prompt = GuessedTokens(spec.text);
  num_tokens_ += static_cast<int64_t>(spec.prompt.size());
  if (num_tokens_ > kMostTokens) {
    return absl::OutOfRangeError(absl::StrCat("the prompts have more than ", kMostTokens,
                                              " tokens together; count a part of them"));
  }
  auto part = std::find_if(parts_.begin(), parts_.end(),
                           [&generator](const Part& p) { return p.generator == generator; });
  if (part == parts_.end()) {
    part = parts_.insert(parts_.end(), Part{generator, {}, {}, {}});
  }
  if (sample_ > 0) Keep(given, &*part);
  part->guessed = part->guessed || guessed;
  part->salt = spec.salt;
  Prompt prompt{.begin = static_cast<int64_t>(part->tokens.size())};
  part->tokens.insert(part->tokens.end(), spec.prompt.begin(), spec.prompt.end());
  prompt.end = static_cast<int64_t>(part->tokens.size());
  Generation answer;
  answer.finish = FinishReason::kStop;
  answer.tokens_in = static_cast<int32_t>(spec.prompt.size());
  if (spec.embed.has_value()) {
    answer.embedding.resize(spec.ranks ? 1 : generator->info().hidden_size);
  } else if (spec.score_prompt) {
    answer.prompt_logprobs.resize(spec.prompt.size() - 1);
  } else {
    const int64_t room = int64_t{generator->max_sequence_tokens()} - answer.tokens_in;
    prompt.max_tokens = static_cast<int32_t>(std::min<int64_t>(
        int64_t{Answer(spec, &*part, &answer.text)} + Reasoning::MostTokens(spec),
        std::max<int64_t>(room, 0)));
  }
  if (spec.wants_first_choices && spec.options.vote == 0) {
    prompt.chosen_tokens = ChosenTokens(spec, &*part);
  }
  prompt.answers = std::max(NumDrawn(spec.options), 1);
  prompt.free = spec.options.constraint.kind == AnswerConstraint::Kind::kNone;
  prompt.adapters = spec.adapters;
  prompt.kind = KindOf(key, &*part);
  part->prompts.push_back(std::move(prompt));
  auto request = std::make_shared<Request>(std::move(spec));
  request->Finish(std::move(answer));
  return request;
}

int64_t PromptTally::KindOf(const std::optional<MemoKey>& key, Part* part) {
  if (!key.has_value()) return -1 - static_cast<int64_t>(part->prompts.size());
  const auto next = static_cast<int64_t>(part->kinds.size());
  return part->kinds.try_emplace(absl::StrCat(key->model, key->options), next).first->second;
}

// Reservoir sampling, by numbers that are the same every time.
void PromptTally::Keep(const RequestSpec& spec, Part* part) const {
  if (part->sample.size() < sample_) {
    part->sample.push_back(spec);
    return;
  }
  const uint64_t seen = part->prompts.size() + 1;
  const uint64_t place = DigestOf(absl::StrCat(seen)).low % seen;
  if (place < sample_) part->sample[place] = spec;
}

int32_t PromptTally::Answer(const RequestSpec& spec, Part* part, std::string* text) {
  const bool votes = spec.options.vote > 0;
  if (spec.wants_first_choices && !votes) return 0;  // they come with the prompt's last token
  if (spec.options.n > 0) {
    *text = "[]";
    return spec.options.max_tokens;
  }
  const std::string& constraint = spec.options.constraint.text;
  switch (spec.options.constraint.kind) {
    case AnswerConstraint::Kind::kChoices:
      if (part->choices.json != constraint) {
        part->choices = ReadChoices(constraint, part->generator->tokenizer().value_or(nullptr));
      }
      *text = part->choices.first;
      return part->choices.most_tokens;
    case AnswerConstraint::Kind::kSchema:
    case AnswerConstraint::Kind::kExtraction:
      *text = "null";
      break;
    case AnswerConstraint::Kind::kNone:
    case AnswerConstraint::Kind::kRegex:
    case AnswerConstraint::Kind::kGrammar:
      break;
  }
  return spec.options.max_tokens;
}

// A server elsewhere is asked for one token.
int32_t PromptTally::ChosenTokens(const RequestSpec& spec, Part* part) {
  if (part->generator->engine() == nullptr) return 1;
  std::string unused;
  return Answer({.options = spec.options}, part, &unused);
}

PromptTally::Choices PromptTally::ReadChoices(const std::string& json, const Tokenizer* tokenizer) {
  Choices choices{.json = json};
  const std::optional<Json> array = Json::Parse(json);
  if (!array || !array->is_array()) return choices;
  for (const Json& element : array->array()) {
    if (!element.is_string()) continue;
    const std::string& choice = element.string();
    if (choices.first.empty()) choices.first = choice;
    // Without a tokenizer: a token has a byte at least.
    const size_t tokens =
        tokenizer != nullptr ? AnswerTokens(*tokenizer, choice).size() : choice.size();
    choices.most_tokens = std::max(choices.most_tokens, static_cast<int32_t>(tokens));
  }
  return choices;
}

std::vector<PromptTally::Totals> PromptTally::Count() const {
  std::vector<Totals> totals;
  for (const Part& part : parts_) totals.push_back(Count(part));
  return totals;
}

// In lexicographic order a prompt shares most with its neighbour, where that has its adapters.
PromptTally::Totals PromptTally::Count(const Part& part) {
  auto tokens_of = [&part](const Prompt& prompt) {
    return absl::MakeSpan(part.tokens).subspan(prompt.begin, prompt.end - prompt.begin);
  };
  std::vector<Prompt> sorted = part.prompts;
  std::sort(sorted.begin(), sorted.end(), [&tokens_of](const Prompt& a, const Prompt& b) {
    if (a.adapters != b.adapters) return a.adapters < b.adapters;
    const auto left = tokens_of(a), right = tokens_of(b);
    if (left == right) return a.kind < b.kind;
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
  });
  Totals totals{.generator = part.generator,
                .requests = static_cast<int64_t>(sorted.size()),
                .guessed = part.guessed,
                .sample = part.sample};
  const std::shared_ptr<Engine>& engine = part.generator->engine();
  absl::Span<const int32_t> before;
  const Prompt* last = nullptr;
  for (const Prompt& prompt : sorted) {
    const absl::Span<const int32_t> tokens = tokens_of(prompt);
    const bool alike = last != nullptr && last->adapters == prompt.adapters;
    if (alike && last->kind == prompt.kind && tokens == before) continue;
    if (!alike) before = {};
    const auto parting = std::mismatch(tokens.begin(), tokens.end(), before.begin(), before.end());
    ++totals.prompts;
    totals.tokens += static_cast<int64_t>(tokens.size());
    // The last token is computed in any case: its logits are wanted.
    const int64_t shared =
        std::min<int64_t>(parting.first - tokens.begin(), static_cast<int64_t>(tokens.size()) - 1);
    totals.tokens_shared += shared;
    int64_t known = shared;
    if (engine != nullptr && !part.guessed && prompt.max_tokens > 0) {
      const int64_t stored = engine->stored().TokensOf(part.salt, prompt.adapters, tokens);
      totals.tokens_stored += std::max<int64_t>(stored - shared, 0);
      known = std::max(known, stored);
    }
    // A vote: its ballots share all but the last token.
    const int64_t again = prompt.answers - 1, length = static_cast<int64_t>(tokens.size());
    totals.tokens += again * length;
    totals.tokens_shared += again * (length - 1);
    totals.positions += PositionsOf(known, length) + static_cast<double>(again * length);
    totals.most_answer_tokens += int64_t{prompt.answers} * prompt.max_tokens;
    totals.most_chosen_tokens += prompt.chosen_tokens;
    const double seen = PositionsOf(length, length + prompt.max_tokens);
    const auto shared_of = [&prompt](int64_t common) {
      return static_cast<double>(common) * prompt.max_tokens;
    };
    totals.most_answer_positions += prompt.answers * seen;
    // A step reads once what its rows share; so the first of as many as decode together reads all.
    const bool first = totals.answers % kMostSequences == 0;
    totals.most_answer_reads += prompt.answers * seen - shared_of(first ? 0 : shared) -
                                static_cast<double>(again) * shared_of(length);
    const int64_t answers = prompt.max_tokens > 0 ? prompt.answers : 0;
    totals.answers += answers;
    if (prompt.free) {
      totals.free_answers += answers;
      totals.most_free_answer_tokens += answers * prompt.max_tokens;
    }
    before = tokens;
    last = &prompt;
  }
  return totals;
}

}  // namespace lm

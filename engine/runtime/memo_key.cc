#include "engine/runtime/memo_key.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/draw_law.h"
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/generator.h"

namespace lm {
namespace {

void AddAdapters(const RequestSpec& spec, absl::Span<const AdapterInfo> adapters, Json* json) {
  if (spec.adapters.empty()) return;
  Json pairs = Json::MakeArray();
  for (const AdapterUse& use : spec.adapters) {
    pairs.Append(Json::MakeArray().Append(adapters[use.adapter].digest).Append(double{use.scale}));
  }
  json->Add("lora", std::move(pairs));
}

void AddOverflow(const RequestSpec& spec, Json* json) {
  json->Add("on_overflow", static_cast<int>(spec.options.on_overflow));
  if (spec.kept_end.has_value()) json->Add("kept_end", *spec.kept_end);
}

// A constraint's text in a key: each answer in the memo has its key, so a long one is its digest.
Json ConstraintText(const AnswerConstraint& constraint) {
  constexpr size_t kLong = 1024;
  if (constraint.text.size() <= kLong) return constraint.text;
  return Json::MakeObject().Add("digest", DigestOf(constraint.text).Hex());
}

// OptionsOfAnswer, the constraint's text as given.
//
// Whoever adds an option meets a compiler error here, and decides what it is.
Json OptionsWith(const GenerationOptions& options, Json constraint_text) {
  const auto& [model, max_tokens, temperature, says_temperature, top_k, top_p, min_p,
               repeat_penalty, seed, vote, n, best_of, stop, logit_bias, lora, examples, messages,
               thinking, thinking_tokens, template_args, constraint, on_error, on_overflow,
               on_length, timeout_ms, max_seconds, max_total_tokens, max_cost, cache, priority,
               speculate] = options;
  // The key has the model; an error is never remembered.
  (void)model, (void)says_temperature, (void)on_error, (void)timeout_ms, (void)cache,
      (void)speculate;
  (void)priority, (void)max_seconds, (void)max_total_tokens, (void)max_cost, (void)on_overflow;
  // The prompt is as the template made it with them, or RequestSpec::told has them.
  (void)examples, (void)messages, (void)template_args;
  (void)temperature;  // TemperatureOf says it
  (void)lora;         // the request has the adapters that it chooses
  Json json = Json::MakeObject();
  if (MostAnswerTokens(options) == max_tokens) json.Add("max_tokens", max_tokens);
  if (vote != 0) json.Add("vote", vote);
  if (n != 0) json.Add("n", n);
  if (best_of != 0) json.Add("best_of", best_of);
  if (TemperatureOf(options) != 0) {  // else nothing is drawn
    json.Add("temperature", TemperatureOf(options));
    json.Add("seed", seed);
    if (top_k != 0) json.Add("top_k", top_k);
    if (top_p != 1) json.Add("top_p", top_p);
    if (min_p != 0) json.Add("min_p", min_p);
  }
  if (repeat_penalty != 1) json.Add("repeat_penalty", repeat_penalty);
  if (!stop.empty()) {
    Json strings = Json::MakeArray();
    for (const std::string& one : stop) strings.Append(one);
    json.Add("stop", std::move(strings));
  }
  if (!logit_bias.empty()) {
    Json pairs = Json::MakeArray();
    for (const auto& [token, bias] : logit_bias) {
      pairs.Append(Json::MakeArray().Append(token).Append(bias));
    }
    json.Add("logit_bias", std::move(pairs));
  }
  if (constraint.kind != AnswerConstraint::Kind::kNone) {
    Json pair = Json::MakeArray();
    pair.Append(static_cast<int>(constraint.kind)).Append(std::move(constraint_text));
    if (constraint.json_spaces || constraint.additional) pair.Append(constraint.json_spaces);
    if (constraint.additional) pair.Append(true);
    json.Add("constraint", std::move(pair));
    if (on_length == OnLength::kComplete) json.Add("on_length", "complete");
  }
  if (thinking == Thinking::kKeep) json.Add("thinking", "keep");
  if (thinking_tokens.has_value()) json.Add("thinking_tokens", *thinking_tokens);
  return json;
}

// What of a request besides the model changes its answer.
std::string OptionsThatMatter(const RequestSpec& spec, absl::Span<const AdapterInfo> adapters) {
  Json json = OptionsWith(spec.options, ConstraintText(spec.options.constraint));
  // Else the prompt is as on_overflow has left it.
  if (spec.kept_end.has_value()) AddOverflow(spec, &json);
  if (!spec.told.empty()) json.Add("told", spec.told);
  if (TemperatureOf(spec.options) != 0) json.Add("draw_law", kDrawLaw);
  if (spec.reasoning_tokens != spec.options.thinking_tokens && spec.reasoning_tokens.has_value()) {
    json.Add("reasoning_tokens", *spec.reasoning_tokens);  // the context has no room for more
  }
  if (spec.wants_first_choices) json.Add("first_choices", true);
  if (spec.wants_probability) json.Add("probability", true);
  AddAdapters(spec, adapters, &json);
  return json.Dump();
}

Json PoolingName(Pooling pooling) {
  switch (pooling) {
    case Pooling::kMean:
      return Json("mean");
    case Pooling::kFirst:
      return Json("cls");
    case Pooling::kLast:
      break;
  }
  return Json("last");
}

// Of a vector: nothing of how an answer is generated matters to it.
MemoKey VectorKey(const Generator& generator, std::string identity, const RequestSpec& spec,
                  const std::string& owner) {
  Json json = Json::MakeObject();
  if (spec.ranks) {
    json.Add("rank", true);
  } else {  // the server of a model elsewhere pools as it was started to
    json.Add("embed", generator.engine() != nullptr ? PoolingName(*spec.embed) : Json(true));
  }
  MemoKey key = {.owner = owner, .model = std::move(identity)};
  if (spec.options.on_overflow != OnOverflow::kError) {
    AddOverflow(spec, &json);
    // Where the text may have been cut, it was for this context.
    const int64_t context = generator.max_sequence_tokens();
    if (static_cast<int64_t>(spec.prompt.size()) >= context) {
      absl::StrAppend(&key.model, "/", context);
    }
  }
  AddAdapters(spec, generator.info().adapters, &json);
  key.options = json.Dump();
  key.prompt = spec.ranks ? spec.text : Json::MakeArray().Append(spec.text).Dump();
  return key;
}

bool IsRemembered(const RequestSpec& spec) {
  if (spec.text.empty() || !Memoizable(spec.options)) return false;
  if (spec.embed.has_value()) return true;
  return !spec.score_prompt && !spec.stream && !spec.wants_logprob;  // which is not remembered
}

}  // namespace

Json OptionsOfAnswer(const GenerationOptions& options) {
  return OptionsWith(options, options.constraint.text);
}

int64_t MemoKey::bytes() const {
  return static_cast<int64_t>(sizeof(MemoKey) + owner.size() + model.size() + options.size() +
                              prompt.size());
}

bool Memoizable(const GenerationOptions& options) { return options.cache; }

std::optional<MemoKey> MakeMemoKey(const std::string& identity, const RequestSpec& spec,
                                   const std::string& owner,
                                   absl::Span<const AdapterInfo> adapters) {
  if (spec.embed.has_value() || !IsRemembered(spec)) return std::nullopt;
  return MemoKey{.owner = owner,
                 .model = identity,
                 .options = OptionsThatMatter(spec, adapters),
                 .prompt = spec.text};
}

absl::StatusOr<std::optional<MemoKey>> MakeMemoKey(const Generator& generator,
                                                   const RequestSpec& spec,
                                                   const std::string& owner, bool lasting) {
  if (!IsRemembered(spec)) return std::nullopt;
  std::string identity;
  if (lasting) {
    ASSIGN_OR_RETURN(identity, generator.lasting_identity());
  } else {
    identity = generator.identity();
  }
  if (spec.embed.has_value()) return VectorKey(generator, std::move(identity), spec, owner);
  std::optional<MemoKey> key = MakeMemoKey(identity, spec, owner, generator.info().adapters);
  // An answer that the end of the context may cut depends on where that is. (One of `choices` that
  // is cut is an error.)
  const int64_t context = generator.max_sequence_tokens();
  const bool may_be_cut = spec.options.constraint.kind != AnswerConstraint::Kind::kChoices;
  const int64_t most = TokensBesidePrompt(spec.options);
  if (may_be_cut && static_cast<int64_t>(spec.prompt.size()) + most > context) {
    absl::StrAppend(&key->model, "/", context);
  }
  return key;
}

}  // namespace lm

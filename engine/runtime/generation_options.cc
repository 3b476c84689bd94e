#include "engine/runtime/generation_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

template <typename T>
absl::Status OutOfRange(absl::string_view name, absl::string_view wanted, T got) {
  return absl::InvalidArgumentError(absl::StrCat(name, " must be ", wanted, ", got ", got));
}

}  // namespace

absl::string_view ConstraintName(AnswerConstraint::Kind kind) {
  switch (kind) {
    case AnswerConstraint::Kind::kNone:
      return "none";
    case AnswerConstraint::Kind::kChoices:
      return "choices";
    case AnswerConstraint::Kind::kRegex:
      return "regex";
    case AnswerConstraint::Kind::kSchema:
    case AnswerConstraint::Kind::kExtraction:
      return "schema";
    case AnswerConstraint::Kind::kGrammar:
      return "grammar";
  }
  return "none";
}

absl::Status CheckExamples(const GenerationOptions& options) {
  if (options.examples.set().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("examples '", options.examples.set(),
                   "' is a set of lm_examples, which SQL knows; here they are an array"));
}

// Comparisons are written so that a NaN fails them.
absl::Status ValidateGenerationOptions(const GenerationOptions& o) {
  if (o.max_tokens < 0) return OutOfRange("max_tokens", ">= 0", o.max_tokens);
  if (!(o.temperature >= 0) || std::isinf(o.temperature)) {
    return OutOfRange("temperature", ">= 0", o.temperature);
  }
  if (o.thinking_tokens.value_or(0) < 0) {
    return OutOfRange("thinking_tokens", ">= 0", *o.thinking_tokens);
  }
  if (o.top_k < 0) return OutOfRange("top_k", ">= 0", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) return OutOfRange("top_p", "in (0, 1]", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) return OutOfRange("min_p", "in [0, 1]", o.min_p);
  if (!(o.repeat_penalty > 0) || std::isinf(o.repeat_penalty)) {
    return OutOfRange("repeat_penalty", "> 0", o.repeat_penalty);
  }
  if (o.vote < 0 || o.vote > kMostVotes) {
    return OutOfRange("vote", absl::StrCat("from 0 to ", kMostVotes), o.vote);
  }
  if (o.n < 0 || o.n > kMostVotes) {
    return OutOfRange("n", absl::StrCat("from 0 to ", kMostVotes), o.n);
  }
  if (o.best_of < 0 || o.best_of > kMostVotes) {
    return OutOfRange("best_of", absl::StrCat("from 0 to ", kMostVotes), o.best_of);
  }
  if (o.best_of > 0 && o.best_of < o.n) {
    return OutOfRange("best_of", absl::StrCat("at least n, which is ", o.n), o.best_of);
  }
  if (o.vote > 0 && (o.n > 0 || o.best_of > 0)) {
    return absl::InvalidArgumentError(
        "vote cannot be combined with n or best_of: it has one answer");
  }
  if (o.messages && (!o.examples.empty() || !o.examples.set().empty())) {
    return absl::InvalidArgumentError(
        "examples cannot be combined with messages: put them into the prompt's messages");
  }
  if (o.messages && o.on_overflow != OnOverflow::kError) {
    return absl::InvalidArgumentError(
        "on_overflow must be 'error' where the prompt is messages: which of them to cut is not "
        "known");
  }
  if (o.timeout_ms < 0) return OutOfRange("timeout_ms", ">= 0", o.timeout_ms);
  if (!(o.max_seconds >= 0)) return OutOfRange("max_seconds", ">= 0", o.max_seconds);
  if (o.max_total_tokens < 0) return OutOfRange("max_total_tokens", ">= 0", o.max_total_tokens);
  if (!(o.max_cost >= 0)) return OutOfRange("max_cost", ">= 0", o.max_cost);
  if (o.stop.size() > kMaxStopStrings) {
    return OutOfRange("stop", absl::StrCat("at most ", kMaxStopStrings, " strings"), o.stop.size());
  }
  for (const std::string& stop : o.stop) {
    if (stop.empty()) return absl::InvalidArgumentError("stop must not hold an empty string");
    if (stop.size() > kMaxStopBytes) {
      return OutOfRange("stop", absl::StrCat("of strings of at most ", kMaxStopBytes, " bytes"),
                        stop.size());
    }
    if (const size_t valid = ValidUtf8Prefix(stop); valid < stop.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop must be valid UTF-8, byte ", valid, " of one is not"));
    }
  }
  if (!o.stop.empty() && o.constraint.kind != AnswerConstraint::Kind::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop cannot be combined with ", ConstraintName(o.constraint.kind),
                     ": a stop string could end the answer before it is whole"));
  }
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0) return OutOfRange("a token of logit_bias", ">= 0", token);
    if (!std::isfinite(bias)) return OutOfRange("logit_bias", "finite", bias);
  }
  return absl::OkStatus();
}

}  // namespace lm

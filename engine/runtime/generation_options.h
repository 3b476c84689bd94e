// GenerationOptions: how an answer is to be made. The JSON form is what SQL's last argument and the
// C API take; docs of each option are in sql/guide/options.md.
#ifndef LM_ENGINE_RUNTIME_GENERATION_OPTIONS_H_
#define LM_ENGINE_RUNTIME_GENERATION_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/runtime/examples.h"

namespace lm {

enum class OnError { kError, kNull, kJson };                     // SQL only
enum class OnOverflow { kError, kTruncateStart, kTruncateEnd };  // a prompt longer than fits
enum class OnLength { kCut, kComplete };                         // an answer at its limit
enum class Thinking { kDrop, kKeep };          // whether reasoning before an answer is part of it
enum class Priority { kBatch, kInteractive };  // which goes before kBatch
// Whether tokens of the answer are guessed and checked several at a time (speculator.h), which
// changes nothing about it: where that is quicker, never, or as often as there is a guess.
enum class Speculate { kAuto, kOff, kAlways };

// What an answer must look like, in one of four notations (see engine/grammar/grammar.h).
struct AnswerConstraint {
  enum class Kind {
    kNone,
    kChoices,
    kRegex,
    kSchema,
    kGrammar,
    kExtraction,  // a schema whose absent properties are null; no option of its own
  };
  Kind kind = Kind::kNone;
  std::string text = {};  // kChoices: a JSON array of strings; else the notation's own
  // Of schemas: see SchemaOptions.
  bool json_spaces = false;
  bool additional = false;
  bool strict_schema = false;

  friend bool operator==(const AnswerConstraint&, const AnswerConstraint&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AnswerConstraint& c) {
    return H::combine(std::move(h), c.kind, c.text, c.json_spaces, c.additional, c.strict_schema);
  }
};
// What users call it: "choices", "regex", "schema", "grammar".
absl::string_view ConstraintName(AnswerConstraint::Kind kind);

// An adapter of the model, by name, and how much of it.
struct AdapterChoice {
  std::string name = {};
  float scale = 1;

  friend bool operator==(const AdapterChoice&, const AdapterChoice&) = default;
};

struct GenerationOptions {
  std::string model = {};         // a name of lm_models; empty: the connection's default
  int32_t max_tokens = 256;       // >= 0; see MostAnswerTokens
  double temperature = 0;         // >= 0; 0: greedy
  bool says_temperature = false;  // it was asked for, whatever it is: some servers refuse any
  int32_t top_k = 0;              // >= 0; 0: all
  double top_p = 1;               // (0, 1]
  double min_p = 0;               // [0, 1]
  double repeat_penalty = 1;      // > 0; applies to the last 64 tokens
  uint64_t seed = 0;
  int32_t vote = 0;     // of choices: how many answers are counted (vote.h); 0: one is given
  int32_t n = 0;        // the answer is a JSON array of so many; 0: it is one answer, as text
  int32_t best_of = 0;  // of so many the ones that the model finds most probable; 0: of n
  // Not in the answer; at most kMaxStopStrings, none empty, UTF-8.
  std::vector<std::string> stop = {};
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // token id -> added to its logit
  // Each name once; nullopt: the scales that lm_models has.
  std::optional<std::vector<AdapterChoice>> lora = {};
  Examples examples = {};  // go before the prompt; not together with messages
  bool messages = false;   // the prompt is a JSON array of {role, content}
  Thinking thinking = Thinking::kDrop;
  // Of the reasoning before an answer (reasoning.h), beside max_tokens; 0: the model answers at
  // once. nullopt: it is a part of a free answer, and none comes before a constrained one.
  std::optional<int32_t> thinking_tokens = {};
  std::string template_args = {};    // a JSON object, what the chat template may ask for; or empty
  AnswerConstraint constraint = {};  // not together with stop
  OnError on_error = OnError::kError;
  OnOverflow on_overflow = OnOverflow::kError;
  OnLength on_length = OnLength::kCut;  // kComplete: see Sequence; without a constraint, no matter
  int64_t timeout_ms = 0;               // of the time of the model that is spent on it; 0: none
  double max_seconds = 0;               // SQL only: of the whole statement, on the clock; 0: none
  int64_t max_total_tokens = 0;         // SQL only: of all prompts and answers of the statement
  double max_cost = 0;                  // SQL only: likewise, of what they come to
  bool cache = true;                    // may be answered from the memo, and remembered there
  Priority priority = Priority::kBatch;
  Speculate speculate = Speculate::kAuto;

  friend bool operator==(const GenerationOptions&, const GenerationOptions&) = default;
};

// The most tokens of an answer: max_tokens. Where it is one of `choices` these say themselves where
// it ends: cut, it would be another of them, or none.
inline int32_t MostAnswerTokens(const GenerationOptions& options) {
  return options.constraint.kind == AnswerConstraint::Kind::kChoices
             ? std::numeric_limits<int32_t>::max()
             : options.max_tokens;
}

inline bool IsConstrained(const GenerationOptions& options) {
  return options.constraint.kind != AnswerConstraint::Kind::kNone;
}
inline bool Reasons(const GenerationOptions& options) {
  return options.thinking_tokens.value_or(0) > 0;
}
// The most tokens that end a reasoning, and follow it, which the model is not asked for.
inline constexpr int32_t kMostClosingTokens = 64;
// Tokens to keep room for beside a prompt: of the answer, and of the reasoning before it.
inline int64_t TokensBesidePrompt(const GenerationOptions& options) {
  const int64_t closing = Reasons(options) ? kMostClosingTokens : 0;
  return options.max_tokens + closing + options.thinking_tokens.value_or(0);
}

inline constexpr int32_t kMostVotes = 100;  // ... and samples

// How many answers are drawn for one request; 0: none is drawn beside it.
inline int32_t NumDrawn(const GenerationOptions& options) {
  return options.vote > 0 ? options.vote : std::max(options.n, options.best_of);
}
// At which an answer is drawn: those that are drawn beside each other at 1, unless it is said.
inline double TemperatureOf(const GenerationOptions& options) {
  return NumDrawn(options) > 0 && options.temperature == 0 ? 1 : options.temperature;
}
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string

// InvalidArgument, naming the option, its range and its value, where one is out of range.
absl::Status ValidateGenerationOptions(const GenerationOptions& options);

// InvalidArgument where they name a set of examples that was not looked up.
absl::Status CheckExamples(const GenerationOptions& options);

// Overlays the keys of a JSON object on *options; on an error *options stays as it was. Errors:
// InvalidArgument for text that is not a JSON object (with the byte where it stops being one), a
// key that is unknown (UnknownOption) or there twice, a wrong type (an integer
// written as 3.0 is one) or a value out of range ("temperature must be >= 0, got -1").
// `stop` is a string or an array of strings; `logit_bias` an object from token ids to numbers;
// `lora` an array of {"name": ..., "scale": 1.0};
// `examples` an array of {"prompt": ..., "answer": ...}, or the name of a set of them;
// `template_args` an object; `thinking` is "drop" or "keep", `on_length` "cut" or "complete",
// `speculate` "auto", "off" or "always", `messages`, `json_spaces`, `additional` and
// `strict_schema` are booleans; `choices` an array of strings, `regex` and `grammar` strings,
// `schema` a JSON Schema or a string that holds one. Of these four at most one may be given;
// whether it compiles is up to ConstraintCache.
absl::Status ParseGenerationOptions(absl::string_view json, GenerationOptions* options);

// Whether ParseGenerationOptions knows the key.
bool IsGenerationOption(absl::string_view name);

// The InvalidArgument for an unknown key. It names the nearest known one, of `others` and then of
// these options, where one is near enough to be meant.
absl::Status UnknownOption(absl::string_view name, absl::Span<const std::string> others = {});

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_GENERATION_OPTIONS_H_

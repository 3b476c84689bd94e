// Regular expressions, for CompileRegex and for the `pattern` of a JSON Schema. grammar.h describes
// the notation.
#ifndef LM_ENGINE_GRAMMAR_REGEX_PARSER_H_
#define LM_ENGINE_GRAMMAR_REGEX_PARSER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/code_point_set.h"
#include "engine/grammar/regex_tree.h"
#include "engine/grammar/text_form.h"

namespace lm {

// A parsed expression, and what it says about lengths.
struct RegexPiece {
  Fragment fragment;
  // No text is shorter or longer.
  uint64_t min_chars = 0;
  uint64_t max_chars = 0;  // or kUnboundedChars
  // Set if the expression is one class, min_chars to max_chars times: [a-z]+, \d{2,4}.
  std::optional<CodePointSet> unit;
};

struct RegexOptions {
  TextForm form = TextForm::kPlain;
  // The `pattern` of a JSON Schema: anything may stand before what matches and behind it, and white
  // space, ends of lines and {,n} are those of ECMA-262.
  bool pattern = false;
};

// InvalidArgument: what, and "at byte N" of `regex`.
absl::StatusOr<RegexPiece> ParseRegex(absl::string_view regex, const RegexOptions& options,
                                      AutomatonBuilder* builder);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_REGEX_PARSER_H_

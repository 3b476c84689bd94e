// CompileChoices; see grammar.h.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"

namespace lm {

absl::StatusOr<std::shared_ptr<const Grammar>> CompileChoices(
    absl::Span<const absl::string_view> choices) {
  if (choices.empty()) return absl::InvalidArgumentError("choices must not be empty");
  size_t bytes = 0;
  std::vector<std::string> texts;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i % 1024 == 0) RETURN_IF_ERROR(Checkpoint());
    const absl::string_view choice = choices[i];
    const std::string name = absl::StrCat("choice ", i + 1, " of ", choices.size());
    if (choice.empty()) return absl::InvalidArgumentError(absl::StrCat(name, " is empty"));
    if (size_t valid = ValidUtf8Prefix(choice); valid != choice.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is not valid UTF-8, at byte ", valid));
    }
    if (size_t nul = choice.find('\0'); nul != choice.npos) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has a NUL character, at byte ", nul));
    }
    bytes += choice.size();
    if (bytes > kMaxGrammarText) {
      return absl::InvalidArgumentError(
          absl::StrCat("choices are too large: more than ", kMaxGrammarText, " bytes with ", name));
    }
    texts.emplace_back(choice);
  }
  AutomatonBuilder builder;
  const RuleId root = builder.AddRule("choices");
  builder.Define(root, builder.AnyLiteral(std::move(texts)));
  ASSIGN_OR_RETURN(Automaton automaton, std::move(builder).Build(root));
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace lm

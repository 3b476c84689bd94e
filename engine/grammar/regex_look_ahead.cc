#include "engine/grammar/regex_look_ahead.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/grammar/regex_compiler.h"
#include "engine/grammar/text_set.h"

namespace lm {
namespace {

absl::StatusOr<TextSet> SetOf(const RegexTree& tree) {
  AutomatonBuilder builder;
  ASSIGN_OR_RETURN(const Fragment fragment, CompileRegexTree(tree, TextForm::kPlain, &builder));
  return TextSet::OfFragment(fragment, std::move(builder));
}

}  // namespace

absl::StatusOr<Fragment> CompileWithLookAheads(const RegexTree& tree,
                                               const std::vector<LookAhead>& look_aheads,
                                               TextForm form, AutomatonBuilder* builder) {
  ASSIGN_OR_RETURN(TextSet texts, SetOf(tree));
  for (const LookAhead& look_ahead : look_aheads) {
    ASSIGN_OR_RETURN(const TextSet others, SetOf(look_ahead.tree));
    ASSIGN_OR_RETURN(texts, look_ahead.negated ? texts.Minus(others) : texts.Intersect(others));
  }
  if (texts.empty()) {
    return builder->Nothing("what the look-ahead of the regular expression asks for cannot hold");
  }
  return texts.Write(form, builder);
}

}  // namespace lm

#include "engine/grammar/text_form.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// The JSON escape of a character that needs one.
std::string EscapeOf(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrCat("\\u", absl::Hex(c, absl::kZeroPad4));
  }
}

}  // namespace

CodePointSet UnescapedInJson() {
  CodePointSet escaped = CodePointSet::Of(0, 0x1f);
  escaped.Add('"');
  escaped.Add('\\');
  return escaped.Complement();
}

Fragment ClassIn(TextForm form, const CodePointSet& set, AutomatonBuilder* builder) {
  if (form == TextForm::kPlain) return builder->Class(set);
  const CodePointSet escaped = set.Minus(UnescapedInJson());
  if (escaped.empty()) return builder->Class(set);
  std::vector<std::string> escapes;
  for (const CodePointSet::Range& range : escaped.ranges()) {
    for (uint32_t c = range.low; c <= range.high; ++c) escapes.push_back(EscapeOf(c));
  }
  const CodePointSet unescaped = set.Intersect(UnescapedInJson());
  Fragment any_escape = builder->AnyLiteral(std::move(escapes));
  if (unescaped.empty()) return any_escape;
  return builder->Alternate({builder->Class(unescaped), any_escape});
}

}  // namespace lm

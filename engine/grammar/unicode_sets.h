// What Unicode says about characters, as sets of them: general categories, scripts, binary
// properties, and which letters are one another's other case. From PCRE2's tables, each read when
// it is first asked for and kept for the process.
#ifndef LM_ENGINE_GRAMMAR_UNICODE_SETS_H_
#define LM_ENGINE_GRAMMAR_UNICODE_SETS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/code_point_set.h"

namespace lm {

// What \p{name} stands for: "Lu", "Uppercase_Letter", "gc=Lu", "Latin", "Script=Latin" (the same),
// "scx=Latin" (Script_Extensions), "Alphabetic", "Any", "Assigned". Capitals, spaces, '-' and '_'
// do not matter. NotFound for other names. The set is never destroyed. Thread-safe.
absl::StatusOr<const CodePointSet*> UnicodeProperty(absl::string_view name);

// With every character that is one of `set` but for its case, by simple case folding: ß and ẞ, not
// ß and ss. Nobody who writes k wants an answer with the sign of the kelvin, so letters of ASCII
// have no other case than that of ASCII, as ECMA-262 has it with the flag i alone. Thread-safe.
absl::StatusOr<CodePointSet> FoldCase(const CodePointSet& set);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_UNICODE_SETS_H_

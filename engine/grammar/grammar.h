// What a model's answer may look like, compiled from one of four notations to one automaton.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar,
//                    CompileJsonSchema(R"({"type": "object",
//                                          "properties": {"age": {"type": "integer"}},
//                                          "required": ["age"]})"));
//   bool ok = grammar->Matches(R"({"age": 42})");                  // true
//   GrammarMatcher matcher(Constraint::Create(grammar, trie));     // see grammar_matcher.h
//
// A grammar is a set of texts. All of them are valid UTF-8 without U+0000. Compilation takes time
// and memory linear in the input and refuses, with a message that names the place and the limit,
// what is too large, too deep or not supported; it never recurses deeper than those limits.
#ifndef LM_ENGINE_GRAMMAR_GRAMMAR_H_
#define LM_ENGINE_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/automaton.h"

namespace lm {

// Bytes of a regular expression, a GBNF grammar or a schema; of all choices together.
inline constexpr size_t kMaxGrammarText = 1 << 20;
// Groups within groups; objects and arrays within each other in a schema.
inline constexpr int kMaxGrammarDepth = 100;

// Immutable; thread-safe.
class Grammar {
 public:
  explicit Grammar(Automaton automaton) : automaton_(std::move(automaton)) {}

  // The whole of `text` is one of the grammar's texts. Takes a machine of its own: for tests and
  // single checks. ResourceExhausted for a grammar that is ambiguous beyond reason.
  absl::StatusOr<bool> Matches(absl::string_view text) const;

  const Automaton& automaton() const { return automaton_; }

 private:
  Automaton automaton_;
};

// One of these texts, exactly: CompileChoices({"positive", "negative"}).
// InvalidArgument for no choice, an empty one, or one that is not UTF-8 (with its number).
absl::StatusOr<std::shared_ptr<const Grammar>> CompileChoices(
    absl::Span<const absl::string_view> choices);

// A regular expression that the whole text matches: CompileRegex("[A-Z]{2}-\\d+").
//
//   x  \n \r \t \f \v  \xHH \uHHHH \u{H…}  \. \* …   one character; any sign may be escaped
//   .                     any character but newline
//   [a-zé\d_] [^"]        classes, with ranges of characters; they may name U+0000
//   \d \D \w \W \s \S     [0-9], [A-Za-z0-9_], [ \t\n\r\f\v] and everything else, flags or not
//   \p{L} \P{L} \pL       what Unicode says of a character, and the opposite; in classes too: a
//       general category (Lu, Uppercase_Letter, gc=Lu), a script (Greek, sc=Greek; scx=Greek is
//       Script_Extensions), a binary property (Alphabetic, Emoji)
//   xy  x|y  (x)  (?:x)  (?<name>x)  (?P<name>x)     groups only group
//   x? x* x+ x{m} x{m,} x{m,n} x{,n}                 a lazy ? behind these changes nothing
//   (?i)  (?i:x)  (?s)    to the end of the group, or in it: without regard to case; . is a newline
//       too; (?-i:x) is with regard to it again. Simple case folding, but letters of ASCII
//       have only the case of ASCII: k is K, and not U+212A. [^x] and \P{x} stay the opposites of
//       [x] and \p{x}.
//   ^ \A  $ \z            the very beginning and end. At the outer ends they are implied; elsewhere
//       they rule out what would stand before or behind them: (^|,)x(,|$) is x, ",x", "x,", ",x,".
//   \b \B                 between a character of \w and none; not there
//   (?=x) (?!x)           at the beginning of the expression or of one of its outermost
//       alternatives, behind ^ if there is one, up to 20: some beginning of the text matches x, or
//       none does
//
// Other look-around, backreferences, other flags, possessive and atomic groups are InvalidArgument:
// "... is not supported, at byte N".
absl::StatusOr<std::shared_ptr<const Grammar>> CompileRegex(absl::string_view regex);

// The grammar notation of llama.cpp; the answer is what the rule `root` derives.
//
//   # a list of one or two names
//   root ::= name ("," name)?
//   name ::= [A-Z] [a-z]{1,20}
//
// "literals" and [classes] with the escapes \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH, `.` for
// any character, groups, | ? * + {m} {m,} {m,n}, and comments; classes may name U+0000. A rule goes
// on after `|`, in parentheses and on a line that begins with `|`. InvalidArgument with line and
// column for syntax, undefined and doubly defined rules; with the rules' names for left recursion.
// Token references (<think>, <[7]>) are not supported.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileGbnf(absl::string_view grammar);

// JSON text that is valid against a JSON Schema (draft 2020-12; older drafts' `definitions` and
// `items` arrays are understood).
//
// Form. Every value has one text, so that equal answers are equal texts:
// - No white space.
// - Properties come in the schema's order. Others come after them, as the model has them.
// - In strings '"', '\' and control characters are escaped, by \" \\ \b \f \n \r \t or else \u00xx;
//   nothing else is.
// - Numbers have no zeros at the end of a fraction, no fraction of 0, no -0, no +, and no exponent
//   but where they would have more than 21 digits before the point or 14 behind it; then there is
//   one digit before the point, as in 6.02e23. Integers of `enum` and `const` beyond 64 bits keep
//   the digits that a double would round.
// With JsonSpaces::kAllowed one space may stand behind each ':' and ','.
// Every text that is produced is valid; not every value can be produced: whole numbers have at most
// 18 digits where no bound asks for more, numbers with a fraction or an exponent 15, exponents two,
// and numbers with bounds have no exponent; strings that match a pattern or format within a
// maxLength are as long as 20,000 states allow, and have 4,000 characters at most where minLength
// does not ask for more; a hostname has eight labels and 251 characters at most, an email eight
// atoms, eight labels and 253 characters (of more than four labels each has 26 or 22 characters but
// the first of a hostname, else an email's have 40), where no length or pattern stands beside them;
// there 250 and 252 characters and any number of them;
// T and Z of times are capitals; a uri beside a pattern or a length names no IPv6 address, and an
// ipv6 with a maxLength below 45 ends with no IPv4 address; where uniqueItems has more than 4,096
// sets of values to tell apart, the values stand in the schema's order; 4,000 items at most are
// those that maxContains counts, where maxItems allows more, and fewer beside a minItems of many;
// where unevaluatedProperties or unevaluatedItems stand beside an anyOf of more than five branches,
// one of them speaks at a time.
//
// A pattern is a regular expression as CompileRegex has it, but for \s, \S, `.` and {,n}: those are
// ECMA-262's, where U+00A0 is white space, \r ends a line and {,n} stands for itself; it has no \A,
// \z and \pL, its look-ahead stands behind a ^, and \b and \B within (?i) are refused.
//
// Keywords. Those of drafts 4 to 2020-12 and `nullable`, $ref within the document (to $id, $anchor,
// definitions; recursive too), $dynamicRef and $recursiveRef where one schema has that anchor, all
// formats of the standard, and uuid1 and uuid3 to uuid8 (others are annotations), but for
//   $ref to elsewhere; unevaluatedItems beside `contains`;
//   uniqueItems, where the items' values are not few (enum, const, boolean, null, small integers);
//   the opposite (`not`, the other branches of a oneOf that are not apart, `if`) of a format, of
//   multipleOf, patternProperties, propertyNames, of additionalProperties and prefixItems, of
//   unevaluatedProperties and unevaluatedItems;
//   several `contains`, or minProperties beside open members above one more than is required;
// which are InvalidArgument, with the JSON pointer of the place, where they matter. Never is a text
// produced that is not valid. InvalidArgument too where nothing can be valid, with the places that
// contradict each other.
//
// What JSON Schema leaves open is read as it was meant, most likely: where `properties` or
// patternProperties are given without additionalProperties, there are no others; where there is no
// `type`, it is that of which the keywords speak. A oneOf still asks that no other branch is valid
// word for word: where that leaves nothing of a branch, as of one of two open objects without
// `required`, or of a string beside a branch without `type`, it is InvalidArgument.
enum class JsonSpaces : uint8_t { kNone, kAllowed };
struct SchemaOptions {
  JsonSpaces spaces = JsonSpaces::kNone;
  // Word for word as JSON Schema has it, open members and all. Else what was meant (see above), and
  // a misspelt keyword (minlength, requird) is refused, like a schema of unknown keywords alone.
  // Either way each text is valid.
  bool additional = false;
  // Keywords and formats that are not known are refused; else ignored, as JSON Schema has it. So
  // are OpenAPI's `nullable` and draft 3's type "any", which are understood else.
  bool strict = false;
};
absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(absl::string_view schema,
                                                                 const SchemaOptions& options = {});

// The same where every property that is named is written, with null where it may also be absent:
// what is extracted from a text that need not say everything.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileExtractionSchema(
    absl::string_view schema, const SchemaOptions& options = {});

// Whether JSON Schema has a keyword of that name, supported here or not.
bool IsSchemaKeyword(absl::string_view name);
// The names in a schema that are no keywords, each once, with what may have been meant. x-... are
// meant for others.
std::vector<std::string> IgnoredKeywords(absl::string_view schema);
// The values of `format` in a schema that are not known, in quotes, each once.
std::vector<std::string> IgnoredFormats(absl::string_view schema);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_GRAMMAR_H_

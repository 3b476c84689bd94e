#include "engine/grammar/regex_lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/unicode_sets.h"

namespace lm {
namespace {

// The one character of a set, where it has one.
std::optional<uint32_t> OneCharOf(const CodePointSet& set) {
  const bool is_one = set.ranges().size() == 1 && set.ranges()[0].low == set.ranges()[0].high;
  return is_one ? std::optional<uint32_t>(set.ranges()[0].low) : std::nullopt;
}

}  // namespace

absl::Status RegexLexer::Error(absl::string_view what, size_t offset) const {
  return absl::InvalidArgumentError(absl::StrCat("regex: ", what, ", at byte ", offset));
}

CodePointSet RegexLexer::Shorthand(char letter) const {
  CodePointSet set;
  switch (letter) {
    case 'w':
      set.Add('a', 'z');
      set.Add('A', 'Z');
      set.Add('_');
      [[fallthrough]];
    case 'd':
      set.Add('0', '9');
      break;
    case 's':
      set.Add('\t', '\r');  // \t \n \v \f \r
      set.Add(' ');
      if (!ecma_) break;
      // WhiteSpace and LineTerminator: https://tc39.es/ecma262/#sec-white-space
      for (uint32_t c : {0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000, 0xfeff}) set.Add(c);
      set.Add(0x2000, 0x200a);
      break;
    default:
      break;
  }
  return set;
}

absl::StatusOr<CodePointSet> RegexLexer::OtherThan(char letter) const {
  CodePointSet set = Shorthand(letter);
  // ECMA-262 counts what is a letter of \w but for its case to \w.
  if (ecma_ && letter == 'w') {
    ASSIGN_OR_RETURN(set, WithFlags(std::move(set)));
  }
  return set.Complement();
}

absl::StatusOr<CodePointSet> RegexLexer::WithFlags(CodePointSet set) const {
  if (!flags_.ignore_case) return set;
  return FoldCase(set);
}

bool RegexLexer::TakeFlags(Flags* flags) {
  *flags = flags_;
  bool value = true;
  for (; !AtEnd(); ++pos_) {
    if (Peek() == 'i') {
      flags->ignore_case = value;
    } else if (Peek() == 's') {
      flags->dot_all = value;
    } else if (Peek() == '-' && value) {
      value = false;
    } else {
      break;
    }
  }
  return LooksAt(":") || LooksAt(")");
}

CodePointSet RegexLexer::AnyChar() const {
  if (flags_.dot_all) return CodePointSet::All();
  CodePointSet ends = CodePointSet::Of('\n', '\n');
  if (ecma_) {
    ends.Add('\r');
    ends.Add(0x2028, 0x2029);
  }
  return ends.Complement();
}

uint32_t RegexLexer::TakeChar() { return DecodeUtf8(regex_, &pos_); }

absl::StatusOr<CodePointSet> RegexLexer::TakeLetter() {
  const uint32_t letter = TakeChar();
  return WithFlags(CodePointSet::Of(letter, letter));
}

absl::StatusOr<uint32_t> RegexLexer::TakeHex(size_t min_digits, size_t max_digits,
                                             size_t escape_offset) {
  uint32_t value = 0;
  size_t digits = 0;
  for (; digits < max_digits && !AtEnd() && absl::ascii_isxdigit(Peek()); ++digits) {
    const char c = absl::ascii_tolower(regex_[pos_++]);
    value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (digits < min_digits) return Error("an escape with too few hex digits", escape_offset);
  return value;
}

absl::StatusOr<CodePointSet> RegexLexer::TakeProperty(size_t escape_offset) {
  const size_t begin = pos_;
  absl::string_view name;
  if (Consume("{")) {
    const size_t end = regex_.find('}', pos_);
    if (end == regex_.npos) return Error("\\p{ without }", escape_offset);
    name = regex_.substr(pos_, end - pos_);
    pos_ = end + 1;
  } else if (!ecma_ && !AtEnd() && absl::ascii_isalpha(Peek())) {
    name = regex_.substr(pos_++, 1);
  } else {
    return Error("\\p without {name}", escape_offset);
  }
  const absl::StatusOr<const CodePointSet*> set = UnicodeProperty(name);
  if (absl::IsNotFound(set.status())) {
    const absl::string_view shown = regex_.substr(begin, std::min<size_t>(pos_ - begin, 60));
    return Error(absl::StrCat("the Unicode property \\p", absl::CHexEscape(shown), " is not known"),
                 escape_offset);
  }
  RETURN_IF_ERROR(set.status());
  return **set;
}

absl::StatusOr<CodePointSet> RegexLexer::TakeEscape() {
  bool has_case = false;
  ASSIGN_OR_RETURN(CodePointSet set, TakeRawEscape(&has_case));
  if (!has_case) return set;
  return WithFlags(std::move(set));
}

absl::StatusOr<CodePointSet> RegexLexer::TakeRawEscape(bool* has_case, bool* is_nul) {
  const size_t offset = pos_++;
  *has_case = true;
  if (AtEnd()) return Error("a '\\' at the end", offset);
  const char c = Peek();
  if (static_cast<uint8_t>(c) >= 0x80) {
    const uint32_t letter = TakeChar();
    return CodePointSet::Of(letter, letter);
  }
  ++pos_;
  if (!absl::ascii_isalnum(c)) return CodePointSet::Of(c, c);
  if (CodePointSet set = Shorthand(c); !set.empty()) {
    *has_case = false;
    return set;
  }
  if (!Shorthand(absl::ascii_tolower(c)).empty()) {
    *has_case = false;
    return OtherThan(absl::ascii_tolower(c));
  }
  uint32_t value = 0;
  switch (c) {
    case 'n':
      value = '\n';
      break;
    case 'r':
      value = '\r';
      break;
    case 't':
      value = '\t';
      break;
    case 'f':
      value = '\f';
      break;
    case 'v':
      value = '\v';
      break;
    case 'x': {
      ASSIGN_OR_RETURN(value, TakeHex(2, 2, offset));
      break;
    }
    case 'u':
      if (Consume("{")) {
        ASSIGN_OR_RETURN(value, TakeHex(1, 6, offset));
        if (!Consume("}")) return Error("\\u{ without }", offset);
      } else {
        ASSIGN_OR_RETURN(value, TakeHex(4, 4, offset));
      }
      break;
    case 'b':  // \b is one of a class, where it is another thing
    case 'B':
      return Error(absl::StrCat("\\", std::string(1, c), " in a class"), offset);
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
      return Error(absl::StrCat("the anchor \\", std::string(1, c), " is not supported"), offset);
    case 'p':
      return TakeProperty(offset);
    case 'P': {
      ASSIGN_OR_RETURN(CodePointSet set, TakeProperty(offset));
      ASSIGN_OR_RETURN(set, WithFlags(std::move(set)));
      return set.Complement();
    }
    case 'k':
      return Error("a backreference (\\k) is not supported", offset);
    default:
      if (c >= '1' && c <= '9') {
        return Error(absl::StrCat("a backreference (\\", std::string(1, c), ") is not supported"),
                     offset);
      }
      return Error(absl::StrCat("the escape \\", std::string(1, c), " is not known"), offset);
  }
  CodePointSet set = CodePointSet::Of(value, value);
  if (value == 0 && is_nul != nullptr) {
    *is_nul = true;
    return set;
  }
  if (set.empty()) return Error("an escape that is no character, or is NUL", offset);
  return set;
}

absl::StatusOr<CodePointSet> RegexLexer::TakeClass() {
  const size_t open = pos_++;
  const bool negated = Consume("^");
  if (LooksAt("]")) return Error("an empty class (a ']' in it is written \\])", open);
  CodePointSet set, caseless;
  // One character or, from an escape, perhaps a class. NUL may be named, and no text has it.
  bool has_case = true, is_nul = false;
  auto take = [&]() -> absl::StatusOr<CodePointSet> {
    has_case = true;
    is_nul = false;
    if (Peek() == '\\') {
      if (LooksAt("\\b")) {  // backspace, in a class
        pos_ += 2;
        return CodePointSet::Of('\b', '\b');
      }
      return TakeRawEscape(&has_case, &is_nul);
    }
    if (LooksAt("[:")) return Error("a POSIX class ([:...:]) is not supported", pos_);
    const uint32_t c = TakeChar();
    return CodePointSet::Of(c, c);
  };
  while (!AtEnd() && Peek() != ']') {
    const size_t offset = pos_;
    ASSIGN_OR_RETURN(const CodePointSet low, take());
    const bool is_range = LooksAt("-") && !LooksAt("-]") && pos_ + 1 < regex_.size();
    if (!is_range) {
      (has_case ? set : caseless).Add(low);
      continue;
    }
    ++pos_;
    const std::optional<uint32_t> from = is_nul ? 0 : OneCharOf(low);
    ASSIGN_OR_RETURN(const CodePointSet high, take());
    const std::optional<uint32_t> to = is_nul ? 0 : OneCharOf(high);
    if (!from || !to) {
      return Error(
          "a range that does not go from character to character (the sign '-' itself is written "
          "\\-)",
          offset);
    }
    if (*from > *to) return Error("a range that goes backwards", offset);
    set.Add(*from, *to);
  }
  if (!Consume("]")) return Error("a '[' without ']'", open);
  ASSIGN_OR_RETURN(set, WithFlags(std::move(set)));
  set.Add(caseless);
  return negated ? set.Complement() : set;
}

std::optional<int64_t> RegexLexer::TakeNumber() {
  if (AtEnd() || !absl::ascii_isdigit(Peek())) return std::nullopt;
  int64_t value = 0;
  for (; !AtEnd() && absl::ascii_isdigit(Peek()); ++pos_) {
    value = std::min(value * 10 + (Peek() - '0'), kMaxRepeat + 1);
  }
  return value;
}

absl::StatusOr<std::optional<RegexLexer::Counts>> RegexLexer::TakeCounts() {
  const size_t open = pos_++;
  std::optional<int64_t> min = TakeNumber();
  std::optional<int64_t> max = min;
  if ((min || !ecma_) && Consume(",")) {
    max = TakeNumber();
    if (!min && max) min = 0;
  }
  if (!min || !Consume("}")) {
    pos_ = open;
    return std::optional<Counts>();
  }
  if (*min > kMaxRepeat || max.value_or(0) > kMaxRepeat) {
    return Error(absl::StrCat("a repetition above the limit ", kMaxRepeat), open);
  }
  if (max && *max < *min) return Error("a repetition whose counts go backwards", open);
  return std::optional<Counts>({*min, max});
}

}  // namespace lm

// The letters of a regular expression: escapes, classes, counts, flags. RegexParser builds on it.
#ifndef LM_ENGINE_GRAMMAR_REGEX_LEXER_H_
#define LM_ENGINE_GRAMMAR_REGEX_LEXER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/code_point_set.h"

namespace lm {

class RegexLexer {
 public:
  struct Counts {
    int64_t min;
    std::optional<int64_t> max;
  };

  // (?is), for what is read from now on.
  struct Flags {
    bool ignore_case = false;
    bool dot_all = false;
  };

  // With `ecma`, \s, \S, . and {,n} are those of ECMA-262; else those of CompileRegex.
  // REQUIRES: valid UTF-8 without U+0000, which outlives this.
  explicit RegexLexer(absl::string_view regex, bool ecma = false) : regex_(regex), ecma_(ecma) {}

  bool AtEnd() const { return pos_ == regex_.size(); }
  size_t pos() const { return pos_; }
  char Peek() const { return regex_[pos_]; }
  void Skip(size_t bytes) { pos_ += bytes; }
  bool LooksAt(absl::string_view text) const { return regex_.substr(pos_, text.size()) == text; }
  bool Consume(absl::string_view text) {
    if (!LooksAt(text)) return false;
    pos_ += text.size();
    return true;
  }

  const Flags& flags() const { return flags_; }
  void set_flags(const Flags& flags) { flags_ = flags; }
  // The letters of flags behind "(?", which change those of now: "is-i". False where others follow
  // than letters that are known; stays there.
  bool TakeFlags(Flags* flags);

  // The character here; as a set, with its other cases where case is ignored.
  uint32_t TakeChar();
  absl::StatusOr<CodePointSet> TakeLetter();
  // What `.` stands for.
  CodePointSet AnyChar() const;
  // What the escape here stands for: one character, or a class such as \d. REQUIRES: at '\'.
  absl::StatusOr<CodePointSet> TakeEscape();
  // REQUIRES: at '['.
  absl::StatusOr<CodePointSet> TakeClass();
  // {m}, {m,}, {m,n} or {,n}; nothing, and stays, where the brace is an ordinary character.
  absl::StatusOr<std::optional<Counts>> TakeCounts();

  absl::Status Error(absl::string_view what, size_t offset) const;

 private:
  // TakeEscape without regard to the flags; *has_case is set where they matter. NUL is an error, or
  // the empty set with *is_nul, where there is one.
  absl::StatusOr<CodePointSet> TakeRawEscape(bool* has_case, bool* is_nul = nullptr);
  absl::StatusOr<CodePointSet> WithFlags(CodePointSet set) const;
  // {name} behind \p.
  absl::StatusOr<CodePointSet> TakeProperty(size_t escape_offset);
  // The opposite of Shorthand.
  absl::StatusOr<CodePointSet> OtherThan(char letter) const;
  absl::StatusOr<uint32_t> TakeHex(size_t min_digits, size_t max_digits, size_t escape_offset);
  std::optional<int64_t> TakeNumber();

  // \d, \w, \s; empty for other letters.
  CodePointSet Shorthand(char letter) const;

  absl::string_view regex_;
  bool ecma_;
  Flags flags_;
  size_t pos_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_REGEX_LEXER_H_

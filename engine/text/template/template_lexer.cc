#include "engine/text/template/template_lexer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/token_index.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

using TokenKind = TemplateToken::Kind;

constexpr size_t kMaxSourceBytes = 1 << 20;

bool IsNameByte(char c) {
  return absl::ascii_isalnum(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// Line ends become \n, and one at the very end goes.
std::string Normalised(absl::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const bool carriage_return = source[i] == '\r';
    text.push_back(carriage_return ? '\n' : source[i]);
    if (carriage_return && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (absl::EndsWith(text, "\n")) text.pop_back();
  return text;
}

void StripRight(absl::string_view* text) {
  size_t end = 0;
  for (size_t pos = 0; pos < text->size();) {
    if (!IsUnicodeSpace(DecodeUtf8(*text, &pos))) end = pos;
  }
  *text = text->substr(0, end);
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<TemplateToken>> Run() {
    while (pos_ < source_.size()) {
      const size_t open = FindOpen();
      absl::string_view text = source_.substr(pos_, open - pos_);
      if (open == source_.size()) {
        AddText(text);
        pos_ = open;
        break;
      }
      const char kind = source_[open + 1];
      const char sign = open + 2 < source_.size() ? source_[open + 2] : 0;
      StripBefore(sign, kind != '{', &text);
      AddText(text);
      CountLines(open);
      pos_ = open + 2;
      if (sign == '-' || sign == '+') ++pos_;
      if (kind == '#') {
        RETURN_IF_ERROR(Comment());
      } else if (kind == '%' && TakeRawBegin()) {
        RETURN_IF_ERROR(Raw());
      } else {
        RETURN_IF_ERROR(Tag(kind == '{'));
      }
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Add(TokenKind kind, absl::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }
  void AddText(absl::string_view text) {
    if (!text.empty()) Add(TokenKind::kText, text);
  }
  absl::Status Error(absl::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("line ", line_, ": ", what));
  }
  absl::string_view Rest() const { return source_.substr(pos_); }
  // line_ is that of counted_.
  void CountLines(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + counted_, source_.begin() + to, '\n'));
    counted_ = to;
  }
  bool Take(absl::string_view what) {
    if (!absl::StartsWith(Rest(), what)) return false;
    pos_ += what.size();
    return true;
  }
  void SkipSpace() {
    while (pos_ < source_.size()) {
      size_t next = pos_;
      if (!IsUnicodeSpace(DecodeUtf8(source_, &next))) return;
      pos_ = next;
    }
  }

  size_t FindOpen() const {
    size_t open = pos_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == absl::string_view::npos || open + 1 == source_.size()) return source_.size();
      const char kind = source_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') return open;
    }
  }

  // The text in front of a tag, by the tag's sign; `block` where lstrip_blocks speaks of it.
  void StripBefore(char sign, bool block, absl::string_view* text) const {
    if (sign == '-') {
      StripRight(text);
    } else if (sign != '+' && block) {
      const size_t line = text->rfind('\n') + 1;  // npos + 1 is 0
      if (line == 0 && !line_starts_) return;
      absl::string_view head = text->substr(0, line);
      absl::string_view tail = text->substr(line);
      StripRight(&tail);
      if (tail.empty()) *text = head;
    }
  }

  // Behind a tag that ends at pos_ - 2 with `sign`: what of the text goes, and whether a line
  // starts.
  void EndTag(char sign, bool block) {
    const size_t before = pos_;
    if (sign == '-') {
      SkipSpace();
    } else if (block && sign != '+') {
      Take("\n");
    }
    line_starts_ = pos_ > before && source_[pos_ - 1] == '\n';
  }

  absl::Status Comment() {
    const size_t close = source_.find("#}", pos_);
    if (close == absl::string_view::npos) return Error("a comment that is not closed");
    const char sign = close > pos_ ? source_[close - 1] : 0;
    pos_ = close + 2;
    EndTag(sign, /*block=*/true);
    return absl::OkStatus();
  }

  // `raw %}` behind the brace that is open.
  bool TakeRawBegin() {
    const size_t before = pos_;
    SkipSpace();
    if (Take("raw")) {
      SkipSpace();
      const bool minus = Take("-%}");
      if (minus || Take("%}")) {
        if (minus) SkipSpace();
        line_starts_ = pos_ > 0 && source_[pos_ - 1] == '\n';
        return true;
      }
    }
    pos_ = before;
    return false;
  }

  absl::Status Raw() {
    const size_t begin = pos_;
    for (size_t open = begin;; ++open) {
      open = source_.find("{%", open);
      if (open == absl::string_view::npos) return Error("a raw block that is not closed");
      pos_ = open + 2;
      const char sign = pos_ < source_.size() ? source_[pos_] : 0;
      if (sign == '-' || sign == '+') ++pos_;
      SkipSpace();
      if (!Take("endraw")) continue;
      SkipSpace();
      const char end_sign = pos_ < source_.size() ? source_[pos_] : 0;
      if (end_sign == '-' || end_sign == '+') ++pos_;
      if (!Take("%}")) continue;
      absl::string_view text = source_.substr(begin, open - begin);
      StripBefore(sign, /*block=*/true, &text);
      AddText(text);
      CountLines(open);
      EndTag(end_sign, /*block=*/true);
      return absl::OkStatus();
    }
  }

  // The tokens up to the end of the tag, closing braces that belong to opened ones aside.
  absl::Status Tag(bool output) {
    Add(output ? TokenKind::kOutputBegin : TokenKind::kStatementBegin, "");
    const absl::string_view close = output ? "}}" : "%}";
    std::string open;  // the brackets that wait for their partners
    for (;;) {
      SkipSpace();
      CountLines(pos_);
      if (pos_ == source_.size()) return Error("a tag that is not closed");
      if (open.empty()) {
        const char sign = source_[pos_];
        const bool signed_end = sign == '-' || (sign == '+' && !output);
        if (signed_end && absl::StartsWith(source_.substr(pos_ + 1), close)) {
          pos_ += 3;
          Add(output ? TokenKind::kOutputEnd : TokenKind::kStatementEnd, "");
          EndTag(sign, !output);
          return absl::OkStatus();
        }
        if (Take(close)) {
          Add(output ? TokenKind::kOutputEnd : TokenKind::kStatementEnd, "");
          EndTag(0, !output);
          return absl::OkStatus();
        }
      }
      const char c = source_[pos_];
      if (c == '\'' || c == '"') {
        RETURN_IF_ERROR(String(c));
      } else if (absl::ascii_isdigit(c)) {
        RETURN_IF_ERROR(Number());
      } else if (IsNameByte(c)) {
        const size_t begin = pos_;
        while (pos_ < source_.size() && IsNameByte(source_[pos_])) ++pos_;
        Add(TokenKind::kName, source_.substr(begin, pos_ - begin));
      } else {
        RETURN_IF_ERROR(Operator(&open));
      }
    }
  }

  absl::Status Operator(std::string* open) {
    for (absl::string_view two : {"==", "!=", ">=", "<=", "//", "**"}) {
      if (!Take(two)) continue;
      Add(TokenKind::kOperator, two);
      return absl::OkStatus();
    }
    const char c = source_[pos_];
    if (!absl::StrContains("+-/*%~[](){}><=.:|,;", c)) {
      return Error(absl::StrCat(QuoteName(Rest().substr(0, 8)), " there"));
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open->empty() || open->back() != partner) {
        return Error(absl::StrCat(QuoteName(Rest().substr(0, 1)), " there"));
      }
      open->pop_back();
    }
    Add(TokenKind::kOperator, Rest().substr(0, 1));
    ++pos_;
    return absl::OkStatus();
  }

  void Digits(std::string* digits) {
    while (pos_ < source_.size() && (absl::ascii_isdigit(source_[pos_]) || source_[pos_] == '_')) {
      if (source_[pos_] != '_') digits->push_back(source_[pos_]);
      ++pos_;
    }
  }

  absl::Status Number() {
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    const absl::string_view next = source_.substr(pos_ + 1, 1);
    if (source_[pos_] == '0' && !next.empty() && absl::StrContains("xXoObB", next)) {
      return Error("a number in another base");
    }
    std::string number;
    Digits(&number);
    bool is_float = false;
    if (!after_dot && pos_ + 1 < source_.size() && source_[pos_] == '.' &&
        absl::ascii_isdigit(source_[pos_ + 1])) {
      is_float = true;
      number.push_back('.');
      ++pos_;
      Digits(&number);
    }
    if (!after_dot && pos_ + 1 < source_.size() && absl::ascii_tolower(source_[pos_]) == 'e') {
      size_t digit = pos_ + 1;
      if (source_[digit] == '+' || source_[digit] == '-') ++digit;
      if (digit < source_.size() && absl::ascii_isdigit(source_[digit])) {
        is_float = true;
        absl::StrAppend(&number, source_.substr(pos_, digit - pos_));
        pos_ = digit;
        Digits(&number);
      }
    }
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, number);
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    std::string value;
    for (++pos_; pos_ < source_.size(); ++pos_) {
      const char c = source_[pos_];
      if (c == quote) {
        ++pos_;
        Add(TokenKind::kString, value);
        return absl::OkStatus();
      }
      if (c != '\\') {
        value.push_back(c);
        continue;
      }
      if (++pos_ == source_.size()) break;
      RETURN_IF_ERROR(Escape(&value));
    }
    return Error("a string that is not closed");
  }

  // The escapes of Python's strings; pos_ is at the byte behind the backslash, and stays at the
  // last.
  absl::Status Escape(std::string* value) {
    const char c = source_[pos_];
    static constexpr std::pair<char, char> kSimple[] = {
        {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''},
        {'"', '"'},  {'a', '\a'}, {'b', '\b'}, {'f', '\f'},  {'v', '\v'}};
    for (const auto& [name, meaning] : kSimple) {
      if (c != name) continue;
      value->push_back(meaning);
      return absl::OkStatus();
    }
    if (c == '\n') return absl::OkStatus();
    if (c == 'N') return Error("a character by its name");
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code_point = 0;
    if (digits > 0) {
      const absl::string_view hex = source_.substr(pos_ + 1, digits);
      if (hex.size() != digits || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit) ||
          !absl::SimpleHexAtoi(hex, &code_point) || code_point > 0x10ffff ||
          (code_point >= 0xd800 && code_point < 0xe000)) {
        return Error("an escape that names no character");
      }
      pos_ += digits;
      AppendUtf8(code_point, value);
      return absl::OkStatus();
    }
    if (c >= '0' && c <= '7') {
      size_t length = 0;
      while (length < 3 && pos_ + length < source_.size() && source_[pos_ + length] >= '0' &&
             source_[pos_ + length] <= '7') {
        code_point = code_point * 8 + (source_[pos_ + length++] - '0');
      }
      pos_ += length - 1;
      AppendUtf8(code_point, value);
      return absl::OkStatus();
    }
    value->push_back('\\');
    value->push_back(c);
    return absl::OkStatus();
  }

  const absl::string_view source_;
  size_t pos_ = 0;
  size_t counted_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // at pos_, outside of tags
  std::vector<TemplateToken> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return absl::UnimplementedError(
        absl::StrCat("it has ", source.size(), " bytes, more than ", kMaxSourceBytes));
  }
  const size_t valid = ValidUtf8Prefix(source);
  if (valid != source.size()) {
    return absl::UnimplementedError(
        absl::StrCat("it is not valid UTF-8: the byte at offset ", valid));
  }
  const std::string text = Normalised(source);
  return Lexer(text).Run();
}

}  // namespace lm

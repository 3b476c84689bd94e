#include "extension/host/sql_tokens.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lm {
namespace {

bool IsWordByte(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}

// The bytes of the text that begins with a quote; a doubled quote is one of its characters.
size_t QuotedBytes(absl::string_view text, char close) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] != close) continue;
    if (close == ']' || i + 1 == text.size() || text[i + 1] != close) return i + 1;
    ++i;
  }
  return text.size();
}

// The bytes of white space or a comment at the beginning; 0 where there is neither.
size_t BlankBytes(absl::string_view text) {
  if (absl::ascii_isspace(text[0])) return 1;
  size_t end = absl::string_view::npos;
  if (absl::StartsWith(text, "--")) {
    end = text.find('\n');
    return end == absl::string_view::npos ? text.size() : end + 1;
  }
  if (!absl::StartsWith(text, "/*")) return 0;
  end = text.find("*/", 2);
  return end == absl::string_view::npos ? text.size() : end + 2;
}

}  // namespace

bool SqlToken::Is(absl::string_view word) const {
  return kind != Kind::kQuotedName && absl::EqualsIgnoreCase(text, word);
}

std::string SqlToken::Name() const {
  if (kind == Kind::kWord) return std::string(text);
  if (kind != Kind::kQuotedName) return "";
  const char quote = text[0];
  std::string inner;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    inner += text[i];
    if (quote != '[' && text[i] == quote) ++i;
  }
  return inner;
}

bool SqlToken::Names(absl::string_view name) const {
  return kind != Kind::kOther && absl::EqualsIgnoreCase(Name(), name);
}

std::string SqlToken::NameOrString() const {
  if (!absl::StartsWith(text, "'")) return Name();
  return absl::StrReplaceAll(text.substr(1, text.size() - 2), {{"''", "'"}});
}

std::vector<SqlToken> SqlTokens(absl::string_view sql) {
  std::vector<SqlToken> tokens;
  std::vector<size_t> open;
  while (!sql.empty()) {
    if (size_t blank = BlankBytes(sql); blank > 0) {
      sql.remove_prefix(blank);
      continue;
    }
    SqlToken token;
    size_t bytes = 1;
    const char c = sql[0];
    if (c == '\'') {
      bytes = QuotedBytes(sql, c);
    } else if (c == '"' || c == '`' || c == '[') {
      token.kind = SqlToken::Kind::kQuotedName;
      bytes = QuotedBytes(sql, c == '[' ? ']' : c);
    } else if ((c == 'x' || c == 'X') && absl::StartsWith(sql.substr(1), "'")) {
      bytes = 1 + QuotedBytes(sql.substr(1), '\'');
    } else if (IsWordByte(c)) {
      while (bytes < sql.size() && IsWordByte(sql[bytes])) ++bytes;
      if (!absl::ascii_isdigit(c)) token.kind = SqlToken::Kind::kWord;
    }
    token.text = sql.substr(0, bytes);
    token.match = tokens.size();
    if (c == ')' && !open.empty()) {
      token.match = open.back();
      tokens[open.back()].match = tokens.size();
      open.pop_back();
    }
    token.depth = static_cast<int>(open.size());
    if (c == '(') open.push_back(tokens.size());
    tokens.push_back(token);
    sql.remove_prefix(bytes);
  }
  return tokens;
}

absl::string_view TextOf(const std::vector<SqlToken>& tokens, SqlRange range) {
  if (range.begin >= range.end) return "";
  const absl::string_view last = tokens[range.end - 1].text;
  const char* begin = tokens[range.begin].text.data();
  return {begin, static_cast<size_t>(last.data() + last.size() - begin)};
}

size_t FindWord(const std::vector<SqlToken>& tokens, size_t from,
                absl::Span<const absl::string_view> words) {
  for (size_t i = from; i < tokens.size(); ++i) {
    if (tokens[i].depth != 0) continue;
    for (absl::string_view word : words) {
      if (!tokens[i].Is(word)) continue;
      // IS [NOT] DISTINCT FROM is an operator.
      if (word == "FROM" && i > 0 && tokens[i - 1].Is("DISTINCT")) continue;
      // ON belongs to a join, unless it is ON CONFLICT.
      if (word == "ON" && (i + 1 == tokens.size() || !tokens[i + 1].Is("CONFLICT"))) continue;
      return i;
    }
  }
  return tokens.size();
}

std::string QuotedName(absl::string_view name) {
  return absl::StrCat("\"", absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"");
}

}  // namespace lm

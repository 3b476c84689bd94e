#include "engine/text/template_lexer.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

constexpr absl::string_view kSpaces = " \t\n\v\f\r";

// Where the tag that begins at `open` ends: the position of its closing braces, outside of strings.
size_t FindClose(absl::string_view source, size_t open, absl::string_view close) {
  char quote = 0;
  for (size_t pos = open + 2; pos < source.size(); ++pos) {
    const char c = source[pos];
    if (quote != 0) {
      if (c == '\\') {
        ++pos;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (close != "#}" && (c == '\'' || c == '"')) {
      quote = c;
    } else if (absl::StartsWith(source.substr(pos), close)) {
      return pos;
    }
  }
  return absl::string_view::npos;
}

// Removes spaces and tabs from the end of `text` if nothing else stands on its last line.
// `first_line` says whether the text begins where a line does.
void StripLineStart(bool first_line, std::string* text) {
  const size_t end = text->find_last_not_of(" \t");
  if (end == std::string::npos ? first_line : (*text)[end] == '\n') text->resize(end + 1);
}

}  // namespace

absl::StatusOr<std::vector<TemplateNode>> LexTemplate(absl::string_view source) {
  absl::ConsumeSuffix(&source, "\n");
  std::vector<TemplateNode> nodes;
  bool strip_next = false;       // the tag before ended with -
  bool line_break_next = false;  // ... was a block: the line break behind it goes
  bool at_line_start = true;
  for (size_t pos = 0;;) {
    size_t open = pos;
    while (open + 1 < source.size() &&
           !(source[open] == '{' && absl::StrContains("{%#", source.substr(open + 1, 1)))) {
      ++open;
    }
    const bool last = open + 1 >= source.size();
    if (last) open = source.size();

    absl::string_view literal = source.substr(pos, open - pos);
    bool line_start = at_line_start;
    if (strip_next) {
      const size_t kept = literal.find_first_not_of(kSpaces);
      line_start = false;
      literal.remove_prefix(std::min(kept, literal.size()));
    } else if (line_break_next) {
      if (absl::ConsumePrefix(&literal, "\r\n") || absl::ConsumePrefix(&literal, "\n")) {
        line_start = true;
      } else {
        line_start = false;
      }
    }
    std::string text(literal);
    const char kind = last ? 0 : source[open + 1];
    const char sign = last || open + 2 >= source.size() ? 0 : source[open + 2];
    if (sign == '-') {
      text.resize(text.find_last_not_of(std::string(kSpaces)) + 1);
    } else if (kind != 0 && kind != '{' && sign != '+') {
      StripLineStart(line_start, &text);
    }
    if (!text.empty()) nodes.push_back({TemplateNode::Kind::kText, std::move(text)});
    if (last) return nodes;

    const absl::string_view close = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    const size_t end = FindClose(source, open, close);
    if (end == absl::string_view::npos) {
      return absl::UnimplementedError(
          absl::StrCat("a tag that is not closed: ", QuoteName(source.substr(open))));
    }
    absl::string_view content = source.substr(open + 2, end - open - 2);
    if (sign == '-' || (sign == '+' && kind != '{')) content.remove_prefix(1);
    strip_next = absl::ConsumeSuffix(&content, "-");
    const bool keep_line_break = !strip_next && kind != '{' && absl::ConsumeSuffix(&content, "+");
    line_break_next = kind != '{' && !keep_line_break;
    at_line_start = false;
    if (kind != '#') {
      nodes.push_back({kind == '{' ? TemplateNode::Kind::kOutput : TemplateNode::Kind::kStatement,
                       std::string(absl::StripAsciiWhitespace(content))});
    }
    pos = end + 2;
  }
}

absl::StatusOr<std::vector<TemplateToken>> LexExpression(absl::string_view source) {
  std::vector<TemplateToken> tokens;
  auto is_name = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  for (size_t pos = 0; pos < source.size();) {
    const char c = source[pos];
    if (absl::ascii_isspace(c)) {
      ++pos;
    } else if (c == '\'' || c == '"') {
      TemplateToken token = {TemplateToken::Kind::kString, ""};
      for (++pos; pos < source.size() && source[pos] != c; ++pos) {
        if (source[pos] != '\\') {
          token.text.push_back(source[pos]);
          continue;
        }
        if (++pos == source.size()) break;
        switch (source[pos]) {
          case 'n':
            token.text.push_back('\n');
            break;
          case 't':
            token.text.push_back('\t');
            break;
          case 'r':
            token.text.push_back('\r');
            break;
          case '\\':
          case '\'':
          case '"':
            token.text.push_back(source[pos]);
            break;
          default:
            return absl::UnimplementedError(
                absl::StrCat("the escape ", QuoteName(source.substr(pos - 1, 2))));
        }
      }
      if (pos == source.size()) return absl::UnimplementedError("a string that is not closed");
      ++pos;
      tokens.push_back(std::move(token));
    } else if (is_name(c)) {
      const size_t begin = pos;
      while (pos < source.size() && is_name(source[pos])) ++pos;
      const absl::string_view word = source.substr(begin, pos - begin);
      const bool number = absl::ascii_isdigit(c);
      if (number &&
          (word.size() > 9 || !std::all_of(word.begin(), word.end(), absl::ascii_isdigit))) {
        return absl::UnimplementedError(absl::StrCat("the number ", QuoteName(word)));
      }
      tokens.push_back(
          {number ? TemplateToken::Kind::kInteger : TemplateToken::Kind::kName, std::string(word)});
    } else {
      size_t size = 1;
      for (absl::string_view two : {"==", "!=", "<=", ">=", "**", "//"}) {
        if (absl::StartsWith(source.substr(pos), two)) size = 2;
      }
      if (!absl::StrContains("=!<>+-*/%~()[]{}.,:|", source.substr(pos, 1))) {
        return absl::UnimplementedError(
            absl::StrCat("the character ", QuoteName(source.substr(pos, 1))));
      }
      tokens.push_back({TemplateToken::Kind::kOperator, std::string(source.substr(pos, size))});
      pos += size;
    }
  }
  tokens.push_back({});
  return tokens;
}

}  // namespace lm

#include "extension/functions/window_frame.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

bool Follow(const Tokens& tokens, size_t at, absl::Span<const absl::string_view> words) {
  if (at + words.size() > tokens.size()) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!tokens[at + i].Is(words[i])) return false;
  }
  return true;
}

bool IsAny(const SqlToken& token, absl::Span<const absl::string_view> words) {
  for (absl::string_view word : words) {
    if (token.Is(word)) return true;
  }
  return false;
}

// A window definition: the tokens between its parentheses, whose indices these are.
absl::Status CheckDefinition(const Tokens& tokens, size_t open, size_t close) {
  const int depth = tokens[open].depth + 1;
  for (size_t i = open + 1; i < close; ++i) {
    if (tokens[i].depth != depth) continue;
    if (!Follow(tokens, i, {"ROWS", "BETWEEN", "CURRENT", "ROW", "AND"})) continue;
    if (tokens[close - 1].Is("FOLLOWING")) return absl::OkStatus();
    if (i + 7 == close && Follow(tokens, i + 5, {"CURRENT", "ROW"})) return absl::OkStatus();
  }
  for (size_t i = open + 1; i < close; ++i) {
    if (tokens[i].depth == depth &&
        IsAny(tokens[i], {"ROWS", "RANGE", "GROUPS", "EXCLUDE", "PRECEDING"})) {
      return WrongFrame("this frame gives a row the answers of other rows");
    }
  }
  return WrongFrame("the default frame ends with the current row and its peers");
}

// OVER name: every window definition of that name, `name AS (...)`, that is no subquery.
absl::Status CheckNamed(const Tokens& tokens, const SqlToken& name) {
  absl::string_view text = name.text;
  if (name.kind == SqlToken::Kind::kQuotedName) text = text.substr(1, text.size() - 2);
  bool found = false;
  for (size_t i = 0; i + 3 < tokens.size(); ++i) {
    if (!tokens[i].Names(text) || !tokens[i + 1].Is("AS") || !tokens[i + 2].Is("(")) continue;
    if (IsAny(tokens[i + 3], {"SELECT", "WITH", "VALUES"})) continue;
    RETURN_IF_ERROR(CheckDefinition(tokens, i + 2, tokens[i + 2].match));
    found = true;
  }
  return found ? absl::OkStatus() : WrongFrame("its window is not defined here");
}

}  // namespace

absl::Status WrongFrame(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("write lm_map(...) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING), so that "
                   "each row gets its own answer: ",
                   why));
}

absl::Status CheckFrames(absl::string_view sql, absl::string_view function) {
  const Tokens tokens = SqlTokens(sql);
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (!tokens[i].Names(function) || !tokens[i + 1].Is("(")) continue;
    const size_t after = tokens[i + 1].match + 1;
    if (after >= tokens.size()) return WrongFrame("it is called without OVER");
    if (tokens[after].Is("FILTER")) return WrongFrame("FILTER leaves rows out of the frame");
    if (!tokens[after].Is("OVER") || after + 1 >= tokens.size()) {
      return WrongFrame("it is called without OVER");
    }
    const SqlToken& window = tokens[after + 1];
    RETURN_IF_ERROR(window.Is("(") ? CheckDefinition(tokens, after + 1, window.match)
                                   : CheckNamed(tokens, window));
  }
  return absl::OkStatus();
}

}  // namespace lm

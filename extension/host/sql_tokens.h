// SQL text as tokens, for those few places that must look at how a statement is written. It is
// SQLite's lexer and no parser; the text is one that SQLite has parsed.
//
//   std::vector<SqlToken> tokens = SqlTokens("SELECT \"a b\" FROM t -- and so on");
//   tokens[0].Is("select");     // case does not matter
//   tokens[1].Names("a b");     // a name, quoted or not
#ifndef LM_EXTENSION_HOST_SQL_TOKENS_H_
#define LM_EXTENSION_HOST_SQL_TOKENS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

struct SqlToken {
  enum class Kind { kWord, kQuotedName, kOther };

  Kind kind = Kind::kOther;
  absl::string_view text;  // as it is written, within the statement's text
  int depth = 0;           // how many parentheses are open around it (its own are not)
  size_t match = 0;  // of a parenthesis: the index of its partner, or of itself if it has none

  // A keyword, unquoted, or a symbol.
  bool Is(absl::string_view word) const;
  // A name, with whatever quotes or none.
  bool Names(absl::string_view name) const;
  // That name, without its quotes; empty where it is none.
  std::string Name() const;
  // The same where a name is due: SQLite takes a string in its place ('main'.t).
  std::string NameOrString() const;
};

// Without white space and comments. The tokens refer to `sql`.
std::vector<SqlToken> SqlTokens(absl::string_view sql);

// Half-open ranges of tokens, and the text from the first to the last of one.
struct SqlRange {
  size_t begin = 0;
  size_t end = 0;
};
absl::string_view TextOf(const std::vector<SqlToken>& tokens, SqlRange range);

// The first token from `from` on, outside of parentheses, that is one of the words; else the end.
// ON is that of ON CONFLICT only, FROM not that of IS DISTINCT FROM.
size_t FindWord(const std::vector<SqlToken>& tokens, size_t from,
                absl::Span<const absl::string_view> words);

// The name as a statement writes it, whatever characters it has: "a ""b""".
std::string QuotedName(absl::string_view name);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_SQL_TOKENS_H_

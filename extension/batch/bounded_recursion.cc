#include "extension/batch/bounded_recursion.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "extension/host/sql_tokens.h"

namespace lm {
namespace {

// The parenthesis behind AS [NOT] [MATERIALIZED], where that begins the query of a WITH's table;
// else the end.
size_t QueryBehind(const std::vector<SqlToken>& tokens, size_t as) {
  size_t open = as + 1;
  while (open < tokens.size() && (tokens[open].Is("NOT") || tokens[open].Is("MATERIALIZED"))) {
    ++open;
  }
  const bool query = open + 1 < tokens.size() && tokens[open].Is("(") &&
                     (tokens[open + 1].Is("SELECT") || tokens[open + 1].Is("VALUES") ||
                      tokens[open + 1].Is("WITH"));
  return query && tokens[open].match > open ? open : tokens.size();
}

// The name of the table in front of AS, behind which its columns may stand.
std::string TableBefore(const std::vector<SqlToken>& tokens, size_t as) {
  if (as == 0) return "";
  size_t name = as - 1;
  if (tokens[name].Is(")")) name = std::max<size_t>(tokens[name].match, 1) - 1;
  return tokens[name].Name();
}

enum class Recursion { kNone, kWithoutLimit, kWithNumber, kWithSomeLimit };

// What the query in parentheses is, where the table of this name is made of it. A LIMIT may be a
// number of `rows` at most, or something else: more of them, or an expression, which may be
// negative, and that is no limit.
Recursion RecursionOf(const std::vector<SqlToken>& tokens, size_t open, const std::string& table,
                      int64_t rows) {
  bool unites = false, reads_itself = false;
  Recursion recursion = Recursion::kWithoutLimit;
  for (size_t i = open + 1; i < tokens[open].match; ++i) {
    const bool outermost = tokens[i].depth == tokens[open].depth + 1;
    if (outermost && tokens[i].Is("LIMIT")) {
      int64_t most = 0;
      const bool number = absl::SimpleAtoi(tokens[i + 1].text, &most) && most <= rows;
      // In front of a comma is the OFFSET.
      const bool alone = i + 2 == tokens[open].match || tokens[i + 2].Is("OFFSET");
      recursion = number && alone ? Recursion::kWithNumber : Recursion::kWithSomeLimit;
    }
    unites = unites || (outermost && tokens[i].Is("UNION"));
    reads_itself = reads_itself || tokens[i].Names(table);
  }
  return unites && reads_itself ? recursion : Recursion::kNone;
}

}  // namespace

BoundedRecursions WithBoundedRecursions(absl::string_view sql, int64_t rows) {
  BoundedRecursions bounded;
  const std::vector<SqlToken> tokens = SqlTokens(sql);
  std::vector<size_t> ends;  // of the text of such queries
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].Is("AS")) continue;
    const size_t open = QueryBehind(tokens, i);
    if (open == tokens.size()) continue;
    const std::string table = TableBefore(tokens, i);
    if (table.empty()) continue;
    const Recursion recursion = RecursionOf(tokens, open, table, rows);
    bounded.all_end = bounded.all_end && recursion != Recursion::kWithSomeLimit;
    if (recursion != Recursion::kWithoutLimit) continue;
    const absl::string_view last = tokens[tokens[open].match - 1].text;
    ends.push_back(static_cast<size_t>(last.data() + last.size() - sql.data()));
  }
  std::sort(ends.begin(), ends.end());
  size_t begin = 0;
  for (const size_t end : ends) {
    absl::StrAppend(&bounded.sql, sql.substr(begin, end - begin), " LIMIT ", rows);
    begin = end;
  }
  absl::StrAppend(&bounded.sql, sql.substr(begin));
  return bounded;
}

}  // namespace lm

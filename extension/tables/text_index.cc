#include "extension/tables/text_index.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Of a text that is searched for: those behind say little more.
constexpr size_t kMostWords = 512;

// "games" OR "of" OR "mazes": each of the words, once.
std::string QueryOf(absl::string_view text) {
  std::string query;
  HashSet<std::string> known;
  for (size_t pos = 0; pos < text.size() && known.size() < kMostWords;) {
    const size_t begin = pos;
    // FTS5 folds and parts what is not ASCII itself.
    while (pos < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[pos])) ||
                                 static_cast<unsigned char>(text[pos]) >= 0x80)) {
      ++pos;
    }
    if (pos == begin) {
      ++pos;
      continue;
    }
    std::string word = absl::AsciiStrToLower(text.substr(begin, pos - begin));
    if (known.contains(word)) continue;
    absl::StrAppend(&query, query.empty() ? "" : " OR ", "\"", word, "\"");
    known.insert(std::move(word));
  }
  return query;
}

}  // namespace

absl::StatusOr<TextIndex> TextIndex::Create() {
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(":memory:", &opened,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  TextIndex index{std::unique_ptr<sqlite3, Closer>(opened)};
  if (code != SQLITE_OK) return absl::InternalError("no database in memory could be opened");
  absl::Status made = Execute(opened, "CREATE VIRTUAL TABLE texts USING fts5(body, content='')");
  if (absl::StrContains(made.message(), "no such module")) {
    return absl::UnimplementedError("this SQLite was built without FTS5");
  }
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(Execute(opened, "BEGIN"));
  ASSIGN_OR_RETURN(index.add_,
                   Statement::Prepare(opened, "INSERT INTO texts(rowid, body) VALUES (?, ?)"));
  ASSIGN_OR_RETURN(index.search_,
                   Statement::Prepare(opened,
                                      "SELECT rowid, -rank FROM texts WHERE texts MATCH ? "
                                      "ORDER BY rank, rowid LIMIT ?"));
  return index;
}

absl::Status TextIndex::Add(size_t number, absl::string_view text) {
  return add_.Bind(1, static_cast<int64_t>(number)).Bind(2, text).Run();
}

absl::StatusOr<std::vector<FoundText>> TextIndex::Search(absl::string_view text, size_t most) {
  std::vector<FoundText> found;
  const std::string query = QueryOf(text);
  if (query.empty()) return found;
  search_.Bind(1, query).Bind(2, most == 0 ? int64_t{-1} : static_cast<int64_t>(most));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, search_.Step());
    if (!row) return found;
    found.push_back(
        {static_cast<size_t>(search_.Integer(0)), sqlite3_value_double(search_.Value(1))});
  }
}

}  // namespace lm

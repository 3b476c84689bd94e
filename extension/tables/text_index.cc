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
constexpr int64_t kMostWords = 512;

}  // namespace

absl::StatusOr<TextIndex> TextIndex::Create() {
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(":memory:", &opened,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  TextIndex index{std::unique_ptr<sqlite3, Closer>(opened)};
  if (code != SQLITE_OK) return absl::InternalError("no database in memory could be opened");
  // What is searched for becomes words as the texts have: FTS5 has the rules of that.
  absl::Status made = Execute(opened,
                              "CREATE VIRTUAL TABLE texts USING fts5(body, content='');"
                              "CREATE VIRTUAL TABLE asked USING fts5(body, content='');"
                              "CREATE VIRTUAL TABLE asked_words USING fts5vocab(asked, instance)");
  if (absl::StrContains(made.message(), "no such module")) {
    return absl::UnimplementedError("this SQLite was built without FTS5");
  }
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(Execute(opened, "BEGIN"));
  ASSIGN_OR_RETURN(index.add_,
                   Statement::Prepare(opened, "INSERT INTO texts(rowid, body) VALUES (?, ?)"));
  ASSIGN_OR_RETURN(index.ask_,
                   Statement::Prepare(opened, "INSERT INTO asked(rowid, body) VALUES (1, ?)"));
  ASSIGN_OR_RETURN(
      index.words_,
      Statement::Prepare(opened,
                         "SELECT group_concat('\"' || replace(term, '\"', '\"\"') || '\"', ' OR ') "
                         "FROM (SELECT term FROM asked_words GROUP BY term ORDER BY min(offset) "
                         "LIMIT ?)"));
  ASSIGN_OR_RETURN(index.forget_,
                   Statement::Prepare(opened, "INSERT INTO asked(asked) VALUES ('delete-all')"));
  ASSIGN_OR_RETURN(index.search_,
                   Statement::Prepare(opened,
                                      "SELECT rowid, -rank FROM texts WHERE texts MATCH ? "
                                      "ORDER BY rank, rowid LIMIT ?"));
  return index;
}

absl::Status TextIndex::Add(size_t number, absl::string_view text) {
  return add_.Bind(1, static_cast<int64_t>(number)).Bind(2, text).Run();
}

// "games" OR "of" OR "mazes": each of the words, once; empty where there are none.
absl::StatusOr<std::string> TextIndex::QueryOf(absl::string_view text) {
  RETURN_IF_ERROR(ask_.Bind(1, text).Run());
  ASSIGN_OR_RETURN(const bool row, words_.Bind(1, kMostWords).Step());
  absl::StatusOr<std::string> query = row ? words_.Text(0) : "";
  words_.Reset();
  RETURN_IF_ERROR(forget_.Run());
  return query;
}

absl::StatusOr<std::vector<FoundText>> TextIndex::Search(absl::string_view text, size_t most) {
  std::vector<FoundText> found;
  ASSIGN_OR_RETURN(const std::string query, QueryOf(text));
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

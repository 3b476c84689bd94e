#include "extension/tables/text_index.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Of one query: bm25() compares each place of a word with all words of the query, and its score is
// the sum of theirs.
constexpr size_t kWordsOfQuery = 128;

// How many texts a search for the most alike looks at for its words, the rarest first: words that
// nearly every text has cost the most and tell the least.
constexpr size_t kMostLookedAt = 1024;

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
                              "CREATE VIRTUAL TABLE text_words USING fts5vocab(texts, row);"
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
                         "SELECT '\"' || replace(term, '\"', '\"\"') || '\"', doc FROM "
                         "(SELECT term, min(offset) AS first, (SELECT doc FROM text_words "
                         "WHERE text_words.term = asked_words.term) AS doc "
                         "FROM asked_words GROUP BY term) WHERE doc > 0 ORDER BY doc, first"));
  ASSIGN_OR_RETURN(index.forget_,
                   Statement::Prepare(opened, "INSERT INTO asked(asked) VALUES ('delete-all')"));
  ASSIGN_OR_RETURN(
      index.search_,
      Statement::Prepare(opened, "SELECT rowid, -rank FROM texts WHERE texts MATCH ?"));
  return index;
}

absl::Status TextIndex::Add(size_t number, absl::string_view text) {
  return add_.Bind(1, static_cast<int64_t>(number)).Bind(2, text).Run();
}

// The text's words that texts have, each once, the rarest first.
absl::StatusOr<std::vector<TextIndex::Word>> TextIndex::WordsOf(absl::string_view text) {
  RETURN_IF_ERROR(ask_.Bind(1, text).Run());
  std::vector<Word> words;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, words_.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(std::string quoted, words_.Text(0));
    words.push_back({std::move(quoted), static_cast<size_t>(words_.Integer(1))});
  }
  RETURN_IF_ERROR(forget_.Run());
  return words;
}

// Adds the scores of the texts that have any of the words.
absl::Status TextIndex::Find(absl::Span<const Word> words, HashMap<size_t, double>* scores) {
  for (size_t begin = 0; begin < words.size(); begin += kWordsOfQuery) {
    RETURN_IF_ERROR(Checkpoint());
    const auto quoted = [](std::string* out, const Word& word) { out->append(word.quoted); };
    search_.Bind(1, absl::StrJoin(words.subspan(begin, kWordsOfQuery), " OR ", quoted));
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, search_.Step());
      if (!row) break;
      (*scores)[static_cast<size_t>(search_.Integer(0))] += sqlite3_value_double(search_.Value(1));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FoundText>> TextIndex::Search(absl::string_view text, size_t most) {
  ASSIGN_OR_RETURN(const std::vector<Word> words, WordsOf(text));
  size_t used = 0;
  for (size_t looked_at = 0; used < words.size(); ++used) {
    looked_at += words[used].texts;
    if (most > 0 && used > 0 && looked_at > kMostLookedAt) break;
  }
  HashMap<size_t, double> scores;
  const absl::Span<const Word> all = words;
  RETURN_IF_ERROR(Find(all.first(used), &scores));
  // One text may have all the rare words.
  for (; used < words.size() && scores.size() < most; ++used) {
    RETURN_IF_ERROR(Find(all.subspan(used, 1), &scores));
  }
  std::vector<FoundText> found;
  for (const auto& [number, score] : scores) found.push_back({number, score});
  std::sort(found.begin(), found.end(), [](const FoundText& a, const FoundText& b) {
    return a.score != b.score ? a.score > b.score : a.number < b.number;
  });
  if (most > 0 && most < found.size()) found.resize(most);
  return found;
}

}  // namespace lm

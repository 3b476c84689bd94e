// TextIndex: which of many texts have the most words in common with one, by SQLite's FTS5.
//
//   ASSIGN_OR_RETURN(TextIndex index, TextIndex::Create());
//   RETURN_IF_ERROR(index.Add(0, "A puzzle game with a maze."));
//   ASSIGN_OR_RETURN(std::vector<FoundText> found, index.Search("games of mazes", 5));
//
// Nothing is computed by a model. Words count the more the fewer texts have them (bm25).
#ifndef LM_EXTENSION_TABLES_TEXT_INDEX_H_
#define LM_EXTENSION_TABLES_TEXT_INDEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/hash_map.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/statement.h"

namespace lm {

struct FoundText {
  size_t number;
  double score;  // the greater the more alike
};

// A database of its own, in memory. Not thread-safe.
class TextIndex {
 public:
  // Unimplemented where this SQLite was built without FTS5.
  static absl::StatusOr<TextIndex> Create();

  absl::Status Add(size_t number, absl::string_view text);
  // At most `most` that have any word of the text, the most alike first; words that many have may
  // not count where rarer ones have found enough. 0: all of those.
  absl::StatusOr<std::vector<FoundText>> Search(absl::string_view text, size_t most);

 private:
  struct Word {
    std::string quoted;
    size_t texts;  // that have it
  };
  absl::StatusOr<std::vector<Word>> WordsOf(absl::string_view text);
  absl::Status Find(absl::Span<const Word> words, HashMap<size_t, double>* scores);

  struct Closer {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
  };
  explicit TextIndex(std::unique_ptr<sqlite3, Closer> db) : db_(std::move(db)) {}

  std::unique_ptr<sqlite3, Closer> db_;
  Statement add_;
  Statement ask_, words_, forget_;  // of what is searched for, its words
  Statement search_;
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_TEXT_INDEX_H_

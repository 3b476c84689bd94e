// PassedAnswers: the rows that a scan has gone by, for when it is to begin again. On the right of a
// LEFT JOIN, in a nested loop and in a correlated subquery SQLite has a table scanned for each row
// around it. So the rows are asked about once, and stay what they were for the whole statement.
//
//   passed_.Begin(db);                               // Filter()
//   if (passed_.Next()) return absl::OkStatus();     // Next(), of a scan that has begun again
//   passed_.Add(number, nullptr, queue_.front());    // ... of one that has not, as it goes on
//   passed_.current()                                // the row, where that is one of these
#ifndef LM_EXTENSION_TABLES_PASSED_ANSWERS_H_
#define LM_EXTENSION_TABLES_PASSED_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "extension/batch/row_answer.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/kept_scan.h"

namespace lm {

struct PassedAnswer {
  int64_t number;
  OwnedValue id;  // null where rows have none
  RowAnswer answer;
};

class PassedAnswers {
 public:
  static constexpr size_t kMostBytes = 16 << 20;

  // Forgets them: a scan begins for the first time.
  void Begin(sqlite3* db);
  // Whether they, and then those that the scan has yet to come to, are the rows of another one.
  bool CanRewind() const { return all_ && kept_.IsCurrent(); }
  void Rewind() { at_ = 0; }

  // The row that the scan stands on; nullptr where it is past all of these.
  const PassedAnswer* current() const { return at_ < rows_.size() ? &rows_[at_] : nullptr; }
  // Goes to the next one. False where the scan is past all of these.
  bool Next();
  // The scan, which is past all of these, goes by another one.
  void Add(int64_t number, OwnedValue id, const RowAnswer& answer);

 private:
  KeptScan kept_;
  bool all_ = false;  // that were passed are here
  std::deque<PassedAnswer> rows_;
  size_t bytes_ = 0;
  size_t at_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_PASSED_ANSWERS_H_

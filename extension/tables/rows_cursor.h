// RowsCursor: a scan whose rows are all known when it begins.
//
//   class ScoresCursor : public RowsCursor {
//     absl::Status Fill(const TableArguments& args, Rows* rows) override {
//       rows->push_back({std::string("net"), 0.8});
//       return absl::OkStatus();
//     }
//   };
#ifndef LM_EXTENSION_TABLES_ROWS_CURSOR_H_
#define LM_EXTENSION_TABLES_ROWS_CURSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "extension/binding/table_function.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/kept_scan.h"

namespace lm {

class RowsCursor : public TableCursor {
 public:
  using TableCursor::TableCursor;
  using Rows = std::vector<std::vector<Cell>>;

  // Appends the scan's rows, each with all of the function's columns.
  virtual absl::Status Fill(const TableArguments& args, Rows* rows) = 0;

  absl::Status Filter(const TableArguments& args) final {
    rows_.clear();
    index_ = 0;
    kept_.Begin(connection().db());
    return Fill(args, &rows_);
  }
  bool can_rewind() const final { return kept_.IsCurrent(); }
  void Rewind() final { index_ = 0; }
  bool AtEnd() const final { return index_ >= rows_.size(); }
  absl::Status Next() final {
    ++index_;
    return absl::OkStatus();
  }
  absl::Status Value(int column, sqlite3_context* context) final {
    ResultCell(context, rows_[index_][column]);
    return absl::OkStatus();
  }
  int64_t rowid() const final { return static_cast<int64_t>(index_) + 1; }

 private:
  Rows rows_;
  size_t index_ = 0;
  KeptScan kept_;
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_ROWS_CURSOR_H_

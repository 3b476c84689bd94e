// KeptScan: whether what a scan has read is still what another one would read.
//
//   kept_.Begin(connection().db());                                  // Filter()
//   bool can_rewind() const override { return kept_.IsCurrent(); }
#ifndef LM_EXTENSION_TABLES_KEPT_SCAN_H_
#define LM_EXTENSION_TABLES_KEPT_SCAN_H_

#include "extension/host/sqlite_api.h"

namespace lm {

class KeptScan {
 public:
  void Begin(sqlite3* db) {
    db_ = db;
    changes_ = sqlite3_total_changes(db);
  }
  // Whether no other statement of the connection has written since Begin().
  bool IsCurrent() const { return db_ != nullptr && sqlite3_total_changes(db_) == changes_; }

 private:
  sqlite3* db_ = nullptr;  // null before Begin()
  int changes_ = 0;        // of the connection, which counts a statement's at its end
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_KEPT_SCAN_H_

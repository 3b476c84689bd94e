// Virtual tables whose rows are taken all at once when a scan begins, or page by page where they
// may be many; no constraints. A table says what its rows are; SQLite's side of it is here once.
// All are DIRECTONLY: what a process does and what its machine is is not for the views and triggers
// that a file brings along. (Views of the temp schema are its owner's, and may read them.)
#ifndef LM_EXTENSION_BINDING_SNAPSHOT_TABLE_H_
#define LM_EXTENSION_BINDING_SNAPSHOT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "extension/binding/virtual_table.h"
#include "extension/host/sqlite_value.h"

namespace lm {

struct SnapshotRow {
  int64_t rowid = 0;
  std::vector<Cell> cells;
};

// What INSERT does about a name that is taken.
enum class OnConflict { kFail, kIgnore, kReplace };

// The rows of one scan.
class RowPages {
 public:
  virtual ~RowPages() = default;
  // The next ones; none: there are no more.
  virtual absl::StatusOr<std::vector<SnapshotRow>> Next() = 0;
};

class SnapshotTable : public VirtualTable {
 public:
  using VirtualTable::VirtualTable;

  // A table says in one of three ways what its rows are.
  virtual absl::StatusOr<std::vector<SnapshotRow>> Rows() { return std::vector<SnapshotRow>(); }
  // The same for a statement that looks only at the columns of `used` (bit i is column i, the last
  // bit every later one too): what takes long and is not asked for may stay NULL.
  virtual absl::StatusOr<std::vector<SnapshotRow>> RowsFor(uint64_t /*used*/) { return Rows(); }
  // The rows page by page, made as the scan goes on, so that a statement which wants a few gets no
  // more, and one that is interrupted ends.
  virtual absl::StatusOr<std::unique_ptr<RowPages>> Scan(uint64_t used);

  // How many columns can be written: the first ones. A value for another column is refused by name.
  virtual int num_writable() const { return 0; }

  virtual absl::Status BeforeScan() { return absl::OkStatus(); }

  absl::StatusOr<bool> BestIndex(sqlite3_index_info* info) final;
  std::unique_ptr<VirtualCursor> Open() final;
};

// The states to which a transaction and its savepoints lead back: one list for all tables of a kind
// in a connection, since temp.x and main.x are the same. Ascending savepoints.
struct SavedState {
  int savepoint;  // -1 is the transaction's beginning
  // Before this savepoint, and before those between the one before in the list and it.
  std::shared_ptr<const void> state;
};
using SavedStates = std::vector<SavedState>;

// One that can be written. Its state follows transactions and savepoints: SQLite has it saved
// before a change, and restored on ROLLBACK or where a statement fails half-way.
class WritableTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  // `cells` has all columns; those not given are NULL. Return the row's id. A conflict that is to
  // be reported is AlreadyExists; a row that OnConflict::kIgnore passes over returns 0.
  virtual absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict on_conflict) = 0;
  virtual absl::Status Update(int64_t rowid, absl::Span<const Cell> cells,
                              OnConflict on_conflict) = 0;
  virtual absl::Status Delete(int64_t rowid) = 0;

  virtual std::shared_ptr<const void> Save() const = 0;
  virtual void Restore(const void* saved) = 0;

  bool resolves_conflicts() const final { return true; }
  absl::Status BeforeScan() final;

 private:
  friend struct TableWriting;
  absl::Status CreateInTempIfAlone();

  bool in_temp_ = false;
  std::shared_ptr<std::weak_ptr<SavedStates>> saved_of_kind_;
  std::shared_ptr<SavedStates> saved_;  // while it is part of a transaction
};

// Makes a connection's table for each use; `Table` is constructed from the connection.
using TableFactory = std::unique_ptr<SnapshotTable> (*)(std::shared_ptr<Connection>);
template <typename Table>
std::unique_ptr<SnapshotTable> MakeTable(std::shared_ptr<Connection> connection) {
  return std::make_unique<Table>(std::move(connection));
}

// Registers a read-only table that exists in every schema by its name alone.
int RegisterReadOnlyTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory);

// Registers a writable table that exists by its name alone, unless or until a database
// has a table of that name (CreateInTemp).
// REQUIRES: the factory makes a WritableTable.
int RegisterWritableTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory);

// Creates temp.<name> of the module of that name, for each of Connection::tables_of_temp(), if the
// main database has any content: the first table, even one in temp, settles a new database's
// encoding, and that is for its owner. There a table can be written whatever state the main
// database is in, read-only or locked by another process. Where temp does not have it (the main
// database is new, or cannot be read now, or a transaction is rolled back around this), the name
// temp.<name> leads to it all the same, and only writing it needs a lock on the main database. True
// where one was made. Errors that have to end the statement around (EndsStatementAround).
//
// It is done when the extension is loaded. Where it could not be done then, a writable table does
// it before it is scanned, and after a change, where a plain statement does that and no other runs.
absl::StatusOr<bool> CreateInTemp(const Connection& connection);

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_SNAPSHOT_TABLE_H_

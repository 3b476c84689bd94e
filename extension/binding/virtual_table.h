// Virtual tables as C++ objects: SQLite's side of all of them, once. Two kinds stand on this:
// table_function.h, whose scans are given arguments, and snapshot_table.h, whose rows are few.
//
// Every virtual table is DIRECTONLY: what a process does and what its machine is is not for the
// views and triggers that a file brings along. (Views of the temp schema are its owner's.)
#ifndef LM_EXTENSION_BINDING_VIRTUAL_TABLE_H_
#define LM_EXTENSION_BINDING_VIRTUAL_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "extension/connection/connection.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/sqlite_status.h"

namespace lm {

// One scan after another. Exceptions are caught outside.
class VirtualCursor {
 public:
  VirtualCursor() = default;
  virtual ~VirtualCursor() = default;
  VirtualCursor(const VirtualCursor&) = delete;
  VirtualCursor& operator=(const VirtualCursor&) = delete;

  // Begins a scan as BestIndex has chosen it (`plan` and `text` are its idxNum and idxStr), on its
  // first row if there is one.
  virtual absl::Status Begin(int plan, const char* text, sqlite3_value** args) = 0;
  virtual bool Eof() const = 0;
  // The other three REQUIRE: !Eof().
  virtual absl::Status Next() = 0;
  // Sets the column's value; leaves it for NULL.
  virtual absl::Status Column(int column, sqlite3_context* context) = 0;
  virtual int64_t rowid() const = 0;
  // Whether it has the rows of its last scan for another one. In a subquery SQLite opens a cursor
  // anew for each scan, and closes the one before it directly after that: this object goes on in
  // the new one, where no other statement runs that may close one.
  virtual bool can_rewind() const { return false; }
};

// One table of one connection.
class VirtualTable {
 public:
  explicit VirtualTable(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  virtual ~VirtualTable() = default;
  VirtualTable(const VirtualTable&) = delete;
  VirtualTable& operator=(const VirtualTable&) = delete;

  virtual const char* name() const = 0;
  // The CREATE TABLE statement for sqlite3_declare_vtab.
  virtual std::string Schema() const = 0;
  // Chooses how a scan goes. False where it cannot be done with what is usable.
  virtual absl::StatusOr<bool> BestIndex(sqlite3_index_info* info) = 0;
  virtual std::unique_ptr<VirtualCursor> Open() = 0;
  // Whether its changes heed ON CONFLICT.
  virtual bool resolves_conflicts() const { return false; }

  Connection& connection() const { return *connection_; }

 private:
  const std::shared_ptr<Connection> connection_;
};

// What SQLite hands back of it.
struct VirtualTableHandle : sqlite3_vtab {
  std::unique_ptr<VirtualTable> table;
  sqlite3_vtab_cursor* opened =
      nullptr;  // the last one, until its first scan, of a statement alone
};

// Runs a method of a table for SQLite: what it returns or throws becomes SQLite's code and text.
template <typename Body>
int RunFor(sqlite3_vtab* vtab, Body&& body) noexcept {
  VirtualTable& table = *static_cast<VirtualTableHandle*>(vtab)->table;
  return ReportTo(
      vtab, table.name(),
      GuardedInterruptibly(table.connection().progress_poll(), std::forward<Body>(body)));
}

enum class Creation {
  kByNameAlone,  // it exists in every schema, and CREATE VIRTUAL TABLE refuses it
  kAlsoByCreate,
};

// SQLite's methods of a table that is only read. A kind of table adds its own to them.
sqlite3_module VirtualTableModule(Creation creation);

// `args` are SQLite's: the module, the database, the table, and what CREATE VIRTUAL TABLE says in
// parentheses.
using VirtualTableFactory = std::function<absl::StatusOr<std::unique_ptr<VirtualTable>>(
    absl::Span<const char* const> args)>;

// `module` lives for ever. Returns SQLite's code.
int RegisterVirtualTable(sqlite3* db, const char* name, const sqlite3_module* module,
                         VirtualTableFactory factory);

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_VIRTUAL_TABLE_H_

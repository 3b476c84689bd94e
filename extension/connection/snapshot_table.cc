#include "extension/connection/snapshot_table.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/sqlite_status.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// What sqlite3_create_module keeps.
struct ModuleData {
  std::shared_ptr<Connection> connection;
  TableFactory factory;
};

// The state before a savepoint; -1 is the transaction's beginning.
struct SavedState {
  int savepoint;
  std::shared_ptr<const void> state;
};

struct Table : sqlite3_vtab {
  std::unique_ptr<SnapshotTable> table;
  std::vector<SavedState> saved;  // ascending savepoints

  WritableTable& writable() { return static_cast<WritableTable&>(*table); }
};

struct Cursor : sqlite3_vtab_cursor {
  std::vector<SnapshotRow> rows;
  size_t at = 0;
};

Table* Of(sqlite3_vtab* vtab) { return static_cast<Table*>(vtab); }
Cursor* Of(sqlite3_vtab_cursor* cursor) { return static_cast<Cursor*>(cursor); }

template <typename Body>
int Run(sqlite3_vtab* vtab, Body&& body) noexcept {
  return ReportTo(vtab, Of(vtab)->table->name(), Guarded(std::forward<Body>(body)));
}

int Connect(sqlite3* db, void* data, int, const char* const* args, sqlite3_vtab** out,
            char** message) noexcept {
  const auto* module = static_cast<const ModuleData*>(data);
  return ReportTo(message, args[0], Guarded([&]() -> absl::Status {
                    auto table = std::make_unique<Table>();
                    table->table = module->factory(module->connection);
                    if (sqlite3_declare_vtab(db, table->table->schema()) != SQLITE_OK) {
                      return absl::InternalError(sqlite3_errmsg(db));
                    }
                    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
                    if (dynamic_cast<WritableTable*>(table->table.get()) != nullptr) {
                      sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
                    }
                    *out = table.release();
                    return absl::OkStatus();
                  }));
}

int Disconnect(sqlite3_vtab* vtab) noexcept {
  delete Of(vtab);
  return SQLITE_OK;
}

// idxStr is the set of columns that the statement uses, in decimal.
int BestIndex(sqlite3_vtab*, sqlite3_index_info* info) noexcept {
  info->estimatedCost = 100;
  info->estimatedRows = 10;
  info->idxStr = sqlite3_mprintf("%llu", info->colUsed);
  info->needToFreeIdxStr = 1;
  return info->idxStr != nullptr ? SQLITE_OK : SQLITE_NOMEM;
}

int Open(sqlite3_vtab*, sqlite3_vtab_cursor** out) noexcept {
  *out = new (std::nothrow) Cursor();
  return *out != nullptr ? SQLITE_OK : SQLITE_NOMEM;
}

int Close(sqlite3_vtab_cursor* cursor) noexcept {
  delete Of(cursor);
  return SQLITE_OK;
}

int Filter(sqlite3_vtab_cursor* cursor, int, const char* used, int, sqlite3_value**) noexcept {
  return Run(cursor->pVtab, [&]() -> absl::Status {
    Of(cursor)->at = 0;
    uint64_t columns = ~uint64_t{0};
    if (used != nullptr && !absl::SimpleAtoi(used, &columns)) columns = ~uint64_t{0};
    ASSIGN_OR_RETURN(Of(cursor)->rows, Of(cursor->pVtab)->table->RowsFor(columns));
    return absl::OkStatus();
  });
}

int Next(sqlite3_vtab_cursor* cursor) noexcept {
  ++Of(cursor)->at;
  return SQLITE_OK;
}

int Eof(sqlite3_vtab_cursor* cursor) noexcept { return Of(cursor)->at >= Of(cursor)->rows.size(); }

int Column(sqlite3_vtab_cursor* cursor, sqlite3_context* context, int column) noexcept {
  ResultCell(context, Of(cursor)->rows[Of(cursor)->at].cells[column]);
  return SQLITE_OK;
}

int Rowid(sqlite3_vtab_cursor* cursor, sqlite3_int64* rowid) noexcept {
  *rowid = Of(cursor)->rows[Of(cursor)->at].rowid;
  return SQLITE_OK;
}

absl::StatusOr<Cell> CellOf(sqlite3_value* value) {
  switch (sqlite3_value_type(value)) {
    case SQLITE_NULL:
      return Cell();
    case SQLITE_INTEGER:
      return Cell(int64_t{sqlite3_value_int64(value)});
    case SQLITE_FLOAT:
      return Cell(sqlite3_value_double(value));
    default:
      ASSIGN_OR_RETURN(std::optional<std::string> text, TextOf(value, "a value"));
      return text.has_value() ? Cell(*std::move(text)) : Cell();
  }
}

OnConflict ConflictPolicy(sqlite3* db) {
  switch (sqlite3_vtab_on_conflict(db)) {
    case SQLITE_IGNORE:
      return OnConflict::kIgnore;
    case SQLITE_REPLACE:
      return OnConflict::kReplace;
    default:
      return OnConflict::kFail;
  }
}

// args: DELETE has the rowid; INSERT and UPDATE the old rowid (NULL for INSERT), the new one, and
// the columns.
absl::Status Write(Table* table, sqlite3* db, absl::Span<sqlite3_value*> args,
                   sqlite3_int64* rowid) {
  WritableTable& writable = table->writable();
  if (args.size() == 1) return writable.Delete(sqlite3_value_int64(args[0]));
  std::vector<Cell> cells;
  for (sqlite3_value* value : args.subspan(2)) {
    ASSIGN_OR_RETURN(Cell cell, CellOf(value));
    cells.push_back(std::move(cell));
  }
  if (sqlite3_value_type(args[0]) != SQLITE_NULL) {
    return writable.Update(sqlite3_value_int64(args[0]), cells, ConflictPolicy(db));
  }
  ASSIGN_OR_RETURN(int64_t inserted, writable.Insert(cells, ConflictPolicy(db)));
  *rowid = inserted;
  return absl::OkStatus();
}

int Update(sqlite3_vtab* vtab, int num_args, sqlite3_value** args, sqlite3_int64* rowid) noexcept {
  absl::StatusCode code = absl::StatusCode::kOk;
  int reported = Run(vtab, [&] {
    Table* table = Of(vtab);
    absl::Status status =
        Write(table, table->table->connection().db(), absl::MakeSpan(args, num_args), rowid);
    code = status.code();
    return status;
  });
  return code == absl::StatusCode::kAlreadyExists ? SQLITE_CONSTRAINT : reported;
}

int Savepoint(sqlite3_vtab* vtab, int savepoint) noexcept {
  return Run(vtab, [&] {
    Table* table = Of(vtab);
    while (!table->saved.empty() && table->saved.back().savepoint >= savepoint) {
      table->saved.pop_back();
    }
    table->saved.push_back({savepoint, table->writable().Save()});
    return absl::OkStatus();
  });
}

int RollbackTo(sqlite3_vtab* vtab, int savepoint) noexcept {
  return Run(vtab, [&] {
    std::vector<SavedState>& saved = Of(vtab)->saved;
    // Without a state of just that savepoint, nothing has changed between it and the next one.
    auto first = std::find_if(saved.begin(), saved.end(), [savepoint](const SavedState& state) {
      return state.savepoint >= savepoint;
    });
    if (first == saved.end()) return absl::OkStatus();
    Of(vtab)->writable().Restore(first->state.get());
    saved.erase(first + 1, saved.end());
    return absl::OkStatus();
  });
}

int Release(sqlite3_vtab* vtab, int savepoint) noexcept {
  std::erase_if(Of(vtab)->saved,
                [savepoint](const SavedState& state) { return state.savepoint >= savepoint; });
  return SQLITE_OK;
}

int Begin(sqlite3_vtab* vtab) noexcept {
  Of(vtab)->saved.clear();
  return Savepoint(vtab, -1);
}

int Commit(sqlite3_vtab* vtab) noexcept { return Release(vtab, -1); }

int Rollback(sqlite3_vtab* vtab) noexcept {
  int code = RollbackTo(vtab, -1);
  Release(vtab, -1);
  return code;
}

constexpr sqlite3_module ReadOnlyModule() {
  sqlite3_module module = {};
  module.iVersion = 2;
  module.xConnect = Connect;
  module.xDisconnect = Disconnect;
  module.xBestIndex = BestIndex;
  module.xOpen = Open;
  module.xClose = Close;
  module.xFilter = Filter;
  module.xNext = Next;
  module.xEof = Eof;
  module.xColumn = Column;
  module.xRowid = Rowid;
  return module;
}

constexpr sqlite3_module WritableModule() {
  sqlite3_module module = ReadOnlyModule();
  module.xCreate = Connect;
  module.xDestroy = Disconnect;
  module.xUpdate = Update;
  module.xBegin = Begin;
  module.xCommit = Commit;
  module.xRollback = Rollback;
  module.xSavepoint = Savepoint;
  module.xRelease = Release;
  module.xRollbackTo = RollbackTo;
  return module;
}

int Register(const std::shared_ptr<Connection>& connection, const char* name,
             const sqlite3_module* module, TableFactory factory) {
  auto* data = new (std::nothrow) ModuleData{connection, factory};
  if (data == nullptr) return SQLITE_NOMEM;
  return sqlite3_create_module_v2(connection->db(), name, module, data,
                                  [](void* p) { delete static_cast<ModuleData*>(p); });
}

// Whether the main database has a first page. False where it cannot be read now.
bool HasContent(sqlite3* db) {
  absl::StatusOr<Statement> count = Statement::Prepare(db, "PRAGMA main.page_count");
  if (!count.ok()) return false;
  const absl::StatusOr<bool> row = count->Step();
  return row.ok() && *row && count->Integer(0) > 0;
}

bool IsInTemp(sqlite3* db, const char* name) {
  return sqlite3_table_column_metadata(db, "temp", name, nullptr, nullptr, nullptr, nullptr,
                                       nullptr, nullptr) == SQLITE_OK;
}

}  // namespace

int RegisterReadOnlyTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory) {
  static constexpr sqlite3_module kModule = ReadOnlyModule();
  return Register(connection, name, &kModule, factory);
}

int RegisterWritableTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory) {
  static constexpr sqlite3_module kModule = WritableModule();
  return Register(connection, name, &kModule, factory);
}

bool CreateInTemp(sqlite3* db, std::initializer_list<const char*> names) {
  std::vector<const char*> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [db](const char* name) { return !IsInTemp(db, name); });
  if (missing.empty() || !HasContent(db)) return false;
  return std::all_of(missing.begin(), missing.end(), [db](const char* name) {
    return Execute(db, absl::StrCat("CREATE VIRTUAL TABLE temp.", name, " USING ", name).c_str())
        .ok();
  });
}

}  // namespace lm

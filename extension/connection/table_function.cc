#include "extension/connection/table_function.h"

#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_status.h"
#include "extension/host/sqlite_value.h"

namespace lm {

absl::StatusOr<std::optional<std::string>> TableArguments::Text(int i) const {
  if (values_[i] == nullptr) return std::nullopt;
  return TextOf(values_[i], spec_.arguments[i]);
}

absl::StatusOr<std::optional<int64_t>> TableArguments::Integer(int i) const {
  ASSIGN_OR_RETURN(std::optional<std::string> text, Text(i));
  if (!text.has_value()) return std::nullopt;
  int64_t value;
  if (absl::SimpleAtoi(*text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(spec_.arguments[i], " must be a whole number, got '", *text, "'"));
}

namespace {

// What sqlite3_create_module keeps.
struct ModuleData {
  std::shared_ptr<Connection> connection;
  const TableFunctionSpec* spec;
};

struct Table : sqlite3_vtab {
  std::shared_ptr<Connection> connection;
  const TableFunctionSpec* spec;
};

struct Cursor : sqlite3_vtab_cursor {
  std::unique_ptr<TableCursor> scan;
};

Table* Of(sqlite3_vtab* vtab) { return static_cast<Table*>(vtab); }
TableCursor& Of(sqlite3_vtab_cursor* cursor) { return *static_cast<Cursor*>(cursor)->scan; }

template <typename Body>
int Run(sqlite3_vtab* vtab, Body&& body) noexcept {
  return ReportTo(vtab, Of(vtab)->spec->name,
                  GuardedInterruptibly(Of(vtab)->connection->db(), std::forward<Body>(body)));
}

int NumArguments(const TableFunctionSpec& spec) {
  int count = 0;
  while (count < kMostTableArguments && spec.arguments[count] != nullptr) ++count;
  return count;
}

int Connect(sqlite3* db, void* data, int, const char* const*, sqlite3_vtab** out,
            char** message) noexcept {
  const auto* module = static_cast<const ModuleData*>(data);
  const TableFunctionSpec& spec = *module->spec;
  return ReportTo(message, spec.name, Guarded([&]() -> absl::Status {
                    std::string schema = absl::StrCat("CREATE TABLE t(", spec.columns);
                    for (int i = 0; i < NumArguments(spec); ++i) {
                      absl::StrAppend(&schema, ", ", spec.arguments[i], " HIDDEN");
                    }
                    schema += ")";
                    if (sqlite3_declare_vtab(db, schema.c_str()) != SQLITE_OK) {
                      return absl::InternalError(sqlite3_errmsg(db));
                    }
                    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
                    auto table = std::make_unique<Table>();
                    table->connection = module->connection;
                    table->spec = module->spec;
                    *out = table.release();
                    return absl::OkStatus();
                  }));
}

int Disconnect(sqlite3_vtab* vtab) noexcept {
  delete Of(vtab);
  return SQLITE_OK;
}

// The arguments arrive as equality constraints on the hidden columns. idxNum has a bit for each
// that is given; xFilter gets their values in the columns' order.
int BestIndex(sqlite3_vtab* vtab, sqlite3_index_info* info) noexcept {
  const TableFunctionSpec& spec = *Of(vtab)->spec;
  const int num_arguments = NumArguments(spec);
  std::array<int, kMostTableArguments> constraint_of;
  constraint_of.fill(-1);
  bool unusable = false;
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& constraint = info->aConstraint[i];
    const int argument = constraint.iColumn - spec.num_columns;
    if (argument < 0 || constraint.op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
    if (constraint.usable) {
      constraint_of[argument] = i;
    } else {
      unusable = true;
    }
  }
  if (unusable) return SQLITE_CONSTRAINT;  // another join order has them
  int num_given = 0;
  for (int argument = 0; argument < num_arguments; ++argument) {
    const int i = constraint_of[argument];
    if (i < 0 && argument < spec.required) {
      return Run(vtab, [&] { return absl::InvalidArgumentError(spec.missing); });
    }
    if (i < 0) continue;
    info->aConstraintUsage[i].argvIndex = ++num_given;
    info->aConstraintUsage[i].omit = 1;
    info->idxNum |= 1 << argument;
  }
  info->estimatedCost = 1e6;
  info->estimatedRows = spec.estimated_rows;
  return SQLITE_OK;
}

int Open(sqlite3_vtab* vtab, sqlite3_vtab_cursor** out) noexcept {
  return Run(vtab, [&] {
    auto cursor = std::make_unique<Cursor>();
    cursor->scan = Of(vtab)->spec->open(*Of(vtab)->connection);
    *out = cursor.release();
    return absl::OkStatus();
  });
}

int Close(sqlite3_vtab_cursor* cursor) noexcept {
  delete static_cast<Cursor*>(cursor);
  return SQLITE_OK;
}

int Filter(sqlite3_vtab_cursor* cursor, int given, const char*, int,
           sqlite3_value** args) noexcept {
  return Run(cursor->pVtab, [&] {
    std::array<sqlite3_value*, kMostTableArguments> values = {};
    for (int i = 0; i < kMostTableArguments; ++i) {
      if ((given & 1 << i) != 0) values[i] = *args++;
    }
    return Of(cursor).Filter(TableArguments(*Of(cursor->pVtab)->spec, values));
  });
}

int Next(sqlite3_vtab_cursor* cursor) noexcept {
  return Run(cursor->pVtab, [&] { return Of(cursor).Next(); });
}

int Eof(sqlite3_vtab_cursor* cursor) noexcept { return Of(cursor).Eof(); }

// Arguments read as NULL, like those of SQLite's own table-valued functions that keep none.
int Column(sqlite3_vtab_cursor* cursor, sqlite3_context* context, int column) noexcept {
  if (column >= Of(cursor->pVtab)->spec->num_columns) return SQLITE_OK;
  return Run(cursor->pVtab, [&] { return Of(cursor).Column(column, context); });
}

int Rowid(sqlite3_vtab_cursor* cursor, sqlite3_int64* rowid) noexcept {
  *rowid = Of(cursor).rowid();
  return SQLITE_OK;
}

constexpr sqlite3_module Module() {
  sqlite3_module module = {};
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

// One that CREATE VIRTUAL TABLE takes as well.
constexpr sqlite3_module TemporaryModule() {
  sqlite3_module module = Module();
  module.xCreate = Connect;
  module.xDestroy = Disconnect;
  return module;
}

int Register(const std::shared_ptr<Connection>& connection, const TableFunctionSpec* spec,
             const sqlite3_module* module) {
  auto* data = new (std::nothrow) ModuleData{connection, spec};
  if (data == nullptr) return SQLITE_NOMEM;
  return sqlite3_create_module_v2(connection->db(), spec->name, module, data,
                                  [](void* p) { delete static_cast<ModuleData*>(p); });
}

}  // namespace

int RegisterTableFunction(const std::shared_ptr<Connection>& connection,
                          const TableFunctionSpec* spec) {
  static constexpr sqlite3_module kModule = Module();
  return Register(connection, spec, &kModule);
}

int RegisterTemporaryTableFunction(const std::shared_ptr<Connection>& connection,
                                   const TableFunctionSpec* spec) {
  static constexpr sqlite3_module kModule = TemporaryModule();
  return Register(connection, spec, &kModule);
}

}  // namespace lm

#include "extension/binding/virtual_table.h"

#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/boundary.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

struct CursorHandle : sqlite3_vtab_cursor {
  std::unique_ptr<VirtualCursor> cursor;
  std::shared_ptr<RunningWork> work;
};

VirtualTable& Of(sqlite3_vtab* vtab) { return *static_cast<VirtualTableHandle*>(vtab)->table; }
sqlite3_vtab_cursor*& OpenedOf(sqlite3_vtab* vtab) {
  return static_cast<VirtualTableHandle*>(vtab)->opened;
}
VirtualCursor& Of(sqlite3_vtab_cursor* cursor) {
  return *static_cast<CursorHandle*>(cursor)->cursor;
}

// RunFor as a call of the statement that the cursor belongs to.
template <typename Body>
int RunForCursor(sqlite3_vtab_cursor* cursor, Body&& body) noexcept {
  VirtualTable& table = Of(cursor->pVtab);
  auto* work = &static_cast<CursorHandle*>(cursor)->work;
  return ReportTo(cursor->pVtab, table.name(),
                  RunForStatement(
                      table.connection(), table.name(), [work](bool) { return work; },
                      std::forward<Body>(body)));
}

int Connect(sqlite3* db, void* data, int num_args, const char* const* args, sqlite3_vtab** out,
            char** message) noexcept {
  const auto& factory = *static_cast<const VirtualTableFactory*>(data);
  return ReportTo(message, args[0], Guarded([&]() -> absl::Status {
                    auto handle = std::make_unique<VirtualTableHandle>();
                    ASSIGN_OR_RETURN(handle->table, factory(absl::MakeSpan(args, num_args)));
                    if (sqlite3_declare_vtab(db, handle->table->Schema().c_str()) != SQLITE_OK) {
                      return absl::InternalError(sqlite3_errmsg(db));
                    }
                    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
                    if (handle->table->resolves_conflicts()) {
                      sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
                    }
                    *out = handle.release();
                    return absl::OkStatus();
                  }));
}

int Disconnect(sqlite3_vtab* vtab) noexcept {
  delete static_cast<VirtualTableHandle*>(vtab);
  return SQLITE_OK;
}

int BestIndex(sqlite3_vtab* vtab, sqlite3_index_info* info) noexcept {
  bool usable = true;
  const int code = RunFor(vtab, [&] {
    const absl::StatusOr<bool> found = Of(vtab).BestIndex(info);
    usable = !found.ok() || *found;
    return found.status();
  });
  return usable ? code : SQLITE_CONSTRAINT;
}

int Open(sqlite3_vtab* vtab, sqlite3_vtab_cursor** out) noexcept {
  return RunFor(vtab, [&] {
    auto handle = std::make_unique<CursorHandle>();
    handle->cursor = Of(vtab).Open();
    *out = handle.release();
    // Of several statements, what is closed next may be another one's.
    const bool alone = BusyStatementsOfHost(Of(vtab).connection().db()).size() == 1;
    OpenedOf(vtab) = alone ? *out : nullptr;
    return absl::OkStatus();
  });
}

int Close(sqlite3_vtab_cursor* cursor) noexcept {
  const std::unique_ptr<CursorHandle> closed(static_cast<CursorHandle*>(cursor));
  sqlite3_vtab_cursor*& opened = OpenedOf(cursor->pVtab);
  if (opened == cursor) {
    opened = nullptr;
  } else if (opened != nullptr && closed->cursor->can_rewind()) {
    auto& successor = *static_cast<CursorHandle*>(opened);
    successor.cursor.swap(closed->cursor);
    successor.work.swap(closed->work);
  }
  return SQLITE_OK;
}

int Filter(sqlite3_vtab_cursor* cursor, int plan, const char* text, int,
           sqlite3_value** args) noexcept {
  sqlite3_vtab_cursor*& opened = OpenedOf(cursor->pVtab);
  if (opened == cursor) opened = nullptr;
  return RunForCursor(cursor, [&] { return Of(cursor).Begin(plan, text, args); });
}

int Next(sqlite3_vtab_cursor* cursor) noexcept {
  return RunForCursor(cursor, [&] { return Of(cursor).Next(); });
}

int Eof(sqlite3_vtab_cursor* cursor) noexcept { return Of(cursor).Eof(); }

int Column(sqlite3_vtab_cursor* cursor, sqlite3_context* context, int column) noexcept {
  return RunForCursor(cursor, [&] { return Of(cursor).Column(column, context); });
}

int Rowid(sqlite3_vtab_cursor* cursor, sqlite3_int64* rowid) noexcept {
  *rowid = Of(cursor).rowid();
  return SQLITE_OK;
}

}  // namespace

sqlite3_module VirtualTableModule(Creation creation) {
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
  if (creation == Creation::kAlsoByCreate) {
    module.xCreate = Connect;
    module.xDestroy = Disconnect;
  }
  return module;
}

int RegisterVirtualTable(sqlite3* db, const char* name, const sqlite3_module* module,
                         VirtualTableFactory factory) {
  return sqlite3_create_module_v2(db, name, module, new VirtualTableFactory(std::move(factory)),
                                  [](void* p) { delete static_cast<VirtualTableFactory*>(p); });
}

}  // namespace lm

#include "extension/binding/snapshot_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

class OnePage : public RowPages {
 public:
  explicit OnePage(std::vector<SnapshotRow> rows) : rows_(std::move(rows)) {}

  absl::StatusOr<std::vector<SnapshotRow>> Next() override { return std::exchange(rows_, {}); }

 private:
  std::vector<SnapshotRow> rows_;
};

class SnapshotCursor : public VirtualCursor {
 public:
  explicit SnapshotCursor(SnapshotTable& table) : table_(table) {}

  absl::Status Begin(int, const char* used, sqlite3_value**) override {
    uint64_t columns = ~uint64_t{0};
    RETURN_IF_ERROR(table_.BeforeScan());
    if (used != nullptr && !absl::SimpleAtoi(used, &columns)) columns = ~uint64_t{0};
    ASSIGN_OR_RETURN(pages_, table_.Scan(columns));
    return Turn();
  }
  bool Eof() const override { return at_ >= rows_.size(); }
  absl::Status Next() override { return ++at_ < rows_.size() ? absl::OkStatus() : Turn(); }
  absl::Status Column(int column, sqlite3_context* context) override {
    // Left alone, so that Write can tell that it is not to be changed.
    const bool fixed = column >= table_.num_writable();
    if (fixed && sqlite3_vtab_nochange(context) != 0) return absl::OkStatus();
    ResultCell(context, rows_[at_].cells[column]);
    return absl::OkStatus();
  }
  int64_t rowid() const override { return rows_[at_].rowid; }

 private:
  absl::Status Turn() {
    at_ = 0;
    rows_.clear();
    ASSIGN_OR_RETURN(rows_, pages_->Next());
    return absl::OkStatus();
  }

  SnapshotTable& table_;
  std::unique_ptr<RowPages> pages_;
  std::vector<SnapshotRow> rows_;  // the page
  size_t at_ = 0;
};

absl::StatusOr<Cell> CopyOf(sqlite3_value* value) {
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

// The name of a column in a CREATE TABLE of ours.
absl::string_view ColumnName(absl::string_view schema, size_t column) {
  schema.remove_prefix(schema.find('(') + 1);
  for (size_t i = 0; i < column; ++i) schema.remove_prefix(schema.find(',') + 2);
  return schema.substr(0, schema.find_first_of(" ,)"));
}

// UPDATE ... FROM hands over the columns that it leaves as they are, like any others.
absl::StatusOr<bool> IsAsItWas(WritableTable& table, int64_t rowid, size_t column,
                               const Cell& cell) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RowPages> pages, table.Scan(~uint64_t{0}));
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<SnapshotRow> rows, pages->Next());
    if (rows.empty()) return false;
    for (const SnapshotRow& row : rows) {
      if (row.rowid == rowid) return row.cells[column] == cell;
    }
  }
}

absl::Status CannotBeWritten(const WritableTable& table, absl::string_view what) {
  const std::string schema = table.Schema();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " cannot be written; ", ColumnName(schema, 0), " to ",
                   ColumnName(schema, table.num_writable() - 1), " can"));
}

// args: DELETE has the rowid; INSERT and UPDATE the old rowid (NULL for INSERT), the new one, and
// the columns.
absl::Status Write(WritableTable& table, absl::Span<sqlite3_value*> args, sqlite3_int64* rowid) {
  if (args.size() == 1) return table.Delete(sqlite3_value_int64(args[0]));
  const bool insert = sqlite3_value_type(args[0]) == SQLITE_NULL;
  const bool own_rowid = insert ? sqlite3_value_type(args[1]) == SQLITE_NULL
                                : sqlite3_value_int64(args[1]) == sqlite3_value_int64(args[0]);
  if (!own_rowid) return CannotBeWritten(table, "the rowid");
  const absl::Span<sqlite3_value*> values = args.subspan(2);
  std::vector<Cell> cells;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool given = insert ? sqlite3_value_type(values[i]) != SQLITE_NULL
                              : sqlite3_value_nochange(values[i]) == 0;
    ASSIGN_OR_RETURN(Cell cell, CopyOf(values[i]));
    if (given && i >= static_cast<size_t>(table.num_writable())) {
      bool as_it_was = false;
      if (!insert) {
        ASSIGN_OR_RETURN(as_it_was, IsAsItWas(table, sqlite3_value_int64(args[0]), i, cell));
      }
      if (!as_it_was) {
        return CannotBeWritten(table, absl::StrCat("the column ", ColumnName(table.Schema(), i)));
      }
      cell = Cell();
    }
    cells.push_back(std::move(cell));
  }
  const OnConflict policy = ConflictPolicy(table.connection().db());
  if (!insert) {
    return table.Update(sqlite3_value_int64(args[0]), cells, policy);
  }
  ASSIGN_OR_RETURN(int64_t inserted, table.Insert(cells, policy));
  *rowid = inserted;
  return absl::OkStatus();
}

// Whether what runs is one statement on the table and no other, which has opened all that it reads:
// SQLite aborts one that opens a table once the schema of temp has changed meanwhile.
bool RunsAlone(sqlite3* db, absl::string_view table) {
  const std::vector<sqlite3_stmt*> busy = BusyStatements(db);
  if (busy.size() != 1) return false;
  const std::vector<SqlToken> tokens = SqlTokens(sqlite3_sql(busy[0]));
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].Is("SELECT") || tokens[i].Is("IN") || tokens[i].Is("JOIN")) return false;
  }
  const size_t from = FindWord(tokens, 0, {"FROM"});
  if (from == tokens.size()) {  // it writes: that, or one whose trigger reads the table
    return std::any_of(tokens.begin(), tokens.end(),
                       [table](const SqlToken& token) { return token.Names(table); });
  }
  if (!tokens[0].Is("SELECT") && !tokens[0].Is("DELETE")) return false;
  size_t name = from + 1;
  if (name + 1 < tokens.size() && tokens[name + 1].Is(".")) name += 2;
  return name < tokens.size() && tokens[name].Names(table) &&
         std::none_of(tokens.begin() + name, tokens.end(),
                      [](const SqlToken& token) { return token.depth == 0 && token.Is(","); });
}

// Of any database but temp. One that cannot be read now has no trigger under way.
bool HasTriggerThatNames(sqlite3* db, absl::string_view table) {
  absl::StatusOr<Statement> databases =
      Statement::Prepare(db, "SELECT name FROM pragma_database_list WHERE name != 'temp'");
  while (databases.ok()) {
    const absl::StatusOr<bool> row = databases->Step();
    if (!row.ok() || !*row) break;
    const absl::StatusOr<std::string> name = databases->Text(0);
    if (!name.ok()) break;
    absl::StatusOr<Statement> triggers = Statement::Prepare(
        db, absl::StrCat("SELECT count(*) FROM \"", absl::StrReplaceAll(*name, {{"\"", "\"\""}}),
                         "\".sqlite_master WHERE lower(type) = 'trigger' AND "
                         "instr(lower(sql), ?1) > 0"));
    if (!triggers.ok()) continue;
    const absl::StatusOr<bool> counted = triggers->Bind(1, table).Step();
    if (counted.ok() && *counted && triggers->Integer(0) > 0) return true;
  }
  return false;
}

// Whether the main database has a first page. False where it cannot be read now.
absl::StatusOr<bool> HasContent(sqlite3* db) {
  ASSIGN_OR_RETURN(Statement count, Statement::Prepare(db, "PRAGMA main.page_count"));
  ASSIGN_OR_RETURN(const bool row, count.Step());
  return row && count.Integer(0) > 0;
}

bool IsInTemp(sqlite3* db, const char* name) {
  return sqlite3_table_column_metadata(db, "temp", name, nullptr, nullptr, nullptr, nullptr,
                                       nullptr, nullptr) == SQLITE_OK;
}

// The tables that temp does not have, where the main database has content. Errors as those of
// CreateInTemp.
absl::StatusOr<std::vector<const char*>> WantedInTemp(const Connection& connection) {
  sqlite3* const db = connection.db();
  std::vector<const char*> missing;
  std::copy_if(connection.tables_of_temp().begin(), connection.tables_of_temp().end(),
               std::back_inserter(missing), [db](const char* name) { return !IsInTemp(db, name); });
  if (missing.empty()) return missing;
  const absl::StatusOr<bool> has_content = HasContent(db);
  if (EndsStatementAround(has_content.status())) return has_content.status();
  if (!has_content.value_or(false)) missing.clear();
  return missing;
}

}  // namespace

// SQLite's methods for writing.
struct TableWriting {
  static WritableTable& Of(sqlite3_vtab* vtab) {
    return static_cast<WritableTable&>(*static_cast<VirtualTableHandle*>(vtab)->table);
  }

  static void SetUp(SnapshotTable& table, bool in_temp,
                    std::shared_ptr<std::weak_ptr<SavedStates>> saved_of_kind) {
    auto& writable = static_cast<WritableTable&>(table);
    writable.in_temp_ = in_temp;
    writable.saved_of_kind_ = std::move(saved_of_kind);
  }

  // SQLite before 3.40 lets a database file's triggers write what is SQLITE_VTAB_DIRECTONLY. They
  // cannot name a table in temp; a statement of the host can, and does where there is one.
  static absl::Status CheckWriter(WritableTable& table) {
    if (table.in_temp_ || sqlite3_libversion_number() >= 3'040'000) return absl::OkStatus();
    if (!HasTriggerThatNames(table.connection().db(), table.name())) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "unsafe use of virtual table \"", table.name(),
        "\": a trigger of the database names it, and SQLite ", sqlite3_libversion(),
        " does not tell whether that is who writes it; behind CREATE VIRTUAL TABLE temp.",
        table.name(), " USING ", table.name(), ", temp.", table.name(), " can be written"));
  }

  static int Update(sqlite3_vtab* vtab, int num_args, sqlite3_value** args,
                    sqlite3_int64* rowid) noexcept {
    absl::StatusCode code = absl::StatusCode::kOk;
    const int reported = RunFor(vtab, [&] {
      absl::Status status = CheckWriter(Of(vtab));
      Saved(Of(vtab));
      if (status.ok()) status = Write(Of(vtab), absl::MakeSpan(args, num_args), rowid);
      if (status.ok()) status = Of(vtab).CreateInTempIfAlone();
      code = status.code();
      return status;
    });
    return code == absl::StatusCode::kAlreadyExists ? SQLITE_CONSTRAINT : reported;
  }

  // The list of the transaction, which begins with what is there where no table of the kind has
  // been in it. SQLite tells a table of its beginning (xBegin), unless that was created since.
  static SavedStates& Saved(WritableTable& table) {
    if (table.saved_ != nullptr) return *table.saved_;
    std::shared_ptr<SavedStates> saved = table.saved_of_kind_->lock();
    if (saved == nullptr) {
      saved = std::make_shared<SavedStates>(SavedStates{{-1, table.Save()}});
      *table.saved_of_kind_ = saved;
    }
    table.saved_ = std::move(saved);
    return *table.saved_;
  }

  // The state to which a rollback to the savepoint leads. A savepoint that was open when the table
  // was first written has none of its own: SQLite has it saved for the innermost alone.
  static SavedStates::iterator FirstFrom(SavedStates& saved, int savepoint) {
    return std::find_if(saved.begin(), saved.end(), [savepoint](const SavedState& state) {
      return state.savepoint >= savepoint;
    });
  }

  static int Begin(sqlite3_vtab* vtab) noexcept {
    return RunFor(vtab, [&] {
      Saved(Of(vtab));
      return absl::OkStatus();
    });
  }

  static int Savepoint(sqlite3_vtab* vtab, int savepoint) noexcept {
    return RunFor(vtab, [&] {
      SavedStates& saved = Saved(Of(vtab));
      // Unless another table of the kind has done it.
      if (FirstFrom(saved, savepoint) == saved.end()) {
        saved.push_back({savepoint, Of(vtab).Save()});
      }
      return absl::OkStatus();
    });
  }

  static int RollbackTo(sqlite3_vtab* vtab, int savepoint) noexcept {
    return RunFor(vtab, [&] {
      SavedStates& saved = Saved(Of(vtab));
      const auto first = FirstFrom(saved, savepoint);
      // Without a state, nothing has changed since.
      if (first == saved.end()) return absl::OkStatus();
      Of(vtab).Restore(first->state.get());
      first->savepoint = savepoint;
      saved.erase(first + 1, saved.end());
      return absl::OkStatus();
    });
  }

  static int Release(sqlite3_vtab* vtab, int savepoint) noexcept {
    return RunFor(vtab, [&] {
      SavedStates& saved = Saved(Of(vtab));
      auto first = FirstFrom(saved, savepoint);
      if (first == saved.end()) return absl::OkStatus();
      // Of savepoints before it that have no state of their own, this is the state.
      const bool stands_for_others =
          first != saved.begin() && std::prev(first)->savepoint < savepoint - 1;
      if (stands_for_others) (first++)->savepoint = savepoint - 1;
      saved.erase(first, saved.end());
      return absl::OkStatus();
    });
  }

  static int Commit(sqlite3_vtab* vtab) noexcept {
    Of(vtab).saved_.reset();
    return SQLITE_OK;
  }

  static int Rollback(sqlite3_vtab* vtab) noexcept {
    const int code = RollbackTo(vtab, -1);
    Of(vtab).saved_.reset();
    return code;
  }

  static sqlite3_module Module() {
    sqlite3_module module = VirtualTableModule(Creation::kAlsoByCreate);
    module.xUpdate = Update;
    module.xBegin = Begin;
    module.xCommit = Commit;
    module.xRollback = Rollback;
    module.xSavepoint = Savepoint;
    module.xRelease = Release;
    module.xRollbackTo = RollbackTo;
    return module;
  }
};

// idxStr is the set of columns that the statement uses, in decimal.
absl::StatusOr<bool> SnapshotTable::BestIndex(sqlite3_index_info* info) {
  info->estimatedCost = 100;
  info->estimatedRows = 10;
  info->idxStr = sqlite3_mprintf("%llu", info->colUsed);
  info->needToFreeIdxStr = 1;
  if (info->idxStr == nullptr) return absl::ResourceExhaustedError("out of memory");
  return true;
}

absl::StatusOr<std::unique_ptr<RowPages>> SnapshotTable::Scan(uint64_t used) {
  ASSIGN_OR_RETURN(std::vector<SnapshotRow> rows, RowsFor(used));
  return std::make_unique<OnePage>(std::move(rows));
}

std::unique_ptr<VirtualCursor> SnapshotTable::Open() {
  return std::make_unique<SnapshotCursor>(*this);
}

int RegisterReadOnlyTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory) {
  static const sqlite3_module module = VirtualTableModule(Creation::kByNameAlone);
  return RegisterVirtualTable(
      connection->db(), name, &module,
      [connection, factory](absl::Span<const char* const>) { return factory(connection); });
}

int RegisterWritableTable(const std::shared_ptr<Connection>& connection, const char* name,
                          TableFactory factory) {
  static const sqlite3_module module = TableWriting::Module();
  return RegisterVirtualTable(
      connection->db(), name, &module,
      [connection, factory, saved_of_kind = std::make_shared<std::weak_ptr<SavedStates>>()](
          absl::Span<const char* const> args) -> absl::StatusOr<std::unique_ptr<VirtualTable>> {
        // Another would be one more way to the same rows.
        if (!absl::EqualsIgnoreCase(args[0], args[2])) {
          return absl::InvalidArgumentError(
              absl::StrCat("it can be made under its own name only, not as ", Printable(args[2])));
        }
        std::unique_ptr<SnapshotTable> table = factory(connection);
        TableWriting::SetUp(*table, absl::EqualsIgnoreCase(args[1], "temp"), saved_of_kind);
        return table;
      });
}

absl::Status WritableTable::BeforeScan() { return CreateInTempIfAlone(); }

// Not within a transaction, which an interrupt of a scan would roll back with it, and in which a
// change cannot tell of savepoints. What costs most comes last: it is asked for each row of a
// change, whose text may be long.
absl::Status WritableTable::CreateInTempIfAlone() {
  if (in_temp_ || sqlite3_get_autocommit(connection().db()) == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<const char*> wanted, WantedInTemp(connection()));
  if (wanted.empty() || !RunsAlone(connection().db(), name())) return absl::OkStatus();
  return CreateInTemp(connection()).status();
}

absl::StatusOr<bool> CreateInTemp(const Connection& connection) {
  sqlite3* const db = connection.db();
  ASSIGN_OR_RETURN(const std::vector<const char*> wanted, WantedInTemp(connection));
  if (wanted.empty()) return false;
  // SQLite tells a table that is new in a transaction of no savepoint that is open, not even that
  // it rolls back to it; of all of them, once there has been one more, as there can be unless a
  // statement is writing.
  const auto tell_of_savepoints = [db] {
    if (sqlite3_get_autocommit(db) != 0) return absl::OkStatus();
    return Execute(db, "SAVEPOINT lm_told; RELEASE lm_told");
  };
  const absl::Status can_tell = tell_of_savepoints();
  if (EndsStatementAround(can_tell)) return can_tell;
  if (!can_tell.ok()) return false;
  for (const char* name : wanted) {
    const absl::Status created =
        Execute(db, absl::StrCat("CREATE VIRTUAL TABLE temp.", name, " USING ", name).c_str());
    if (EndsStatementAround(created)) return created;
    if (!created.ok()) return false;
  }
  RETURN_IF_ERROR(tell_of_savepoints());
  return true;
}

}  // namespace lm

// Table-valued functions as C++ cursors. A function says what its columns and arguments are and
// what a scan of it does.
//
//   class StreamCursor : public TableCursor {
//     absl::Status Filter(const TableArguments& args) override;  // lm_stream('Tell me a story.')
//     ...
//   };
//   constexpr TableFunctionSpec kSpec = {
//       .name = "lm_stream", .columns = "piece TEXT, token INTEGER", .num_columns = 2,
//       .arguments = {"prompt", "system"}, .missing = "a prompt is missing: lm_stream(prompt)",
//       .open = &MakeCursor<StreamCursor>};
//   RegisterTableFunction(connection, &kSpec);
#ifndef LM_EXTENSION_BINDING_TABLE_FUNCTION_H_
#define LM_EXTENSION_BINDING_TABLE_FUNCTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/binding/virtual_table.h"
#include "extension/connection/call_options.h"
#include "extension/connection/connection.h"
#include "extension/host/sqlite_api.h"
#include "extension/host/sqlite_value.h"

namespace lm {

inline constexpr int kMostTableArguments = 4;

struct TableFunctionSpec {
  const char* name;
  const char* columns;  // as in CREATE TABLE, without the arguments
  int num_columns;      // of `columns`
  // In order; the first `required` must be given.
  std::array<const char*, kMostTableArguments> arguments = {};
  int required = 1;
  const char* missing;  // the error where a required one is not
  int64_t estimated_rows = 100;
  int ascending = -2;  // the column in whose order the rows come; -2: none
  std::unique_ptr<VirtualCursor> (*open)(Connection& connection, const TableFunctionSpec& spec);
};

// What the function was called with, as long as Filter runs.
class TableArguments {
 public:
  // nullptr where an argument is not given.
  TableArguments(const TableFunctionSpec& spec,
                 std::array<sqlite3_value*, kMostTableArguments> values, int used)
      : spec_(spec), values_(values), used_(used) {}

  // The text of argument i (see TextOf); nullopt for NULL, and where it is not given.
  absl::StatusOr<std::optional<std::string>> Text(int i) const;
  // A whole number, however it is written; nullopt as above.
  absl::StatusOr<std::optional<int64_t>> Integer(int i) const;

  // Whether the statement may ask for the column: of the first kToldColumns this is known.
  static constexpr int kToldColumns = 16;
  bool Uses(int column) const { return column >= kToldColumns || (used_ >> column & 1) != 0; }

 private:
  const TableFunctionSpec& spec_;
  const std::array<sqlite3_value*, kMostTableArguments> values_;
  const int used_;
};

// One scan after another over what the function gives.
class TableCursor : public VirtualCursor {
 public:
  TableCursor(Connection& connection, const TableFunctionSpec& spec)
      : connection_(connection), spec_(spec) {}

  // Begins a scan, on its first row if there is one.
  virtual absl::Status Filter(const TableArguments& args) = 0;
  // Whether that scan has no row any more.
  virtual bool AtEnd() const = 0;
  // Column(), of one that is no argument.
  virtual absl::Status Value(int column, sqlite3_context* context) = 0;
  // Instead of Filter(), where the arguments are those of the last scan and can_rewind() is true.
  virtual void Rewind() {}

  absl::Status Begin(int plan, const char* conditions, sqlite3_value** args) final;
  bool Eof() const final { return contradicted_ || AtEnd(); }
  absl::Status Column(int column, sqlite3_context* context) final;

 protected:
  Connection& connection() const { return connection_; }

 private:
  Connection& connection_;
  const TableFunctionSpec& spec_;
  int plan_ = -1;                                          // of the last scan
  std::array<OwnedValue, kMostTableArguments> arguments_;  // null: not given
  bool contradicted_ = false;  // the scan is of arguments that are two values at once: of nothing
};

template <typename Cursor>
std::unique_ptr<VirtualCursor> MakeCursor(Connection& connection, const TableFunctionSpec& spec) {
  return std::make_unique<Cursor>(connection, spec);
}

// The table of a function.
class FunctionTable : public VirtualTable {
 public:
  // REQUIRES: `spec` outlives it.
  FunctionTable(std::shared_ptr<Connection> connection, const TableFunctionSpec& spec)
      : VirtualTable(std::move(connection)), spec_(spec) {}

  const char* name() const override { return spec_.name; }
  std::string Schema() const override;
  absl::StatusOr<bool> BestIndex(sqlite3_index_info* info) override;
  std::unique_ptr<VirtualCursor> Open() override { return spec_.open(connection(), spec_); }

 private:
  absl::Status MissingError(const sqlite3_index_info& info, int argument) const;

  const TableFunctionSpec& spec_;
};

// REQUIRES: *spec lives for ever. SQL that calls it as a scalar function is told what it is.
int RegisterTableFunction(const std::shared_ptr<Connection>& connection,
                          const TableFunctionSpec* spec);

// The same, of which CreateInTemp (snapshot_table.h) can make a table in temp, where a statement on
// it takes no lock on the main database; by its name alone until then.
int RegisterTemporaryTableFunction(const std::shared_ptr<Connection>& connection,
                                   const TableFunctionSpec* spec);

}  // namespace lm

#endif  // LM_EXTENSION_BINDING_TABLE_FUNCTION_H_

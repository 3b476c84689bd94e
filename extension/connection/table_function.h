// Table-valued functions as C++ cursors. A function says what its columns and arguments are and
// what a scan of it does; SQLite's side of it is here once.
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
#ifndef LM_EXTENSION_CONNECTION_TABLE_FUNCTION_H_
#define LM_EXTENSION_CONNECTION_TABLE_FUNCTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/connection/call_options.h"
#include "extension/connection/connection.h"
#include "extension/host/sqlite_api.h"

namespace lm {

inline constexpr int kMostTableArguments = 4;

struct TableFunctionSpec {
  const char* name;
  const char* columns;  // as in CREATE TABLE, without the arguments
  int num_columns;      // of those
  // In order; the first `required` must be given.
  std::array<const char*, kMostTableArguments> arguments = {};
  int required = 1;
  const char* missing;  // the error where one of those is not
  int64_t estimated_rows = 100;
  std::unique_ptr<class TableCursor> (*open)(Connection& connection);
};

// What the function was called with, as long as Filter runs.
class TableArguments {
 public:
  // nullptr where an argument is not given.
  TableArguments(const TableFunctionSpec& spec,
                 std::array<sqlite3_value*, kMostTableArguments> values)
      : spec_(spec), values_(values) {}

  // The text of argument i (see TextOf); nullopt for NULL, and where it is not given.
  absl::StatusOr<std::optional<std::string>> Text(int i) const;
  // A whole number, however it is written; nullopt as above.
  absl::StatusOr<std::optional<int64_t>> Integer(int i) const;

 private:
  const TableFunctionSpec& spec_;
  const std::array<sqlite3_value*, kMostTableArguments> values_;
};

// One scan after another over what the function gives. An exception is caught outside.
class TableCursor {
 public:
  explicit TableCursor(Connection& connection) : connection_(connection) {}
  virtual ~TableCursor() = default;
  TableCursor(const TableCursor&) = delete;
  TableCursor& operator=(const TableCursor&) = delete;

  // Begins a scan, on its first row if there is one.
  virtual absl::Status Filter(const TableArguments& args) = 0;
  virtual bool Eof() const = 0;
  // The other three REQUIRE: !Eof().
  virtual absl::Status Next() = 0;
  // Sets the column's value; leaves it for NULL.
  virtual absl::Status Column(int column, sqlite3_context* context) = 0;
  virtual int64_t rowid() const = 0;

 protected:
  Connection& connection() const { return connection_; }

 private:
  Connection& connection_;
};

template <typename Cursor>
std::unique_ptr<TableCursor> MakeCursor(Connection& connection) {
  return std::make_unique<Cursor>(connection);
}

// Registers a DIRECTONLY function. REQUIRES: *spec lives for ever.
int RegisterTableFunction(const std::shared_ptr<Connection>& connection,
                          const TableFunctionSpec* spec);

// The same, of which CreateInTemp (snapshot_table.h) can make a table in temp, where a statement on
// it takes no lock on the main database; by its name alone until then.
int RegisterTemporaryTableFunction(const std::shared_ptr<Connection>& connection,
                                   const TableFunctionSpec* spec);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_TABLE_FUNCTION_H_

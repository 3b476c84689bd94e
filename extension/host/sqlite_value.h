// Arguments in, results out, with their types checked.
#ifndef LM_EXTENSION_HOST_SQLITE_VALUE_H_
#define LM_EXTENSION_HOST_SQLITE_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/variant.h"
#include "extension/host/sqlite_api.h"

namespace lm {

struct ValueDeleter {
  void operator()(sqlite3_value* value) const { sqlite3_value_free(value); }
};
using OwnedValue = std::unique_ptr<sqlite3_value, ValueDeleter>;

// The text of `value`; nullopt for NULL. Numbers are taken as SQL writes them. A BLOB, a NUL
// character or invalid UTF-8 is InvalidArgument that begins with `what` and says where.
absl::StatusOr<std::optional<std::string>> TextOf(sqlite3_value* value, absl::string_view what);

// The same checks for a text that comes from elsewhere, such as an element of a JSON array.
absl::Status CheckText(absl::string_view text, absl::string_view what);

// What arrived where something else was wanted, for the error: 'three', 1.5, NULL, a BLOB of 3
// bytes.
std::string ShownValue(sqlite3_value* value);

// Whether they have one type and the same bytes.
bool SameValue(sqlite3_value* left, sqlite3_value* right);

// A text that SQLite's functions are to take as JSON.
struct JsonText {
  std::string text;
  bool operator==(const JsonText&) const = default;
};

// A value of a virtual table's row.
using Cell = Variant<std::monostate, int64_t, double, std::string, JsonText>;

void ResultCell(sqlite3_context* context, const Cell& cell);

// SQLITE_TOOBIG where the text exceeds the connection's SQLITE_LIMIT_LENGTH.
// REQUIRES: text is valid UTF-8.
void ResultText(sqlite3_context* context, absl::string_view text);

// Text with the subtype that json() and its family take as JSON.
void ResultJson(sqlite3_context* context, absl::string_view json);

}  // namespace lm

#endif  // LM_EXTENSION_HOST_SQLITE_VALUE_H_

#include "extension/host/sqlite_status.h"

#include "absl/strings/strip.h"

namespace lm {
namespace {

// "<name>: <message>" in SQLite's memory, or null; a message that another call of the name ended
// with has it already. A message may quote what a file or a row says: control characters do not
// reach the user's terminal.
char* Message(const char* name, const absl::Status& status) {
  absl::string_view message = status.message();
  absl::string_view behind = message;
  if (absl::ConsumePrefix(&behind, name) && absl::ConsumePrefix(&behind, ": ")) message = behind;
  char* text = sqlite3_mprintf("%s: %.*s", name, static_cast<int>(message.size()), message.data());
  if (text == nullptr) return nullptr;
  for (char* c = text; *c != '\0'; ++c) {
    bool control = static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f;
    if (control && *c != '\n' && *c != '\t') *c = '?';
  }
  return text;
}

}  // namespace

int SqliteCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return SQLITE_OK;
    case absl::StatusCode::kCancelled:
      return SQLITE_INTERRUPT;
    default:
      return SQLITE_ERROR;
  }
}

void ResultError(sqlite3_context* context, const char* name, const absl::Status& status) {
  char* message = Message(name, status);
  // The text first: sqlite3_result_error sets the code to SQLITE_ERROR.
  sqlite3_result_error(context, message != nullptr ? message : name, -1);
  sqlite3_result_error_code(context, SqliteCode(status));
  sqlite3_free(message);
}

int ReportTo(char** message, const char* name, const absl::Status& status) {
  if (status.ok()) return SQLITE_OK;
  sqlite3_free(*message);
  *message = Message(name, status);
  return SqliteCode(status);
}

int ReportTo(sqlite3_vtab* vtab, const char* name, const absl::Status& status) {
  return ReportTo(&vtab->zErrMsg, name, status);
}

}  // namespace lm

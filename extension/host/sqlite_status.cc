#include "extension/host/sqlite_status.h"

#include "absl/strings/strip.h"

namespace lm {
namespace {

constexpr size_t kLongestMessage = 4000;  // bytes

bool BeginsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// "<name>: <message>" in SQLite's memory, or null; a message that another call of the name ended
// with has it already. A message may quote what a file or a row says: control characters do not
// reach the user's terminal, and of a long text only the beginning and the end do.
char* Message(const char* name, const absl::Status& status) {
  absl::string_view message = status.message();
  absl::string_view behind = message;
  if (absl::ConsumePrefix(&behind, name) && absl::ConsumePrefix(&behind, ": ")) message = behind;
  absl::string_view end;
  if (message.size() > kLongestMessage) {
    end = message.substr(message.size() - kLongestMessage / 2);
    while (!end.empty() && !BeginsCharacter(end[0])) end.remove_prefix(1);
    size_t size = kLongestMessage / 2;
    while (size > 0 && !BeginsCharacter(message[size])) --size;
    message = message.substr(0, size);
  }
  char* text =
      sqlite3_mprintf("%s: %.*s%s%.*s", name, static_cast<int>(message.size()), message.data(),
                      end.empty() ? "" : " ... ", static_cast<int>(end.size()), end.data());
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

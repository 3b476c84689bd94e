#include "extension/host/sqlite_value.h"

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {

absl::Status CheckText(absl::string_view text, absl::string_view what) {
  size_t valid = ValidUtf8Prefix(text);
  size_t nul = text.find('\0');
  if (nul < valid) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has a NUL character at byte ", nul, " of ", text.size()));
  }
  if (valid < text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is not valid UTF-8 at byte ", valid, " of ", text.size(), " (0x",
                     absl::Hex(static_cast<uint8_t>(text[valid]), absl::kZeroPad2), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> TextOf(sqlite3_value* value, absl::string_view what) {
  int type = sqlite3_value_type(value);
  if (type == SQLITE_NULL) return std::nullopt;
  if (type == SQLITE_BLOB) {
    return absl::InvalidArgumentError(absl::StrCat(what, " must be text, got a BLOB of ",
                                                   sqlite3_value_bytes(value),
                                                   " bytes (CAST(x AS TEXT) if it is text)"));
  }
  // The text first, then its bytes: the other order may count another encoding's.
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  if (text == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory reading ", what));
  }
  std::string copy(text, sqlite3_value_bytes(value));
  RETURN_IF_ERROR(CheckText(copy, what));
  RETURN_IF_ERROR(Checkpoint());
  return copy;
}

bool SameValue(sqlite3_value* left, sqlite3_value* right) {
  const int type = sqlite3_value_type(left);
  if (sqlite3_value_type(right) != type) return false;
  auto bytes = [](sqlite3_value* value) {
    const auto* first = static_cast<const char*>(sqlite3_value_blob(value));
    return absl::string_view(first, sqlite3_value_bytes(value));
  };
  switch (type) {
    case SQLITE_NULL:
      return true;
    case SQLITE_INTEGER:
      return sqlite3_value_int64(left) == sqlite3_value_int64(right);
    case SQLITE_FLOAT:
      return sqlite3_value_double(left) == sqlite3_value_double(right);
    case SQLITE_TEXT:
      if (sqlite3_value_text(left) == nullptr || sqlite3_value_text(right) == nullptr) return false;
      break;
  }
  return bytes(left) == bytes(right);
}

std::string ShownValue(sqlite3_value* value) {
  const int type = sqlite3_value_type(value);
  if (type == SQLITE_NULL) return "NULL";
  if (type == SQLITE_BLOB) {
    const int bytes = sqlite3_value_bytes(value);
    return absl::StrCat("a BLOB of ", bytes, bytes == 1 ? " byte" : " bytes");
  }
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  if (text == nullptr) return "a text";
  const std::string written = Printable(absl::string_view(text).substr(0, 64));
  return type == SQLITE_TEXT ? absl::StrCat("'", written, "'") : written;
}

void ResultText(sqlite3_context* context, absl::string_view text) {
  sqlite3_result_text64(context, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}

void ResultJson(sqlite3_context* context, absl::string_view json) {
  ResultText(context, json);
  sqlite3_result_subtype(context, 'J');
}

void ResultCell(sqlite3_context* context, const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) {
    sqlite3_result_int64(context, *integer);
  } else if (const auto* real = std::get_if<double>(&cell)) {
    sqlite3_result_double(context, *real);
  } else if (const auto* text = std::get_if<std::string>(&cell)) {
    ResultText(context, *text);
  } else if (const auto* json = std::get_if<JsonText>(&cell)) {
    ResultJson(context, json->text);
  } else {
    sqlite3_result_null(context);
  }
}

}  // namespace lm

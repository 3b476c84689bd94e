#include "extension/tables/query_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/sqlite_value.h"

namespace lm {
namespace {

constexpr char kWhat[] = "select_sql";

absl::Status Refused(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(kWhat, " must be one SELECT id, prompt [, system] that only reads: ", why));
}

// A value of its own: SQLite does not let one be read that still belongs to the row.
absl::StatusOr<OwnedValue> Column(const ReadOnlySelect& select, int i) {
  OwnedValue value(sqlite3_value_dup(select.column(i)));
  if (value == nullptr) return absl::ResourceExhaustedError("out of memory");
  return value;
}

absl::StatusOr<std::optional<std::string>> TextColumn(const ReadOnlySelect& select, int i,
                                                      absl::string_view what) {
  if (i >= select.num_columns()) return std::nullopt;
  ASSIGN_OR_RETURN(const OwnedValue value, Column(select, i));
  return TextOf(value.get(), what);
}

}  // namespace

absl::StatusOr<QueryRows> QueryRows::Prepare(sqlite3* db, const std::string& sql) {
  ASSIGN_OR_RETURN(ReadOnlySelect select, ReadOnlySelect::Prepare(db, sql, kWhat));
  const int columns = select.num_columns();
  if (columns < 2 || columns > 3) return Refused(absl::StrCat("it has ", columns, " columns"));
  return QueryRows(std::move(select));
}

absl::StatusOr<std::optional<QueryRow>> QueryRows::Next() {
  if (!select_.has_value()) return std::nullopt;
  absl::StatusOr<bool> found = select_->Step();
  if (!found.ok() || !*found) {
    select_.reset();
    RETURN_IF_ERROR(found.status());
    return std::nullopt;
  }
  QueryRow row;
  ASSIGN_OR_RETURN(row.id, Column(*select_, 0));
  row.prompt = TextColumn(*select_, 1, "prompt");
  row.system = TextColumn(*select_, 2, "system");
  return row;
}

}  // namespace lm

#include "extension/host/read_only_select.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/given_statement.h"

namespace lm {

absl::StatusOr<ReadOnlySelect> ReadOnlySelect::Prepare(sqlite3* db, absl::string_view sql,
                                                       absl::string_view what) {
  absl::StatusOr<Statement> statement = PrepareGivenSelect(db, sql);
  if (absl::IsInvalidArgument(statement.status())) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", statement.status().message()));
  }
  RETURN_IF_ERROR(statement.status());
  return ReadOnlySelect(*std::move(statement));
}

absl::StatusOr<bool> ReadOnlySelect::Step() {
  absl::StatusOr<bool> row = statement_.Step();
  if (row.ok() || absl::IsCancelled(row.status())) return row;
  return absl::AbortedError(row.status().message());
}

}  // namespace lm

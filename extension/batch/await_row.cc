#include "extension/batch/await_row.h"

#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/base/status_macros.h"
#include "extension/batch/batch_state.h"
#include "extension/batch/look_ahead.h"

namespace lm {
namespace {

// Auxiliary data with a negative index belongs to the run of a statement; the number is arbitrary,
// so that no other extension hits on it.
constexpr int kLookAheadIndex = -0x6c6d32;

// The look-ahead of the statement that makes the call; nullptr where there is no memory.
LookAhead* Of(const Call& call) {
  auto* ahead = static_cast<LookAhead*>(sqlite3_get_auxdata(call.context(), kLookAheadIndex));
  if (ahead != nullptr) return ahead;
  auto first = std::make_unique<LookAhead>(call.shared_connection(), call.function());
  // May delete it at once: the pointer is SQLite's from here on.
  sqlite3_set_auxdata(call.context(), kLookAheadIndex, first.release(),
                      [](void* data) { delete static_cast<LookAhead*>(data); });
  return static_cast<LookAhead*>(sqlite3_get_auxdata(call.context(), kLookAheadIndex));
}

// `site`: a function's in the program that calls it, or a table, which programs share; `own` makes
// the look-ahead of a statement's caller.
absl::StatusOr<std::optional<PendingAnswer>> AwaitAt(Connection& connection, const void* site,
                                                     bool is_table,
                                                     absl::FunctionRef<LookAhead*()> own,
                                                     RowPrompt row) {
  BatchState& batch = BatchOf(connection);
  const bool within_step = batch.stepping != nullptr;
  if (within_step && batch.stepping->IsShadowsCall(site, is_table)) {
    return batch.stepping->Foresee(site, std::move(row));
  }
  const bool alone = within_step || connection.only_counts() || !HasPrompt(row);
  std::shared_ptr<const CallOptions> first;  // of a cascade
  if (!alone && row.escalation != nullptr) first = row.options;
  auto counted = [&](PendingAnswer pending) {
    if (first == nullptr) return pending;
    CascadeCounts& counts = batch.cascades[first->generator().info().path];
    ++counts.asked;
    counts.escalated += pending.escalated();
    return pending;
  };
  if (LookAhead* ahead = alone ? nullptr : own()) {
    ASSIGN_OR_RETURN(PendingAnswer pending, ahead->leader()->Await(std::move(row)));
    return counted(std::move(pending));
  }
  PendingAnswer pending(std::move(row));
  RETURN_IF_ERROR(pending.Await(connection.db()));
  return counted(std::move(pending));
}

}  // namespace

absl::StatusOr<std::optional<PendingAnswer>> AwaitRow(const Call& call, RowPrompt row) {
  ASSIGN_OR_RETURN(std::optional<PendingAnswer> pending,
                   AwaitAt(
                       call.connection(), call.context(), /*is_table=*/false,
                       [&call] { return Of(call); }, std::move(row)));
  if (!pending.has_value()) sqlite3_result_null(call.context());
  return pending;
}

CursorAhead::CursorAhead(Connection& connection, const char* function, const void* table)
    : connection_(connection), function_(function), table_(table) {}

CursorAhead::~CursorAhead() = default;

absl::StatusOr<std::optional<PendingAnswer>> CursorAhead::Await(RowPrompt row) {
  auto own = [this] {
    if (ahead_ == nullptr) {
      // Not an owner: the connection outlives its cursors.
      ahead_ = std::make_unique<LookAhead>(
          std::shared_ptr<Connection>(std::shared_ptr<Connection>(), &connection_), function_,
          LookAhead::Owner::kCursor);
    }
    return ahead_.get();
  };
  return AwaitAt(connection_, table_, /*is_table=*/true, own, std::move(row));
}

absl::Status AnswerRow(const Call& call, RowPrompt row, AnswerType type) {
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  return ResultAnswer(call.context(), *pending, type);
}

}  // namespace lm

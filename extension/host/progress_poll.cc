#include "extension/host/progress_poll.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_slot.h"
#include "extension/host/boundary.h"
#include "extension/host/host.h"

namespace lm {
namespace {

constexpr std::chrono::milliseconds kInterval{50};

// A row for each 20,000 instructions, a millisecond's. It is not reset between them: SQLite calls
// the handler by the sum of all that a statement has executed, and a trace sees it begin once. Its
// program is as short as SQLite's first allocation for one: where the host has set
// SQLITE_LIMIT_VDBE_OP so low that it is too long, the caller's is, too.
constexpr absl::string_view kInstructions =
    "WITH RECURSIVE lm_waits(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM lm_waits) "
    "SELECT 1 FROM lm_waits WHERE i % 1200 = 0";

ThreadSlot<const ProgressPoll::Call> innermost_call;

}  // namespace

ProgressPoll::Call::Call(ProgressPoll& poll) : poll_(poll), outer_(innermost_call.get()) {
  if (poll_.calls_++ == 0) poll_.looked_ = Clock::now();
  innermost_call.set(this);
}

ProgressPoll::Call::~Call() {
  innermost_call.set(outer_);
  if (--poll_.calls_ > 0) return;
  poll_.waited_ += Clock::now() - poll_.looked_;
  poll_.statement_ = Statement();
  poll_.cannot_ = poll_.ended_ = false;
}

bool ProgressPoll::Ends(sqlite3* db) noexcept {
  const Call* call = innermost_call.get();
  while (call != nullptr && call->poll_.db_ != db) call = call->outer_;
  if (call == nullptr) return false;
  ProgressPoll& poll = call->poll_;
  return poll.ended_ || (poll.IsTime() && poll.Ask());
}

bool ProgressPoll::IsTime() {
  const Clock::time_point now = Clock::now();
  waited_ += now - looked_;
  looked_ = now;
  if (waited_ < kInterval || asking_ || cannot_) return false;
  waited_ = Clock::duration(0);
  return true;
}

bool ProgressPoll::Ask() noexcept {
  asking_ = true;
  const absl::Status status = Guarded([this] { return Step(); });
  asking_ = false;
  ended_ = absl::IsCancelled(status);
  cannot_ = !status.ok() && !ended_;
  return ended_;
}

absl::Status ProgressPoll::Step() {
  if (FindProgressHandler() == nullptr) return absl::UnimplementedError("no progress handlers");
  if (!statement_.prepared()) {
    ASSIGN_OR_RETURN(statement_, Statement::Prepare(db_, absl::StrCat(kOfNoCaller, kInstructions)));
  }
  ASSIGN_OR_RETURN(const bool row, statement_.Step());
  return row ? absl::OkStatus() : absl::AbortedError("an authorizer leaves it out");
}

}  // namespace lm

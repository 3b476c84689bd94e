#include "extension/connection/statement_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_slot.h"
#include "extension/connection/connection.h"
#include "extension/connection/other_processes.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

ThreadSlot<StatementCall> innermost;

bool Names(absl::string_view sql, absl::string_view function) {
  const std::vector<SqlToken> tokens = SqlTokens(sql);
  return std::any_of(tokens.begin(), tokens.end(),
                     [function](const SqlToken& token) { return token.Names(function); });
}

// How often it, or the program of a trigger, has begun.
int RunOf(sqlite3_stmt* statement) {
  return statement != nullptr ? sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_RUN, 0) : 0;
}

}  // namespace

// A statement may stand where an ended one stood, in memory; then it has begun its first program.
bool RunningStatements::Known::FiresOn(absl::Span<sqlite3_stmt* const> busy) const {
  return std::find(busy.begin(), busy.end(), statement) != busy.end() &&
         sqlite3_stmt_readonly(statement) == 0 && StepOf(statement) == step &&
         RunOf(statement) > run && sql == sqlite3_sql(statement);
}

std::shared_ptr<RunningWork> RunningStatements::Of(Connection& connection,
                                                   absl::string_view function) {
  std::vector<sqlite3_stmt*> candidates = BusyStatementsOfHost(connection.db());
  std::erase_if(known_, [&](const Known& known) {
    return known.work.expired() && !known.FiresOn(candidates);
  });
  const bool certain = candidates.size() == 1;
  // In the text, unless it is a view that calls.
  auto named = std::stable_partition(
      candidates.begin(), candidates.end(),
      [function](sqlite3_stmt* s) { return Names(sqlite3_sql(s), function); });
  if (named != candidates.begin()) candidates.erase(named, candidates.end());
  // Of several, one that is not known yet: the others have found theirs.
  sqlite3_stmt* statement = nullptr;
  std::shared_ptr<RunningWork> work;
  auto known = known_.end();
  for (sqlite3_stmt* candidate : candidates) {
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&](const Known& k) { return k.statement == candidate; });
    if (statement != nullptr && found != known_.end() && !found->work.expired()) continue;
    statement = candidate;
    known = found;
    work = known != known_.end() ? known->work.lock() : nullptr;
    if (work == nullptr) break;
  }
  if (work != nullptr) {
    if (!certain) work->DoubtStatement();
    return work;
  }
  WorkOwner owner = connection.work_owner();
  ShowToOtherProcesses(owner.salt);
  if (known == known_.end()) {
    known =
        known_.insert(known_.end(), Known{statement, statement != nullptr ? StepOf(statement) : 0});
    if (statement != nullptr) known->sql = sqlite3_sql(statement);
  }
  work = RunningWork::Begin(WorkKind::kStatement, std::move(owner),
                            statement != nullptr ? sqlite3_sql(statement) : "", known->span,
                            certain ? statement : nullptr);
  known->work = work;
  known->run = RunOf(statement);
  known->span = work->span();
  connection.set_note("");
  return work;
}

StatementCall::StatementCall(Connection& connection, absl::string_view function, WorkKeeper keeper)
    : connection_(connection),
      function_(function),
      keeper_(keeper),
      outer_(innermost.get()),
      depth_(outer_ != nullptr ? outer_->depth_ + 1 : 1) {
  const std::shared_ptr<RunningWork>* kept = keeper_(/*make=*/false);
  if (kept != nullptr && *kept != nullptr) Attach(*kept);
  innermost.set(this);
}

StatementCall::~StatementCall() {
  innermost.set(outer_);
  if (work_ != nullptr) work_->LeaveCall();
}

void StatementCall::Attach(std::shared_ptr<RunningWork> work) {
  work_ = std::move(work);
  work_->EnterCall();
  flag_.emplace(&work_->cancelled());
}

std::shared_ptr<RunningWork> StatementCall::Work() {
  StatementCall* call = innermost.get();
  if (call == nullptr || call->work_ != nullptr) return call != nullptr ? call->work_ : nullptr;
  std::shared_ptr<RunningWork>* kept = call->keeper_(/*make=*/true);
  if (kept == nullptr) return nullptr;
  *kept = call->connection_.running().Of(call->connection_, call->function_);
  call->Attach(*kept);
  return call->work_;
}

bool StatementCall::IsWithinAnother() {
  const StatementCall* call = innermost.get();
  return call != nullptr && call->outer_ != nullptr;
}

void StatementCall::Note(const std::string& note) {
  if (const std::shared_ptr<RunningWork> work = Work()) work->SetHint(note);
  if (StatementCall* call = innermost.get()) call->connection_.set_note(note);
}

void StatementCall::Batched() {
  const StatementCall* call = innermost.get();
  if (call == nullptr || call->connection_.extra() == nullptr) return;
  call->connection_.extra()->Batched();
}

absl::Status StatementCall::CheckDepth() const {
  constexpr int kMostDepth = 24;  // some kilobytes each, on stacks of 256
  if (depth_ <= kMostDepth) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("it is called within the statements of other calls, more than ", kMostDepth,
                   " deep: does one read itself?"));
}

ProgressPoll& StatementCall::progress_poll() const { return connection_.progress_poll(); }

absl::Status StatementCall::Concluded(absl::Status status) const {
  if (!cancelled()) return status;
  return work_->CancelledStatus();
}

}  // namespace lm

#include "extension/host/interrupt.h"

#include "engine/base/thread_slot.h"
#include "extension/host/boundary.h"
#include "extension/host/host.h"

namespace lm {
namespace {

ThreadSlot<const CancelFlagScope> flags;

}  // namespace

CancelFlagScope::CancelFlagScope(const std::atomic<bool>* flag) : flag_(flag), outer_(flags.get()) {
  flags.set(this);
}

CancelFlagScope::~CancelFlagScope() { flags.set(outer_); }

bool InterruptPoll::Interrupted() noexcept {
  return Signalled() || (!closed_ && ProgressPoll::Ends(db_));
}

bool InterruptPoll::Signalled() noexcept {
  for (const CancelFlagScope* scope = flags.get(); scope != nullptr; scope = scope->outer_) {
    if (*scope->flag_) return true;
  }
  static const IsInterruptedFunction is_interrupted = FindIsInterrupted();
  if (is_interrupted != nullptr) return is_interrupted(db_) != 0;
  // The parser notices an interrupt at each blank. There is no statement in one: nothing that could
  // be traced, and nothing for an authorizer or a progress handler.
  if (closed_) return false;
  sqlite3_stmt* none = nullptr;
  const int code = sqlite3_prepare_v3(db_, " ", -1, 0, &none, nullptr);
  // By sqlite3_close_v2(), while the statement runs: each call would be logged as a mistake.
  closed_ = code == SQLITE_MISUSE;
  return code == SQLITE_INTERRUPT;
}

}  // namespace lm

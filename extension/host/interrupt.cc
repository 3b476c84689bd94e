#include "extension/host/interrupt.h"

#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/host.h"

namespace lm {
namespace {

// The comment is for those who trace their connection.
constexpr char kProbe[] = "SELECT 1 /* sqlite-lm: interrupted? */";

thread_local const CancelFlagScope* flags = nullptr;

}  // namespace

CancelFlagScope::CancelFlagScope(const std::atomic<bool>* flag) : flag_(flag), outer_(flags) {
  flags = this;
}

CancelFlagScope::~CancelFlagScope() { flags = outer_; }

bool InterruptPoll::Interrupted() noexcept {
  for (const CancelFlagScope* scope = flags; scope != nullptr; scope = scope->outer_) {
    if (*scope->flag_) return true;
  }
  static const IsInterruptedFunction is_interrupted = FindIsInterrupted();
  if (is_interrupted != nullptr) return is_interrupted(db_) != 0;
  // The parser notices an interrupt too. Any other failure is an authorizer that forbids the probe.
  return absl::IsCancelled(Guarded([this]() -> absl::Status {
    if (!probe_.prepared()) {
      ASSIGN_OR_RETURN(probe_, Statement::Prepare(db_, kProbe));
    }
    return probe_.Run();
  }));
}

}  // namespace lm

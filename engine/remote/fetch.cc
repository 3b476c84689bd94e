#include "engine/remote/fetch.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/cond_var.h"
#include "engine/base/exit_guard.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(5);  // whether it is cancelled

class Waiting : public HttpHandler {
 public:
  // Behind a question mark in the URL there may be a signature.
  Waiting(const std::string& url, const FetchSink* sink)
      : url_(url.substr(0, url.find('?'))), sink_(sink) {}

  void OnHeader(absl::string_view line) override {
    const size_t colon = line.find(':');
    absl::MutexLock lock(&mutex_);
    if (colon == line.npos) {
      // Of several answers (that of a proxy, "100 Continue") the last counts.
      if (!line.empty()) fetched_.headers.clear();
      return;
    }
    fetched_.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  bool OnBody(int code, absl::string_view bytes) override {
    absl::MutexLock lock(&mutex_);
    fetched_.outcome.code = code;
    if (sink_ == nullptr || *sink_ == nullptr || code / 100 != 2) {
      if (bytes.size() <= kMostFetchedBytes - fetched_.body.size()) {
        fetched_.body.append(bytes.data(), bytes.size());
        return true;
      }
      status_ = absl::OutOfRangeError(
          absl::StrCat(url_, ": HTTP ", code, " with ", fetched_.body.size() + bytes.size(),
                       " bytes and more, of which ", kMostFetchedBytes, " are read at most"));
      return false;
    }
    status_ = (*sink_)(fetched_, bytes);
    return status_.ok();
  }
  void OnDone(const HttpOutcome& outcome) override {
    absl::MutexLock lock(&mutex_);
    Conclude();
    try {
      fetched_.outcome = outcome;
      if (status_.ok() && !outcome.status.ok()) {
        const Trouble trouble = outcome.unreachable ? Trouble::kOutage : Trouble::kNone;
        status_ = WithTrouble(
            absl::Status(outcome.status.code(), absl::StrCat(url_, ": ", outcome.status.message())),
            trouble);
      }
    } catch (...) {
      status_ = OutOfMemory();
    }
  }
  // Where it could not even begin.
  void OnOutOfMemory() {
    absl::MutexLock lock(&mutex_);
    Conclude();
    status_ = OutOfMemory();
  }

  // From here on the sink is left alone.
  absl::StatusOr<Fetched> Wait(const std::atomic<bool>& cancel) {
    absl::MutexLock lock(&mutex_);
    while (!concluded_.AwaitFor(mutex_, absl::Condition(&done_), kLook)) {
      const bool cancelled = cancel || Interrupted();
      if (!cancelled && !ExitGuard::exit_begun()) continue;
      sink_ = nullptr;
      return cancelled ? absl::CancelledError("the transfer was cancelled") : ExitGuard::Error();
    }
    if (!status_.ok()) return status_;
    return std::move(fetched_);
  }

  uint64_t transfer = 0;  // of the network's thread

 private:
  void Conclude() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    done_ = true;
    concluded_.SignalAll();
  }

  const std::string url_;
  absl::Mutex mutex_;
  const FetchSink* sink_ ABSL_GUARDED_BY(mutex_);
  Fetched fetched_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  CondVar concluded_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<Fetched> Fetch(Network* network, const HttpRequest& request,
                              const std::atomic<bool>& cancel, const FetchSink& sink) {
  auto waiting = std::make_shared<Waiting>(request.url, &sink);
  network->Run([network, request, waiting] {
    try {
      waiting->transfer = network->Start(request, waiting);
    } catch (...) {
      waiting->OnOutOfMemory();
    }
  });
  absl::StatusOr<Fetched> fetched = waiting->Wait(cancel);
  if (absl::IsCancelled(fetched.status())) {
    network->Run([network, waiting] { network->Abort(waiting->transfer); });
  }
  return fetched;
}

void SleepUnless(absl::Duration length, const std::atomic<bool>& cancel) {
  const MonotonicTime until = MonotonicTime::Now() + length;
  while (!cancel && MonotonicTime::Now() < until) absl::SleepFor(absl::Milliseconds(5));
}

absl::Status RejectionStatus(absl::string_view url, int code, absl::string_view words,
                             bool has_key) {
  const std::string text = absl::StrCat(url, ": HTTP ", code, words.empty() ? "" : ": ", words);
  if (code >= 500 || code == 408 || code == 425 || code == 429) return absl::UnavailableError(text);
  if (code >= 300 && code < 400) {
    return absl::FailedPreconditionError(absl::StrCat(text, " (redirects are not followed)"));
  }
  if (code == 401 || code == 403) {
    return absl::PermissionDeniedError(
        has_key
            ? text
            : absl::StrCat(text, " (the option key_env names an environment variable with a key)"));
  }
  return code == 404 ? absl::NotFoundError(text) : absl::InvalidArgumentError(text);
}

}  // namespace lm

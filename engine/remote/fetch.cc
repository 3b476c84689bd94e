#include "engine/remote/fetch.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/exit_guard.h"

namespace lm {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(5);  // whether it is cancelled

class Waiting : public HttpHandler {
 public:
  explicit Waiting(const FetchSink* sink) : sink_(sink) {}

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
      fetched_.body.append(bytes.data(), bytes.size());
      return true;
    }
    status_ = (*sink_)(fetched_, bytes);
    return status_.ok();
  }
  void OnDone(const HttpOutcome& outcome) override {
    absl::MutexLock lock(&mutex_);
    fetched_.outcome = outcome;
    done_ = true;
  }

  // From here on the sink is left alone.
  absl::StatusOr<Fetched> Wait(const std::string& url, const std::atomic<bool>& cancel) {
    absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done_), kLook)) {
      if (!cancel && !ExitGuard::exit_begun()) continue;
      sink_ = nullptr;
      return cancel ? absl::CancelledError("the transfer was cancelled") : ExitGuard::Error();
    }
    if (!status_.ok()) return status_;
    if (!fetched_.outcome.status.ok()) {
      // Behind the question mark there may be a signature.
      return absl::Status(
          fetched_.outcome.status.code(),
          absl::StrCat(url.substr(0, url.find('?')), ": ", fetched_.outcome.status.message()));
    }
    return std::move(fetched_);
  }

  uint64_t transfer = 0;  // of the network's thread

 private:
  absl::Mutex mutex_;
  const FetchSink* sink_ ABSL_GUARDED_BY(mutex_);
  Fetched fetched_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<Fetched> Fetch(Network* network, const HttpRequest& request,
                              const std::atomic<bool>& cancel, const FetchSink& sink) {
  auto waiting = std::make_shared<Waiting>(&sink);
  network->Run(
      [network, request, waiting] { waiting->transfer = network->Start(request, waiting); });
  absl::StatusOr<Fetched> fetched = waiting->Wait(request.url, cancel);
  if (absl::IsCancelled(fetched.status())) {
    network->Run([network, waiting] { network->Abort(waiting->transfer); });
  }
  return fetched;
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

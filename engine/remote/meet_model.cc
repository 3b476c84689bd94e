#include "engine/remote/meet_model.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/remote/fetch.h"
#include "engine/remote/remote_server.h"
#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr absl::Duration kListTimeout = absl::Seconds(30);
// For a server that is busy, or loads its model yet: three minutes in all, or as it asks.
constexpr absl::Duration kShortestWait = absl::Milliseconds(250);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
constexpr int kMostWaits = 12;
// Between looks for one that is away, or fails; then more and more.
constexpr absl::Duration kFirstLookPause = absl::Milliseconds(100);

// What the server says of the model. *asked_to_wait where it is busy, or loads the model yet.
absl::StatusOr<RemoteModel> AskForModel(Network* network, const std::string& url,
                                        const RemoteOptions& options,
                                        const std::atomic<bool>& cancel,
                                        std::optional<absl::Duration>* asked_to_wait) {
  HttpRequest request{.url = absl::StrCat(url, "/models"),
                      .headers = RemoteHeaders(options),
                      .timeout = kListTimeout};
  absl::StatusOr<Fetched> fetched = Fetch(network, request, cancel);
  if (absl::IsUnavailable(fetched.status())) {
    const bool reached = TroubleOf(fetched.status()) != Trouble::kOutage;
    return reached ? WithTrouble(fetched.status(), Trouble::kServer) : fetched.status();
  }
  ASSIGN_OR_RETURN(const Fetched got, std::move(fetched));
  const int code = got.outcome.code;
  const std::string& body = got.body;
  const Secrets secrets(request.headers);
  // Some gateways have no list.
  if (code == 404 && !options.model.empty()) return RemoteModel{.name = options.model};
  if (code != 200) {
    const absl::Status status =
        RejectionStatus(request.url, code, ErrorText(body, secrets), !options.key_env.empty());
    const bool fails =
        absl::IsUnavailable(status) && RejectionTrouble(code, body) == Trouble::kNone;
    if (fails && (code == 429 || code == 503)) {
      *asked_to_wait =
          std::min(asked_to_wait->value_or(absl::InfiniteDuration()), got.outcome.retry_after);
    }
    if (fails) return WithTrouble(status, Trouble::kServer);
    // Another server may have one.
    return absl::IsPermissionDenied(status) ? status : absl::UnavailableError(status.message());
  }
  absl::StatusOr<RemoteModel> model = ReadModelList(body, options.model, secrets);
  if (model.ok()) return model;
  return absl::Status(model.status().code(), absl::StrCat(url, ": ", model.status().message()));
}

// The first one's that tells; else why none does: that of the first that is away or fails, if any.
absl::StatusOr<RemoteModel> AskServers(Network* network, const std::vector<std::string>& urls,
                                       const RemoteOptions& options,
                                       const std::atomic<bool>& cancel,
                                       std::optional<absl::Duration>* asked_to_wait) {
  absl::StatusOr<RemoteModel> model;
  absl::Status away;
  for (const std::string& url : urls) {
    model = AskForModel(network, url, options, cancel, asked_to_wait);
    if (!absl::IsUnavailable(model.status())) return model;
    if (away.ok() && IsAbsence(model.status())) away = model.status();
  }
  if (!away.ok()) return away;
  return model;
}

// When to look again for servers that are away, or fail.
class Looks {
 public:
  explicit Looks(int64_t retries) : retries_(retries) {}

  // How long to wait; nullopt where that was the last look. Those that are due while another one
  // lasts are left out: a host that drops what it is sent is not waited for five times.
  std::optional<absl::Duration> PauseAfter(const std::optional<absl::Duration>& asked_to_wait) {
    const MonotonicTime now = MonotonicTime::Now();
    if (asked_to_wait.has_value()) {
      if (num_waits_++ == kMostWaits) return std::nullopt;
      const absl::Duration wait = std::max(*asked_to_wait, wait_);
      wait_ = std::min(2 * wait_, kLongestWait);
      due_ = now + wait;
      return wait;
    }
    do {
      if (retries_-- == 0) return std::nullopt;
      due_ += pause_;
      pause_ = std::min(2 * pause_, kLongestWait);
    } while (due_ < now);
    return due_ - now;
  }

 private:
  int64_t retries_;  // that are left
  int num_waits_ = 0;
  MonotonicTime due_ = MonotonicTime::Now();
  absl::Duration pause_ = kFirstLookPause, wait_ = kShortestWait;
};

}  // namespace

bool IsAbsence(const absl::Status& status) {
  const Trouble trouble = TroubleOf(status);
  return trouble == Trouble::kOutage || trouble == Trouble::kServer;
}

absl::StatusOr<RemoteModel> MeetModel(Network* network, const std::vector<std::string>& urls,
                                      const RemoteOptions& options, Patience patience,
                                      const std::atomic<bool>& cancel) {
  Looks looks(options.retries);
  for (;;) {
    std::optional<absl::Duration> asked_to_wait;
    absl::StatusOr<RemoteModel> model = AskServers(network, urls, options, cancel, &asked_to_wait);
    if (!IsAbsence(model.status()) || patience == Patience::kNone) return model;
    const std::optional<absl::Duration> pause = looks.PauseAfter(asked_to_wait);
    if (!pause.has_value()) return model;
    SleepUnless(*pause, cancel);
    if (cancel) return absl::CancelledError("interrupted");
  }
}

}  // namespace lm

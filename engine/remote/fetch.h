// Fetch: one transfer, waited for.
//
//   ASSIGN_OR_RETURN(Fetched got, Fetch(network, {.url = url, .headers = headers}, cancel));
//   if (got.outcome.code != 200) return RejectionStatus(url, got.outcome.code, got.body, has_key);
#ifndef LM_ENGINE_REMOTE_FETCH_H_
#define LM_ENGINE_REMOTE_FETCH_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/remote/network.h"

namespace lm {

struct Fetched {
  HttpOutcome outcome;                         // its status is OK
  std::map<std::string, std::string> headers;  // by names in lower case; the last of equal ones
  std::string body;                            // but for what a sink has taken
};

// Of Fetched::body. What is longer is wanted by nobody: lists and errors are not.
inline constexpr size_t kMostFetchedBytes = 16 << 20;

// Takes the body of a 2xx answer, piece by piece, on the network's thread; an error ends the
// transfer. REQUIRES: quick.
// `so_far` has the code and the headers.
using FetchSink = std::function<absl::Status(const Fetched& so_far, absl::string_view bytes)>;

// Unavailable, naming the URL, where no whole answer came, with Trouble::kOutage where there was no
// connection; OutOfRange, naming both lengths, where
// more than kMostFetchedBytes came that no sink takes; the sink's error; Cancelled, within a few
// milliseconds, once `cancel` is set or the thread's scope (checkpoint.h) is interrupted. The sink
// is not called any more when this returns.
absl::StatusOr<Fetched> Fetch(Network* network, const HttpRequest& request,
                              const std::atomic<bool>& cancel, const FetchSink& sink = nullptr);

// Sleeps so long, or until `cancel` is set.
void SleepUnless(absl::Duration length, const std::atomic<bool>& cancel);

// What an answer of another code than 2xx means, with the server's own words. Unavailable where
// another try may help; PermissionDenied says how a key is given, where there was none.
absl::Status RejectionStatus(absl::string_view url, int code, absl::string_view words,
                             bool has_key);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_FETCH_H_

// Network: one thread that talks HTTP for all of the process.
//
// All transfers run on it, over connections that are kept, and so does what is done with what they
// bring: objects that live on this thread need no locks.
//
//   ASSIGN_OR_RETURN(Network * network, Network::Get());
//   network->Run([=] { network->Start({.url = url, .body = json}, handler); });
#ifndef LM_ENGINE_REMOTE_NETWORK_H_
#define LM_ENGINE_REMOTE_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/remote/curl_library.h"

namespace lm {

// A body that is read from a file while it is sent.
struct HttpUpload {
  std::string head = {};  // stands before the file's bytes
  int fd = -1;
  int64_t bytes = 0;  // of the file
  std::string tail = {};
  std::shared_ptr<const void> owner = {};  // keeps the file open

  int64_t size() const { return static_cast<int64_t>(head.size() + tail.size()) + bytes; }
  // Up to `most` bytes from `offset` on; 0 at the end, negative where the file cannot be read.
  int64_t Read(int64_t offset, char* out, int64_t most) const;
};

struct HttpRequest {
  std::string url;                                // http or https; redirects are not followed
  std::vector<std::string> headers;               // "Name: value"
  std::string body = {};                          // empty: a GET, else a POST
  std::shared_ptr<const HttpUpload> upload = {};  // likewise
  absl::Duration timeout = absl::Minutes(10);
  absl::Duration silence = absl::Minutes(5);  // without a byte
  uint64_t max_bytes = 16 << 20;              // of the answer
};

struct HttpOutcome {
  absl::Status status = {};  // Unavailable: of the transfer, whatever the answer says
  int code = 0;              // of HTTP; 0: no answer came
  bool unreachable = false;  // there was no connection
  absl::Duration retry_after = absl::ZeroDuration();  // as the server asks; an hour at most
  std::string location = {};                          // where a redirect leads; else empty
};

// Called on the network's thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // A line of the header, "Name: value"; before the body.
  virtual void OnHeader(absl::string_view /*line*/) {}
  // A piece of the body. False: no more of it is wanted; OnDone comes, with OK. Must not begin or
  // abort a transfer.
  virtual bool OnBody(int code, absl::string_view bytes) = 0;
  // The last call.
  virtual void OnDone(const HttpOutcome& outcome) = 0;
};

class Network {
 public:
  static constexpr long kMostConnections = 256;  // kept, and of one host

  // The process's, never destroyed. OpenCurl's errors; FailedPrecondition in a forked child of the
  // process that made it, and once exit() has begun.
  static absl::StatusOr<Network*> Get();

  // Runs the task on the thread, soon. From any thread; where the thread has ended the task is
  // dropped. What a task throws is nobody's: one that others wait for catches it.
  void Run(std::function<void()> task);

  // The rest is for the thread itself.

  // Runs the task then, or a few milliseconds later.
  void RunAt(MonotonicTime when, std::function<void()> task);
  // Begins a transfer; the number is for Abort. The handler is never called within, and not at all
  // where this throws.
  uint64_t Start(const HttpRequest& request, std::shared_ptr<HttpHandler> handler);
  // Ends it; its handler hears no more.
  void Abort(uint64_t transfer);

 private:
  struct Transfer;

  explicit Network(const CurlLibrary* curl);
  ~Network();
  absl::Status Begin();
  void Loop() noexcept;
  void RunTasks();
  void TakeOutcomes();
  HttpOutcome OutcomeOf(const Transfer& transfer, CURLcode code) const;
  void Finish(Transfer* transfer, CURLcode code);
  void Remove(Transfer* transfer);
  void Stop();

  const CurlLibrary& curl_;
  CURLM* multi_ = nullptr;
  absl::Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the thread.
  std::multimap<MonotonicTime, std::function<void()>> timers_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  uint64_t last_transfer_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_NETWORK_H_

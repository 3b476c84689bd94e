// RemoteServer: the requests of one model on the network, and the servers that answer them.
//
// Each server has so many requests under way at most. 429 and 503 are no row's failure: the row
// waits as long as the server asks for, else longer each time; where many are refused, fewer are
// sent, and none for that while.
// The rows of a system prompt go where its prefix is; the first of them goes alone, so that the
// prefix is there when the others come. What fails on the way is sent again; a server that cannot
// be reached is left out for a while.
//
// Nothing that a server says is believed: a constrained answer is held to the constraint's own
// grammar, and sent back once where it does not fit; a server that ignores a kind of constraint is
// found out by a first question of which there is only one right answer.
#ifndef LM_ENGINE_REMOTE_REMOTE_SERVER_H_
#define LM_ENGINE_REMOTE_REMOTE_SERVER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/grammar/grammar.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/network.h"
#include "engine/remote/remote_call.h"
#include "engine/remote/remote_generator.h"
#include "engine/remote/remote_options.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/latency_window.h"
#include "engine/runtime/request.h"
#include "engine/runtime/salt_counts.h"

namespace lm {

// What is told with every request, and what is waited for at the beginning.
std::vector<std::string> RemoteHeaders(const RemoteOptions& options,
                                       absl::string_view content_type = "application/json");

class RemoteServer : public RemoteCall::Owner, public std::enable_shared_from_this<RemoteServer> {
 public:
  static constexpr int64_t kMostQueued = 4096;

  RemoteServer(Network* network, const std::vector<std::string>& urls, RemoteOptions options,
               RemoteModel model);
  ~RemoteServer() override;

  // Thread-safe. spec.text is a JSON array of messages, or the text to embed; `grammar` what its
  // constraint says, or null. ResourceExhausted where too many wait; ChatBody's errors.
  absl::StatusOr<std::shared_ptr<Request>> Submit(RequestSpec spec,
                                                  std::shared_ptr<const Grammar> grammar,
                                                  std::shared_ptr<RequestListener> listener);
  const RemoteModel& model() const { return model_; }
  // Enough to go on with while a row at the front waits for a second or two.
  size_t most_under_way() const { return most_under_way_; }
  RemoteStats Stats() const;
  RequestCounts CountsOf(absl::string_view salt) const;

 private:
  class Told;
  using Kind = AnswerConstraint::Kind;

  struct Endpoint {
    std::string url = {};
    double limit = 0;  // of requests under way
    int active = 0;
    int failures = 0;    // in a row: no answer at all
    double refused = 0;  // of the last answers the share that was 429 or 503
    absl::Time not_before = absl::InfinitePast();
    absl::Time cut = absl::InfinitePast();       // when the limit was last lowered
    std::set<uint64_t> warm = {}, warming = {};  // prefixes
  };
  // That a kind of constraint is kept to.
  enum class Proof : uint8_t { kNone, kAsked, kGiven };

  // On the network's thread.
  void Enqueue(RemoteJob job);
  void Pump();
  void PumpOf(Priority priority, absl::Time now, absl::Time* next);
  bool Begin(RemoteJob* job, absl::Time now, absl::Time* next);
  void Send(RemoteJob job, Endpoint* endpoint);
  bool IsProven(const RemoteJob& job);
  void AskCanary(Kind kind);
  Endpoint* Choose(const RemoteJob& job, absl::Time now, absl::Time* next);
  bool TakeSlot(absl::Time now, absl::Time* next);
  void DropAbandoned();
  void WakeAt(absl::Time when);

  void OnFirstToken(RemoteCall* call) override;
  void OnDone(RemoteCall* call, const HttpOutcome& outcome) override;
  void Settle(RemoteCall* call, const HttpOutcome& outcome);
  void Answered(RemoteCall* call);
  void Refused(RemoteCall* call, const HttpOutcome& outcome);
  void Failed(RemoteCall* call, absl::Status why);
  void Rejected(RemoteCall* call, int code);
  void SendAgain(RemoteJob job, absl::Time when);
  bool SendBack(RemoteCall* call, absl::string_view text);
  void Conclude(const RemoteCall& call, Generation generation);
  void ConcludeCanary(const RemoteCall& call, const Generation& generation);

  Network* const network_;
  const RemoteOptions options_;
  const RemoteModel model_;
  const std::vector<std::string> headers_;
  const size_t most_under_way_;
  std::atomic<int64_t> num_queued_{0}, num_running_{0}, num_retries_{0};
  std::atomic<bool> looks_for_abandoned_{false};

  // Of the network's thread.
  std::vector<Endpoint> endpoints_;
  std::list<RemoteJob> queue_;
  std::list<std::shared_ptr<RemoteCall>> calls_;
  std::array<Proof, 6> proofs_{};  // by Kind
  double slots_ = 1;               // of options_.rpm that may be used now
  absl::Time slots_at_;
  absl::Time wake_ = absl::InfiniteFuture();
  uint64_t dice_ = 0;

  mutable absl::Mutex mutex_;
  LatencyWindow first_token_ ABSL_GUARDED_BY(mutex_);
  SaltCounts<RequestCounts> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_SERVER_H_

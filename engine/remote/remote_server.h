// RemoteServer: the requests of one model on the network, and the servers that answer them.
//
// 429 and 503 are no row's failure: the row waits as long as the server asks for, else longer each
// time; but not where it is paid no more. What fails on the way is sent again. Which server is
// asked ServerPool says. What one of several refuses, or answers against its constraint, is asked
// of another one. A member of the body that a server refuses, and answers can do without, is left
// out from then on.
//
// A prompt that a server finds too long is cut as on_overflow says, and sent again.
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
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/monotonic_time.h"
#include "engine/grammar/grammar.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/constraint_proofs.h"
#include "engine/remote/network.h"
#include "engine/remote/remote_call.h"
#include "engine/remote/remote_generator.h"
#include "engine/remote/remote_options.h"
#include "engine/remote/secrets.h"
#include "engine/remote/server_pool.h"
#include "engine/runtime/engine_stats.h"
#include "engine/runtime/latency_window.h"
#include "engine/runtime/request.h"
#include "engine/runtime/salt_counts.h"

namespace lm {

// What is told with every request, and what is waited for at the beginning.
std::vector<std::string> RemoteHeaders(const RemoteOptions& options,
                                       absl::string_view content_type = "application/json");
// About which the server may think as long as the option timeout_ms says, without a byte.
HttpRequest RemoteRequest(std::string url, std::vector<std::string> headers,
                          const RemoteOptions& options);

class RemoteServer : public RemoteCall::Owner, public std::enable_shared_from_this<RemoteServer> {
 public:
  static constexpr int64_t kMostQueued = 4096;

  RemoteServer(Network* network, const std::vector<std::string>& urls, RemoteOptions options,
               RemoteModel model);
  ~RemoteServer() override;

  // Thread-safe. spec.text is what PrepareChat made; spec.prompt its tokens, where they are known;
  // `grammar` what its constraint says, or null. ResourceExhausted where too many wait; ChatBody's
  // errors.
  absl::StatusOr<std::shared_ptr<Request>> Submit(RequestSpec spec,
                                                  std::shared_ptr<const Grammar> grammar,
                                                  std::shared_ptr<RequestListener> listener);
  const RemoteModel& model() const { return model_; }
  // Enough to go on with while a row at the front waits for a second or two.
  size_t most_under_way() const { return most_under_way_; }
  RemoteStats Stats() const;
  RequestCounts CountsOf(absl::string_view salt) const;
  std::vector<ConstraintProof> Proofs() const { return proofs_.List(); }
  // For `salt`, whose tokens they are.
  std::vector<std::shared_ptr<Request>> Prove(absl::string_view salt);

 private:
  class Told;
  using Kind = AnswerConstraint::Kind;
  using Proof = ConstraintProofs::State;

  void HandOver(RemoteJob job, std::shared_ptr<RequestListener> listener);

  // On the network's thread.
  std::list<RemoteJob>& QueueOf(const RemoteJob& job);
  void Enqueue(RemoteJob job);
  void Pump() noexcept;
  void PumpQueue(std::list<RemoteJob>* queue, MonotonicTime now, MonotonicTime* next);
  bool Begin(RemoteJob* job, MonotonicTime now, MonotonicTime* next);
  void Send(RemoteJob job, size_t place);
  bool IsProven(const RemoteJob& job);
  void AskCanary(const RequestSpec& spec);
  absl::StatusOr<RemoteJob> CanaryJob(RequestSpec spec) const;
  void DropAbandoned();
  void EndTransfer(RemoteCall* call, const HttpOutcome& outcome);
  void DropIf(absl::FunctionRef<bool(const RemoteJob&)> condition,
              absl::FunctionRef<absl::Status(const RemoteJob&)> why);
  void DropAll() noexcept;
  // Every request's end: counted for its salt, but a first question.
  void End(Request& request, bool is_canary, Generation generation) noexcept;
  void EndWithoutMemory(Request& request, bool is_canary) noexcept;
  void WakeAt(MonotonicTime when);
  absl::StatusOr<std::string> BodyOf(const RequestSpec& spec) const;

  void OnFirstToken(RemoteCall* call) override;
  void OnLastEvent(RemoteCall* call) override;
  void OnDone(RemoteCall* call, const HttpOutcome& outcome) override;
  void CountTokens(const RemoteCall& call);
  void Settle(RemoteCall* call, const HttpOutcome& outcome);
  void Answered(RemoteCall* call);
  void Doubted(RemoteCall* call, bool is_servers);
  bool HoldsCanary(RemoteCall* call, Generation* generation);
  bool HoldsProof(RemoteCall* call, Generation* generation);
  void Refused(RemoteCall* call, const HttpOutcome& outcome);
  void Failed(RemoteCall* call, absl::Status why, bool reached = true);
  void Rejected(RemoteCall* call, int code);
  void SendAgain(RemoteJob job, MonotonicTime when);
  bool SendElsewhere(RemoteCall* call);
  bool AskAnother(RemoteCall* call, bool is_servers);
  bool SendWithout(RemoteCall* call, int code, absl::string_view words);
  bool SendBack(RemoteCall* call, absl::string_view text);
  bool SendShorter(RemoteCall* call, absl::string_view words);
  absl::Status OtherAnswerError(const RemoteCall& call) const;
  absl::Status TooLongError(const RemoteCall& call, const HttpOutcome& outcome) const;
  void Conclude(RemoteCall& call, Generation generation);
  absl::Status NotProven(const GenerationOptions& asked, const Generation& generation) const;
  void ConcludeCanary(const RemoteCall& call, const Generation& generation);

  Network* const network_;
  const RemoteOptions options_;
  const RemoteModel model_;
  const std::vector<std::string> headers_;
  const Secrets secrets_;  // of these
  const size_t most_under_way_;
  std::atomic<int64_t> num_queued_{0}, num_running_{0}, num_retries_{0};
  std::atomic<bool> looks_for_abandoned_{false};

  // Of the network's thread.
  ServerPool pool_;
  std::array<std::list<RemoteJob>, 2> queues_;  // the first goes before the second
  std::list<std::shared_ptr<RemoteCall>> calls_;
  ConstraintProofs proofs_;
  MonotonicTime wake_ = MonotonicTime::InfiniteFuture();

  mutable absl::Mutex mutex_;
  LeftOut left_out_ ABSL_GUARDED_BY(mutex_);  // of every body, since a server has refused it
  LatencyWindow first_token_ ABSL_GUARDED_BY(mutex_);
  SaltCounts<RequestCounts> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_SERVER_H_

// RemoteCall: one transfer of one request, and the answer that it brings.
#ifndef LM_ENGINE_REMOTE_REMOTE_CALL_H_
#define LM_ENGINE_REMOTE_REMOTE_CALL_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/monotonic_time.h"
#include "engine/grammar/grammar.h"
#include "engine/remote/chat_reader.h"
#include "engine/remote/embedding_api.h"
#include "engine/remote/event_stream.h"
#include "engine/remote/network.h"
#include "engine/remote/secrets.h"
#include "engine/remote/server_pool.h"
#include "engine/runtime/request.h"

namespace lm {

// A request on its way, whichever transfer it is on.
struct RemoteJob {
  std::shared_ptr<Request> request = {};
  std::shared_ptr<const Grammar> grammar = {};  // what its constraint says, or null
  std::string body = {};
  std::string handed_out = {};  // of a streamed answer, whichever transfer brought it
  std::string cut = {};         // the request's text as on_overflow has left it; empty: it is whole
  uint64_t prefix = 0;          // of the system prompt; 0: none
  int64_t tokens = 0;           // that it may take
  int64_t prompt_tokens = 0;    // of those, where its server does not tell
  int cuts = 0;
  ServerPool::Shunned shunned = {};
  std::set<size_t> doubted = {};  // those of them that may be at fault, as another's answer shows
  int failures = 0;               // but the first at a server, while there was another one
  int refusals = 0;               // 429 and 503
  LeftOut left_out = {};          // the server's refusals of it that were heeded
  bool repaired = false;          // a wrong answer was sent back
  bool is_canary = false;
  int64_t spent_in = 0, spent_out = 0;         // tokens of answers that were no use
  absl::Duration took = absl::ZeroDuration();  // on transfers that are over
  MonotonicTime not_before = MonotonicTime::InfinitePast();

  // With the tokens of answers that were no use.
  Generation WithSpent(Generation generation) const {
    generation.in_vain = SaturatedTokens(spent_in);
    generation.tokens_in = SaturatedTokens(spent_in + generation.tokens_in);
    generation.tokens_out = SaturatedTokens(spent_out + generation.tokens_out);
    return generation;
  }

  // How much of its timeout_ms is left.
  absl::Duration TimeLeft() const {
    const int64_t timeout = request->spec().options.timeout_ms;
    return timeout > 0 ? absl::Milliseconds(timeout) - took : absl::InfiniteDuration();
  }
};

// On the network's thread.
class RemoteCall : public HttpHandler {
 public:
  // Of what an answer says, and of one that is no stream.
  static constexpr size_t kMostBytes = 16 << 20;

  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnFirstToken(RemoteCall* call) = 0;  // within a transfer
    virtual void OnLastEvent(RemoteCall* call) = 0;   // likewise
    virtual void OnDone(RemoteCall* call, const HttpOutcome& outcome) = 0;
  };

  // `dialect` is the server's; `secrets` are the owner's.
  RemoteCall(std::shared_ptr<Owner> owner, RemoteJob job, size_t endpoint, Dialect dialect,
             const Secrets* secrets);

  bool OnBody(int code, absl::string_view bytes) override;
  void OnDone(const HttpOutcome& outcome) override;

  const RequestSpec& spec() const { return job.request->spec(); }
  // What is asked.
  const std::string& text() const { return job.cut.empty() ? spec().text : job.cut; }
  // The body of what is no stream of events; of such, until the first event, its beginning.
  const std::string& raw() const { return raw_; }

  // What the answer says, after the transfer has ended well; a constraint is not looked at.
  // Unavailable where it is broken, and another try may help.
  absl::StatusOr<Generation> Read();
  // Sets the counts and times of *generation.
  void Measure(Generation* generation) const;
  // Sets the numbers of tokens of this answer. What the server has not told is estimated; where
  // nothing of an answer has come it is 0.
  void CountTokens(Generation* generation) const;
  // The transfer is over: its time is among those that the request has taken.
  void AddTime() { job.took += MonotonicTime::Now() - begun_; }
  // The answer is asked for once more: its tokens are among those that the request has spent.
  void AddSpent();
  // Of job.tokens those that it did not take; negative: it took more.
  int64_t Unused() const;
  bool has_first_token() const { return first_token_ != MonotonicTime::InfiniteFuture(); }
  // A streamed answer's text, so far or whole: hands out what of it has not been. False where it
  // does not go on from what has, of an earlier answer that broke off.
  bool HandOut(absl::string_view text);
  bool HandOutWhole(absl::string_view text);
  // Whether HandOut has returned false.
  bool differs() const { return differs_; }
  // Whether the answer's last event has come, however the transfer has ended.
  bool has_ended() const { return has_ended_; }
  // Whether there was more than kMostBytes, and no more was taken.
  bool is_too_long() const { return is_too_long_; }

  RemoteJob job;
  const size_t endpoint;  // where it is sent
  uint64_t transfer = 0;

 private:
  bool Take(int code, absl::string_view bytes);
  bool OnEvent(const std::string& data);

  // What the body of an answer is, by its first character: some servers stream nothing.
  enum class Form { kUnknown, kEvents, kWhole };

  const std::shared_ptr<Owner> owner_;
  const Dialect dialect_;
  const Secrets& secrets_;
  Form form_ = Form::kUnknown;
  EventStream stream_;
  ChatReader reader_;
  std::string raw_;
  absl::StatusOr<EmbeddingAnswer> embedding_ = absl::UnavailableError("no answer");
  bool has_come_ = false;  // something of an answer
  bool has_event_ = false;
  bool has_ended_ = false;
  bool is_too_long_ = false;
  size_t compared_ = 0;  // with job.handed_out
  bool differs_ = false;
  const MonotonicTime begun_ = MonotonicTime::Now();
  MonotonicTime first_token_ = MonotonicTime::InfiniteFuture();
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_CALL_H_

#include "engine/remote/remote_server.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/json.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_constraint.h"
#include "engine/remote/chat_request.h"
#include "engine/remote/embedding_api.h"
#include "engine/remote/estimated_tokens.h"
#include "engine/remote/fetch.h"
#include "engine/remote/overflow.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/trouble.h"

namespace lm {
namespace {

constexpr int kMostRefusals = 100;  // of one request: with the longest pauses, most of an hour
constexpr size_t kRoundsUnderWay = 16;
constexpr absl::Duration kLastEventToEnd = absl::Seconds(1);  // of an answer, on its connection
constexpr uint64_t kMostTokenBytes = 1 << 10;                 // of a stream, with what is around it
constexpr int kMostCuts = 40;  // by a quarter each: of a megabyte ten bytes are left

// The same request with another text.
RequestSpec WithText(const RequestSpec& spec, std::string text) {
  return {.text = std::move(text),
          .options = spec.options,
          .embed = spec.embed,
          .ranks = spec.ranks,
          .wants_first_choices = spec.wants_first_choices};
}

}  // namespace

std::vector<std::string> RemoteHeaders(const RemoteOptions& options,
                                       absl::string_view content_type) {
  std::vector<std::string> headers = {absl::StrCat("Content-Type: ", content_type), "Expect:"};
  for (const auto& [name, value] : options.headers) {
    headers.push_back(absl::StrCat(name, ": ", value));
  }
  const char* key = options.key_env.empty() ? nullptr : std::getenv(options.key_env.c_str());
  if (key != nullptr) headers.push_back(absl::StrCat("Authorization: Bearer ", key));
  return headers;
}

HttpRequest RemoteRequest(std::string url, std::vector<std::string> headers,
                          const RemoteOptions& options) {
  const absl::Duration timeout = absl::Milliseconds(options.timeout_ms);
  return {.url = std::move(url),
          .headers = std::move(headers),
          .timeout = timeout,
          .silence = std::max(timeout, HttpRequest().silence)};
}

// Listens for who listens, and sees to it that an abandoned request is dropped.
class RemoteServer::Told : public ForwardingListener {
 public:
  Told(std::weak_ptr<RemoteServer> server, std::shared_ptr<RequestListener> inner)
      : ForwardingListener(std::move(inner)), server_(std::move(server)) {}

  void OnAbandoned(Request& request) noexcept override {
    ForwardingListener::OnAbandoned(request);
    const std::shared_ptr<RemoteServer> server = server_.lock();
    if (server == nullptr || server->looks_for_abandoned_.exchange(true)) return;
    try {
      server->network_->Run([server] { server->DropAbandoned(); });
    } catch (...) {  // no memory: the next one, or its answer, ends it
      server->looks_for_abandoned_ = false;
    }
  }

 private:
  const std::weak_ptr<RemoteServer> server_;
};

RemoteServer::RemoteServer(Network* network, const std::vector<std::string>& urls,
                           RemoteOptions options, RemoteModel model)
    : network_(network),
      options_(std::move(options)),
      model_(std::move(model)),
      headers_(RemoteHeaders(options_)),
      secrets_(headers_),
      most_under_way_(std::clamp<size_t>(kRoundsUnderWay * urls.size() * options_.concurrency,
                                         Generator::kMostUnderWay, kMostQueued)),
      pool_(urls, options_) {}

RemoteServer::~RemoteServer() = default;

absl::StatusOr<std::shared_ptr<Request>> RemoteServer::Submit(
    RequestSpec spec, std::shared_ptr<const Grammar> grammar,
    std::shared_ptr<RequestListener> listener) {
  if (num_queued_ >= kMostQueued) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMostQueued, " requests wait for '", model_.name, "' already"));
  }
  RemoteJob job{.grammar = std::move(grammar),
                .tokens = MostTokens(spec),
                .prompt_tokens = PromptTokens(spec)};
  ASSIGN_OR_RETURN(job.body, BodyOf(spec));
  if (!spec.embed.has_value()) job.prefix = SystemPrefix(spec.text);
  job.request = std::make_shared<Request>(std::move(spec));
  std::shared_ptr<Request> request = job.request;
  HandOver(std::move(job), std::move(listener));
  return request;
}

void RemoteServer::HandOver(RemoteJob job, std::shared_ptr<RequestListener> listener) {
  job.request->set_listener(std::make_shared<Told>(weak_from_this(), std::move(listener)));
  ++num_queued_;
  absl::Cleanup refused = [this] { --num_queued_; };
  network_->Run([self = shared_from_this(), job = std::move(job)]() mutable {
    self->Enqueue(std::move(job));
  });
  std::move(refused).Cancel();
}

absl::StatusOr<std::string> RemoteServer::BodyOf(const RequestSpec& spec) const {
  if (spec.ranks) return RerankBody(spec.text, model_, options_);
  if (spec.embed.has_value()) return EmbeddingBody(spec.text, model_, options_);
  LeftOut left_out;
  {
    absl::ReaderMutexLock lock(&mutex_);
    left_out = left_out_;
  }
  // A long prompt takes a while, and the network's thread may want the lock.
  return ChatBody(spec, model_, options_, Delivery::kStream, left_out);
}

RemoteStats RemoteServer::Stats() const {
  absl::MutexLock lock(&mutex_);
  return {.running = num_running_,
          .queued = num_queued_,
          .retries = num_retries_,
          .time_to_first_token = first_token_.Summary()};
}

RequestCounts RemoteServer::CountsOf(absl::string_view salt) const {
  absl::MutexLock lock(&mutex_);
  return counts_.Get(salt);
}

std::list<RemoteJob>& RemoteServer::QueueOf(const RemoteJob& job) {
  return queues_[job.request->priority() == Priority::kInteractive ? 0 : 1];
}

void RemoteServer::Enqueue(RemoteJob job) {
  try {
    QueueOf(job).push_back(std::move(job));
  } catch (...) {
    --num_queued_;
    return End(*job.request, job.is_canary, {.status = OutOfMemory()});
  }
  Pump();
}

void RemoteServer::SendAgain(RemoteJob job, MonotonicTime when) {
  job.not_before = when;
  const std::shared_ptr<Request> request = job.request;
  const bool is_canary = job.is_canary;
  try {
    QueueOf(job).push_front(std::move(job));
  } catch (...) {
    return EndWithoutMemory(*request, is_canary);
  }
  ++num_retries_;
  ++num_queued_;
}

void RemoteServer::WakeAt(MonotonicTime when) {
  if (when >= wake_ || when == MonotonicTime::InfiniteFuture()) return;
  network_->RunAt(when, [self = shared_from_this(), when] {
    if (self->wake_ == when) self->wake_ = MonotonicTime::InfiniteFuture();
    self->Pump();
  });
  wake_ = when;
}

void RemoteServer::Pump() noexcept {
  const MonotonicTime now = MonotonicTime::Now();
  MonotonicTime next = MonotonicTime::InfiniteFuture();
  try {
    for (std::list<RemoteJob>& queue : queues_) PumpQueue(&queue, now, &next);
    WakeAt(next);
  } catch (...) {  // perhaps nobody would ever come back to them
    DropAll();
  }
}

// Of thousands that wait few are looked at: as many as there is room for, and those that pause.
void RemoteServer::PumpQueue(std::list<RemoteJob>* queue, MonotonicTime now, MonotonicTime* next) {
  for (auto job = queue->begin(); job != queue->end() && pool_.HasRoom(now, next);) {
    const auto at = job++;
    if (at->not_before > now) {
      *next = std::min(*next, at->not_before);
      continue;
    }
    // Beginning may add to the queue's front, and takes away none but this one.
    if (Begin(&*at, now, next)) queue->erase(at);
  }
}

bool RemoteServer::Begin(RemoteJob* job, MonotonicTime now, MonotonicTime* next) {
  if (job->request->abandoned() || job->TimeLeft() <= absl::ZeroDuration()) {
    absl::Status why = job->request->AbandonedStatus();
    --num_queued_;
    End(*job->request, job->is_canary, job->WithSpent({.status = std::move(why)}));
    return true;
  }
  if (!job->is_canary && !IsProven(*job)) return false;
  const std::optional<size_t> place = pool_.Choose(job->prefix, job->shunned, now, next);
  if (!place.has_value()) return false;
  --num_queued_;
  const std::shared_ptr<Request> request = job->request;
  const bool is_canary = job->is_canary;
  try {
    Send(std::move(*job), *place);
  } catch (...) {
    EndWithoutMemory(*request, is_canary);
  }
  return true;
}

// A first question is then asked again, by the next who needs to know.
void RemoteServer::EndWithoutMemory(Request& request, bool is_canary) noexcept {
  if (is_canary) proofs_.set(request.spec().options.constraint.kind, Proof::kNone);
  End(request, is_canary, {.status = OutOfMemory()});
}

void RemoteServer::End(Request& request, bool is_canary, Generation generation) noexcept {
  if (!is_canary) {
    try {
      absl::MutexLock lock(&mutex_);
      RequestCounts& counts = counts_.Of(request.spec().salt);
      ++counts.requests;
      counts.failed += IsFailure(generation.status);
    } catch (...) {  // no memory for one more salt
    }
  }
  request.Finish(std::move(generation));
}

void RemoteServer::Send(RemoteJob job, size_t place) {
  const uint64_t prefix = job.prefix;
  auto call = std::make_shared<RemoteCall>(shared_from_this(), std::move(job), place,
                                           model_.dialect, &secrets_);
  const RequestSpec& spec = call->spec();
  const absl::string_view path = spec.ranks               ? "/rerank"
                                 : spec.embed.has_value() ? "/embeddings"
                                                          : "/chat/completions";
  std::vector<std::string> headers = headers_;
  if (prefix != 0 && !options_.affinity_header.empty()) {
    headers.push_back(absl::StrCat(options_.affinity_header, ": ", absl::Hex(prefix)));
  }
  calls_.push_back(call);
  absl::Cleanup not_kept = [&] { calls_.pop_back(); };
  pool_.Sent(place, prefix, call->job.tokens, MonotonicTime::Now());
  absl::Cleanup not_sent = [&] { pool_.Over(place, prefix, call->job.tokens); };
  HttpRequest request =
      RemoteRequest(absl::StrCat(pool_.url(place), path), std::move(headers), options_);
  request.body = call->job.body;
  if (!spec.embed.has_value()) {
    const auto tokens = static_cast<uint64_t>(spec.options.max_tokens);
    request.max_bytes = std::max(request.max_bytes, tokens * kMostTokenBytes);
  }
  call->transfer = network_->Start(request, call);
  std::move(not_sent).Cancel();
  std::move(not_kept).Cancel();
  ++num_running_;
  call->job.request->set_deadline(MonotonicTime::Now() + call->job.TimeLeft());
}

void RemoteServer::DropIf(absl::FunctionRef<bool(const RemoteJob&)> condition,
                          absl::FunctionRef<absl::Status(const RemoteJob&)> why) {
  for (std::list<RemoteJob>& queue : queues_) {
    for (auto job = queue.begin(); job != queue.end();) {
      const auto at = job++;
      if (!condition(*at)) continue;
      Generation ended = at->WithSpent({.status = why(*at)});
      const std::shared_ptr<Request> request = std::move(at->request);
      const bool is_canary = at->is_canary;
      queue.erase(at);
      --num_queued_;
      End(*request, is_canary, std::move(ended));
    }
  }
}

void RemoteServer::DropAll() noexcept {
  proofs_.ForgetAsked();  // the first question is among them, or under way
  DropIf([](const RemoteJob&) { return true; }, [](const RemoteJob&) { return OutOfMemory(); });
}

void RemoteServer::DropAbandoned() {
  looks_for_abandoned_ = false;
  DropIf([](const RemoteJob& job) { return job.request->abandoned(); },
         [](const RemoteJob& job) { return job.request->AbandonedStatus(); });
  for (auto call = calls_.begin(); call != calls_.end();) {
    const std::shared_ptr<RemoteCall> one = *call++;
    if (one->job.request->abandoned()) {
      EndTransfer(one.get(), {.status = one->job.request->AbandonedStatus()});
    }
  }
}

void RemoteServer::EndTransfer(RemoteCall* call, const HttpOutcome& outcome) {
  network_->Abort(call->transfer);
  OnDone(call, outcome);
}

void RemoteServer::OnFirstToken(RemoteCall* call) {
  if (call->job.prefix == 0) return;
  pool_.Begun(call->endpoint, call->job.prefix);
  WakeAt(MonotonicTime::Now());  // nothing can be begun within a transfer
}

// A connection that ends properly serves again; one that is kept open is not waited for.
void RemoteServer::OnLastEvent(RemoteCall* call) {
  network_->RunAt(MonotonicTime::Now() + kLastEventToEnd, [self = shared_from_this(), call] {
    const auto is_this = [call](const auto& one) { return one.get() == call; };
    const auto found = std::find_if(self->calls_.begin(), self->calls_.end(), is_this);
    if (found == self->calls_.end() || !(*found)->has_ended()) return;
    const std::shared_ptr<RemoteCall> held = *found;
    self->EndTransfer(call, {.code = 200});
  });
}

void RemoteServer::OnDone(RemoteCall* call, const HttpOutcome& outcome) {
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [call](const auto& one) { return one.get() == call; });
  const std::shared_ptr<RemoteCall> held = *found;  // past its place in the list
  calls_.erase(found);
  --num_running_;
  pool_.Over(call->endpoint, call->job.prefix, call->Unused());
  call->job.request->set_deadline(MonotonicTime::InfiniteFuture());
  call->AddTime();
  try {
    CountTokens(*call);
    Settle(call, outcome);
  } catch (...) {
    if (call->job.request != nullptr) EndWithoutMemory(*call->job.request, call->job.is_canary);
  }
  Pump();
}

// Paid is each answer, whatever becomes of it.
void RemoteServer::CountTokens(const RemoteCall& call) {
  Generation answer;
  call.CountTokens(&answer);
  if (answer.tokens_in == 0 && answer.tokens_out == 0) return;
  absl::MutexLock lock(&mutex_);
  RequestCounts& counts = counts_.Of(call.spec().salt);
  counts.tokens_reused += answer.tokens_cached;
  counts.tokens_prefilled += std::max(answer.tokens_in - answer.tokens_cached, 0);
  counts.tokens_decoded += answer.tokens_out;
}

void RemoteServer::Settle(RemoteCall* call, const HttpOutcome& outcome) {
  if (call->job.request->abandoned()) {
    Conclude(*call, {.status = call->job.request->AbandonedStatus()});
  } else if (call->differs()) {
    Conclude(*call, {.status = OtherAnswerError(*call)});
  } else if (outcome.code == 200 && call->has_ended()) {  // the connection may have broken since
    Answered(call);
  } else if (call->is_too_long() || absl::IsOutOfRange(outcome.status)) {
    Conclude(*call, {.status = TooLongError(*call, outcome)});
  } else if (absl::IsUnavailable(outcome.status)) {
    absl::Status why = absl::UnavailableError(
        absl::StrCat(pool_.url(call->endpoint), ": ", outcome.status.message()));
    if (outcome.unreachable) why = WithTrouble(std::move(why), Trouble::kOutage);
    Failed(call, std::move(why), /*reached=*/outcome.code != 0);
  } else if (!outcome.status.ok()) {
    Conclude(*call, {.status = outcome.status});
  } else if (outcome.code == 429 || outcome.code == 503) {
    Refused(call, outcome);
  } else if (outcome.code == 200) {
    Answered(call);
  } else {
    Rejected(call, outcome.code);
  }
}

void RemoteServer::Refused(RemoteCall* call, const HttpOutcome& outcome) {
  if (outcome.code == 429 && SaysUnpaid(call->raw())) {
    if (AskAnother(call, /*is_servers=*/true)) return;
    absl::Status unpaid = absl::FailedPreconditionError(
        absl::StrCat(pool_.url(call->endpoint), ": HTTP ", outcome.code, ": ",
                     ErrorText(call->raw(), secrets_)));
    Conclude(*call, {.status = WithTrouble(std::move(unpaid), Trouble::kAccount)});
    return;
  }
  if (outcome.code == 429) pool_.Heard(call->endpoint);
  const MonotonicTime now = MonotonicTime::Now();
  const absl::Duration pause =
      pool_.Refused(call->endpoint, call->job.refusals, outcome.retry_after, now);
  if (++call->job.refusals > kMostRefusals) {
    absl::Status busy = absl::ResourceExhaustedError(absl::StrCat(
        pool_.url(call->endpoint), " has refused it ", call->job.refusals, " times, at last with ",
        outcome.code, ": ", ErrorText(call->raw(), secrets_)));
    Conclude(*call, {.status = WithTrouble(std::move(busy), Trouble::kServer)});
    return;
  }
  SendAgain(std::move(call->job), now + pause);
}

void RemoteServer::Failed(RemoteCall* call, absl::Status why, bool reached) {
  pool_.Failed(call->endpoint, reached, MonotonicTime::Now());
  if (SendElsewhere(call)) return;
  if (call->job.failures++ >= options_.retries) {
    if (TroubleOf(why) == Trouble::kNone) why = WithTrouble(std::move(why), Trouble::kServer);
    Conclude(*call, {.status = std::move(why)});
    return;
  }
  call->AddSpent();
  const absl::Duration pause = pool_.PauseAfter(call->job.failures);
  SendAgain(std::move(call->job), MonotonicTime::Now() + pause);
}

// What a server fails at for the first time is another's, where one works.
bool RemoteServer::SendElsewhere(RemoteCall* call) {
  const MonotonicTime now = MonotonicTime::Now();
  ServerPool::Shunned& shunned = call->job.shunned;
  const bool is_first = shunned.places.insert(call->endpoint).second;
  if (!is_first || !pool_.HasOther(shunned.places, now)) return false;
  shunned.since = std::min(shunned.since, now);
  call->AddSpent();
  SendAgain(std::move(call->job), now);
  return true;
}

void RemoteServer::Doubted(RemoteCall* call, bool is_servers) {
  call->job.doubted.insert(call->endpoint);
  pool_.Doubted(call->endpoint, is_servers, MonotonicTime::Now());
}

// Whether it is the request's fault, or the server's, another one shows; two, where it is likely to
// be the request's.
bool RemoteServer::AskAnother(RemoteCall* call, bool is_servers) {
  const bool was_asked = !call->job.doubted.empty();
  Doubted(call, is_servers);
  if ((is_servers || !was_asked) && SendElsewhere(call)) return true;
  for (size_t place : call->job.doubted) pool_.Heard(place);
  return false;
}

void RemoteServer::Rejected(RemoteCall* call, int code) {
  const std::string words = ErrorText(call->raw(), Secrets());  // a header may be a word of them
  const bool too_long = SaysTooLong(code, words);
  const size_t place = call->endpoint;
  if (too_long && SendShorter(call, words)) return pool_.Heard(place);
  if (SendWithout(call, code, words)) return pool_.Heard(place);
  const Trouble trouble = RejectionTrouble(code, call->raw());
  absl::Status status = RejectionStatus(pool_.url(place), code, ErrorText(call->raw(), secrets_),
                                        !options_.key_env.empty());
  if (too_long) {
    status = absl::OutOfRangeError(absl::StrCat("the prompt is too long: ", status.message()));
  } else if (absl::IsUnavailable(status)) {
    return Failed(call, std::move(status));
  } else {
    status = WithTrouble(std::move(status), trouble);
  }
  if (AskAnother(call, /*is_servers=*/trouble != Trouble::kNone)) return;
  Conclude(*call, {.status = std::move(status)});
}

void RemoteServer::Answered(RemoteCall* call) {
  absl::StatusOr<Generation> generation = call->Read();
  if (!generation.ok()) {
    return Failed(call, absl::UnavailableError(absl::StrCat(pool_.url(call->endpoint), ": ",
                                                            generation.status().message())));
  }
  const RequestSpec& spec = call->spec();
  const bool needs_proof = spec.options.constraint.kind != Kind::kNone && !spec.wants_first_choices;
  if (needs_proof && generation->status.ok()) {
    const bool holds =
        call->job.is_canary ? HoldsCanary(call, &*generation) : HoldsProof(call, &*generation);
    if (!holds) return;
  }
  pool_.Answered(call->endpoint);
  const std::set<size_t>& doubted = call->job.doubted;
  // Who refused what another one answers is at fault.
  if (generation->status.ok() && doubted.count(call->endpoint) == 0) {
    for (size_t place : doubted) pool_.Failed(place, /*reached=*/true, MonotonicTime::Now());
  }
  Conclude(*call, *std::move(generation));
}

// What the server refuses; each time something more.
bool RemoteServer::SendWithout(RemoteCall* call, int code, absl::string_view words) {
  const RequestSpec& spec = call->spec();
  if (spec.embed.has_value() || spec.ranks || call->job.repaired) return false;
  const LeftOut refused = WithRefused(call->job.left_out, code, words);
  if (refused == call->job.left_out) return false;
  {
    absl::MutexLock lock(&mutex_);
    left_out_ = WithRefused(left_out_, code, words);
  }
  absl::StatusOr<std::string> body = BodyOf(WithText(spec, call->text()));
  if (!body.ok() || *body == call->job.body) return false;  // the option `extra` has it
  RemoteJob job = std::move(call->job);
  job.body = *std::move(body);
  job.left_out = refused;
  SendAgain(std::move(job), MonotonicTime::Now());
  return true;
}

// Asks once more, with the answer and what is wrong with it.
bool RemoteServer::SendBack(RemoteCall* call, absl::string_view text) {
  if (call->job.repaired) return false;
  const RequestSpec& spec = call->spec();
  RequestSpec again = WithText(spec, call->text());
  Json answer = Json::MakeObject(), error = Json::MakeObject();
  answer.Add("role", "assistant");
  answer.Add("content", text);
  error.Add("role", "user");
  error.Add(
      "content",
      absl::StrCat("That is not what ", ConstraintName(spec.options.constraint.kind),
                   " allows. Answer again, with nothing else: ", spec.options.constraint.text));
  const size_t asked = again.text.size();
  again.text.pop_back();
  absl::StrAppend(&again.text, ",", answer.Dump(), ",", error.Dump(), "]");
  absl::StatusOr<std::string> body = BodyOf(again);
  if (!body.ok()) return false;
  call->AddSpent();
  RemoteJob job = std::move(call->job);
  job.body = *std::move(body);
  job.prompt_tokens += GuessTokens(again.text.size() - asked);
  job.repaired = true;
  SendAgain(std::move(job), MonotonicTime::Now());
  return true;
}

// As on_overflow says, where it says so.
bool RemoteServer::SendShorter(RemoteCall* call, absl::string_view words) {
  if (call->job.cuts == kMostCuts) return false;
  const RequestSpec& spec = call->spec();
  const int64_t answer =
      spec.embed.has_value() || spec.wants_first_choices ? 1 : int64_t{spec.options.max_tokens};
  std::optional<std::string> cut = CutText(spec, call->text(), ShareThatFits(words, answer));
  if (!cut.has_value()) return false;
  absl::StatusOr<std::string> body = BodyOf(WithText(spec, *cut));
  if (!body.ok()) return false;
  RemoteJob job = std::move(call->job);
  job.body = *std::move(body);
  job.cut = *std::move(cut);
  job.prompt_tokens = std::min(job.prompt_tokens, GuessTokens(job.cut.size()));
  ++job.cuts;
  SendAgain(std::move(job), MonotonicTime::Now());
  return true;
}

// Of what has been handed out nothing can be taken back.
absl::Status RemoteServer::OtherAnswerError(const RemoteCall& call) const {
  return absl::UnavailableError(
      absl::StrCat(pool_.url(call.endpoint), ": the answer before this one broke off after ",
                   call.job.handed_out.size(),
                   " bytes that had been handed out, and this one differs from them"));
}

absl::Status RemoteServer::TooLongError(const RemoteCall& call, const HttpOutcome& outcome) const {
  const std::string what = call.is_too_long()
                               ? absl::StrCat("the answer says more than ", RemoteCall::kMostBytes,
                                              " bytes; lower max_tokens")
                               : std::string(outcome.status.message());
  return absl::OutOfRangeError(absl::StrCat(pool_.url(call.endpoint), ": ", what));
}

// What is streamed is then handed out to its end: what was held back, or had to be proved.
void RemoteServer::Conclude(RemoteCall& call, Generation generation) {
  call.Measure(&generation);
  if (call.job.is_canary) {
    ConcludeCanary(call, generation);
  } else {
    if (call.spec().stream && generation.status.ok() && !call.HandOutWhole(generation.text)) {
      generation.status = OtherAnswerError(call);
    }
    if (call.has_first_token()) {
      absl::MutexLock lock(&mutex_);
      first_token_.Add(generation.time_to_first_token);
    }
  }
  End(*call.job.request, call.job.is_canary, std::move(generation));
}

}  // namespace lm

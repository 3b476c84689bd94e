#include "engine/remote/chat_generator.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/fork_guard.h"
#include "engine/text/conversation.h"

namespace lm {
namespace {

constexpr size_t kMostGrammars = 32;
constexpr int64_t kBytesOfToken = 4;
constexpr absl::Duration kListTimeout = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Milliseconds(5);  // whether the opening is cancelled

Json Message(absl::string_view role, absl::string_view content) {
  Json message = Json::MakeObject();
  message.Add("role", role);
  message.Add("content", content);
  return message;
}

// The text of one answer, for who waits for it on another thread.
class Answer : public HttpHandler {
 public:
  bool OnBody(int, absl::string_view bytes) override {
    absl::MutexLock lock(&mutex_);
    body_.append(bytes.data(), bytes.size());
    return true;
  }
  void OnDone(const HttpOutcome& outcome) override {
    absl::MutexLock lock(&mutex_);
    outcome_ = outcome;
  }
  // The outcome and the body; Cancelled where `cancel` is set before.
  absl::StatusOr<std::pair<HttpOutcome, std::string>> Wait(const std::atomic<bool>& cancel) {
    absl::MutexLock lock(&mutex_);
    auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outcome_.has_value(); };
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done), kLook)) {
      if (cancel) return absl::CancelledError("the loading of the model was cancelled");
    }
    return std::make_pair(*outcome_, std::move(body_));
  }

 private:
  absl::Mutex mutex_;
  std::optional<HttpOutcome> outcome_ ABSL_GUARDED_BY(mutex_);
  std::string body_ ABSL_GUARDED_BY(mutex_);
};

// What the server says of the model.
absl::StatusOr<RemoteModel> AskForModel(Network* network, const std::string& url,
                                        const RemoteOptions& options,
                                        const std::atomic<bool>& cancel) {
  auto answer = std::make_shared<Answer>();
  HttpRequest request{.url = absl::StrCat(url, "/models"),
                      .headers = RemoteHeaders(options),
                      .timeout = kListTimeout};
  network->Run(
      [network, request = std::move(request), answer] { network->Start(request, answer); });
  ASSIGN_OR_RETURN(const auto got, answer->Wait(cancel));
  const auto& [outcome, body] = got;
  if (!outcome.status.ok()) {
    return absl::UnavailableError(absl::StrCat(url, ": ", outcome.status.message()));
  }
  // Some gateways have no list.
  if (outcome.code == 404 && !options.model.empty()) return RemoteModel{.name = options.model};
  if (outcome.code == 401 || outcome.code == 403) {
    return absl::PermissionDeniedError(absl::StrCat(
        url, ": HTTP ", outcome.code, ": ", ErrorText(body),
        options.key_env.empty() ? " (the option key_env names an environment variable with a key)"
                                : ""));
  }
  if (outcome.code != 200) {
    return absl::UnavailableError(
        absl::StrCat(url, "/models: HTTP ", outcome.code, ": ", ErrorText(body)));
  }
  absl::StatusOr<RemoteModel> model = ReadModelList(body, options.model);
  if (model.ok()) return model;
  return absl::Status(model.status().code(), absl::StrCat(url, ": ", model.status().message()));
}

absl::StatusOr<std::shared_ptr<RemoteGenerator>> Open(const std::string& path,
                                                      const std::string& options_text,
                                                      const std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(const std::vector<std::string> urls, ParseRemotePath(path));
  ASSIGN_OR_RETURN(const RemoteOptions options, ParseRemoteOptions(options_text));
  if (!options.key_env.empty() && std::getenv(options.key_env.c_str()) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("key_env: there is no environment variable '", options.key_env, "'"));
  }
  ASSIGN_OR_RETURN(Network * network, Network::Get());
  absl::StatusOr<RemoteModel> model;
  for (const std::string& url : urls) {
    model = AskForModel(network, url, options, cancel);
    if (!absl::IsUnavailable(model.status())) break;
  }
  RETURN_IF_ERROR(model.status());
  if (options.dialect != Dialect::kAuto) model->dialect = options.dialect;
  if (options.context_length > 0) model->context_length = options.context_length;
  return std::make_shared<ChatGenerator>(
      path, options, std::make_shared<RemoteServer>(network, urls, options, *std::move(model)));
}

// Those of the process, by path and options.
struct Registry {
  absl::Mutex mutex;
  HashMap<std::string, std::weak_ptr<RemoteGenerator>> known ABSL_GUARDED_BY(mutex);
};

std::atomic<pid_t> registry_owner{0};

Registry& TheRegistry() {
  static auto& registry = *new Registry;  // never destroyed
  return registry;
}

}  // namespace

ChatGenerator::ChatGenerator(absl::string_view path, const RemoteOptions& options,
                             std::shared_ptr<RemoteServer> server)
    : server_(std::move(server)) {
  const RemoteModel& model = server_->model();
  info_.path = std::string(path);
  info_.name = model.name;
  info_.architecture = std::string(DialectName(model.dialect));
  info_.device = "network";
  info_.digest = absl::StrCat("network:", path, "#", model.name, options.extra.Dump());
  info_.context_length =
      static_cast<int32_t>(std::min<int64_t>(model.context_length, max_sequence_tokens()));
}

int32_t ChatGenerator::max_sequence_tokens() const {
  const int64_t context = server_->model().context_length;
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max() / 2;
  return context > 0 && context < kMost ? static_cast<int32_t>(context) : kMost;
}

absl::StatusOr<RequestSpec> ChatGenerator::Prepare(const TextRequest& request) const {
  RequestSpec spec{.options = request.options,
                   .salt = std::string(request.salt),
                   .stream = request.stream,
                   .wants_first_choices = request.task == Task::kChoose};
  if (request.task == Task::kScore) {
    return absl::UnimplementedError(
        "a model on the network does not tell the probabilities of a prompt");
  }
  if (request.task == Task::kEmbed) {
    spec.text = std::string(request.prompt);
    if (request.pooling.has_value()) {
      return absl::InvalidArgumentError(
          "pooling: the server of a model on the network pools as it was started to");
    }
    spec.embed = Pooling::kMean;  // any: it says that an embedding is wanted
    return spec;
  }
  if (request.task == Task::kChoose) spec.options.temperature = 0;
  if (request.options.on_overflow != OnOverflow::kError) {
    return absl::UnimplementedError(
        "on_overflow: only the server of a model on the network can count its tokens, so that a "
        "prompt is not cut for it; lm_chunks cuts texts");
  }
  ASSIGN_OR_RETURN(spec.text, Render(request));
  return spec;
}

// The messages as JSON.
absl::StatusOr<std::string> ChatGenerator::Render(const TextRequest& request) const {
  Json messages = Json::MakeArray();
  if (!request.options.messages) {
    if (!request.system.empty()) messages.Append(Message("system", request.system));
    messages.Append(Message("user", absl::StrCat(request.prompt, request.question)));
    return messages.Dump();
  }
  if (!request.question.empty()) {
    return absl::InvalidArgumentError("messages are for generate and its like, not for a question");
  }
  RETURN_IF_ERROR(ReadConversation(request.prompt, request.system, /*is_messages=*/true).status());
  const std::optional<Json> own = Json::Parse(request.prompt);
  if (!request.system.empty()) messages.Append(Message("system", request.system));
  for (const Json& message : own->array()) messages.Append(message);
  return messages.Dump();
}

absl::StatusOr<int64_t> ChatGenerator::CountTokens(const TextRequest& request) const {
  const size_t bytes = request.prompt.size() + request.question.size() + request.system.size();
  return static_cast<int64_t>(bytes + kBytesOfToken - 1) / kBytesOfToken;
}

absl::StatusOr<std::shared_ptr<Request>> ChatGenerator::Submit(
    RequestSpec spec, std::shared_ptr<RequestListener> listener) {
  RETURN_IF_ERROR(ValidateGenerationOptions(spec.options));
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, GrammarOf(spec.options.constraint));
  return server_->Submit(std::move(spec), std::move(grammar), std::move(listener));
}

absl::Status ChatGenerator::Validate(const RequestSpec& spec) const {
  RETURN_IF_ERROR(ValidateGenerationOptions(spec.options));
  return CheckConstraint(spec.options);
}

absl::Status ChatGenerator::CheckConstraint(const GenerationOptions& options) const {
  return GrammarOf(options.constraint).status();
}

absl::StatusOr<std::shared_ptr<const Grammar>> ChatGenerator::GrammarOf(
    const AnswerConstraint& constraint) const {
  if (constraint.kind == AnswerConstraint::Kind::kNone) return std::shared_ptr<const Grammar>();
  {
    absl::MutexLock lock(&mutex_);
    const auto known = std::find_if(grammars_.begin(), grammars_.end(),
                                    [&](const auto& entry) { return entry.first == constraint; });
    if (known != grammars_.end()) {
      grammars_.splice(grammars_.begin(), grammars_, known);
      return known->second;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, CompileNotation(constraint));
  absl::MutexLock lock(&mutex_);
  grammars_.emplace_front(constraint, grammar);
  if (grammars_.size() > kMostGrammars) grammars_.pop_back();
  return grammar;
}

bool ChatGenerator::CanBeAnswer(const RequestSpec& spec, const RememberedAnswer& answer) const {
  if (answer.finish == FinishReason::kError || !answer.tokens.empty()) return false;
  if (answer.first_choices.empty() == spec.wants_first_choices) return false;
  for (const FirstChoice& choice : answer.first_choices) {
    if (choice.text.empty() || !std::isfinite(choice.logprob) || choice.logprob > 0) return false;
  }
  const absl::StatusOr<std::shared_ptr<const Grammar>> grammar = GrammarOf(spec.options.constraint);
  if (!grammar.ok()) return false;
  return *grammar == nullptr || spec.wants_first_choices ||
         (*grammar)->Matches(answer.text).value_or(false);
}

absl::StatusOr<const Tokenizer*> ChatGenerator::tokenizer() const {
  return absl::FailedPreconditionError("the tokens of a model on the network are not known here");
}

absl::StatusOr<std::shared_ptr<Generator>> GetRemoteGenerator(const std::string& path,
                                                              const std::string& options,
                                                              std::atomic<bool>& cancel) {
  pid_t owner = 0;
  if (!registry_owner.compare_exchange_strong(owner, getpid()) && owner != getpid()) {
    return ForkGuard::Error();
  }
  const std::string key = absl::StrCat(path, "\n", options);
  Registry& registry = TheRegistry();
  {
    absl::MutexLock lock(&registry.mutex);
    const auto known = registry.known.find(key);
    if (known != registry.known.end()) {
      if (std::shared_ptr<Generator> generator = known->second.lock()) return generator;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<RemoteGenerator> opened, Open(path, options, cancel));
  absl::MutexLock lock(&registry.mutex);
  std::erase_if(registry.known, [](const auto& entry) { return entry.second.expired(); });
  // Two may have been opened at a time: one is kept.
  std::weak_ptr<RemoteGenerator>& kept = registry.known[key];
  if (std::shared_ptr<Generator> first = kept.lock()) return first;
  kept = opened;
  return std::shared_ptr<Generator>(std::move(opened));
}

std::vector<std::shared_ptr<RemoteGenerator>> RunningRemoteGenerators() {
  std::vector<std::shared_ptr<RemoteGenerator>> running;
  if (registry_owner.load() != getpid()) return running;
  Registry& registry = TheRegistry();
  absl::MutexLock lock(&registry.mutex);
  for (const auto& [key, generator] : registry.known) {
    if (std::shared_ptr<RemoteGenerator> one = generator.lock()) running.push_back(std::move(one));
  }
  return running;
}

}  // namespace lm

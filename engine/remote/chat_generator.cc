#include "engine/remote/chat_generator.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/digest.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "engine/base/this_process.h"
#include "engine/remote/chat_request.h"
#include "engine/remote/estimated_tokens.h"
#include "engine/remote/meet_model.h"
#include "engine/remote/overflow.h"
#include "engine/remote/remote_tokens.h"
#include "engine/runtime/answer_form.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/vote.h"

namespace lm {
namespace {

constexpr size_t kMostGrammars = 32;
constexpr size_t kMostTold = 4096;
constexpr char kUnknownTokens[] =
    "the tokens of a model on the network are not known here, unless its option tokenizer names a "
    "GGUF file, or a directory, that has them";
// That servers are away is shared by as many rows as would be under way together.
constexpr absl::Duration kAbsenceLasts = absl::Seconds(1);
constexpr size_t kRowsOfAbsence = Generator::kMostUnderWay;

absl::Status CheckKey(const RemoteOptions& options) {
  if (options.key_env.empty()) return absl::OkStatus();
  const char* key = std::getenv(options.key_env.c_str());
  if (key == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("key_env: there is no environment variable '", options.key_env, "'"));
  }
  if (absl::StrContains(key, '\n') || absl::StrContains(key, '\r')) {
    return absl::FailedPreconditionError(absl::StrCat("key_env: the environment variable '",
                                                      options.key_env, "' has more than one line"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RemoteGenerator>> OpenServer(const std::string& path,
                                                            const std::string& options_text,
                                                            Patience patience,
                                                            const std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(const std::vector<std::string> urls, ParseRemotePath(path));
  ASSIGN_OR_RETURN(const RemoteOptions options, ParseRemoteOptions(options_text));
  RETURN_IF_ERROR(CheckKey(options));
  ASSIGN_OR_RETURN(Network * network, Network::Get());
  absl::StatusOr<RemoteModel> model = MeetModel(network, urls, options, patience, cancel);
  const absl::Status met = model.status();
  const bool is_absent = IsAbsence(met);
  if (!is_absent) RETURN_IF_ERROR(met);
  if (is_absent) model = RemoteModel{.name = options.model};
  if (options.dialect != Dialect::kAuto) model->dialect = options.dialect;
  model->is_openais = AreOpenAis(urls);
  if (options.context_length > 0) model->context_length = options.context_length;
  std::unique_ptr<const ModelText> text;
  if (!options.tokenizer.empty() && !is_absent) {
    ASSIGN_OR_RETURN(ModelText loaded, ModelText::Load(options.tokenizer, &cancel));
    text = std::make_unique<const ModelText>(std::move(loaded));
  }
  return std::make_shared<ChatGenerator>(
      path, urls, options, std::move(text), network,
      std::make_shared<RemoteServer>(network, urls, options, *std::move(model)), met);
}

// Servers that were looked for in vain.
struct Absence {
  std::shared_ptr<Generator> stand_in;
  MonotonicTime until;
  size_t rows_left = 0;
};

// Those of the process, by path and options (with any blanks).
struct Registry {
  absl::Mutex mutex;
  HashMap<std::string, std::weak_ptr<RemoteGenerator>> known ABSL_GUARDED_BY(mutex);
  HashMap<std::string, Absence> absent ABSL_GUARDED_BY(mutex);

  // Null where there is none, be it that it is time to look again.
  std::shared_ptr<Generator> StandIn(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const MonotonicTime now = MonotonicTime::Now();
    std::erase_if(absent, [now](const auto& entry) {
      return now >= entry.second.until || entry.second.rows_left == 0;
    });
    const auto found = absent.find(key);
    if (found == absent.end()) return nullptr;
    --found->second.rows_left;
    return found->second.stand_in;
  }
};

std::atomic<uint64_t> registry_owner{0};

Registry& TheRegistry() {
  static auto& registry = *new Registry;  // never destroyed
  return registry;
}

}  // namespace

ChatGenerator::ChatGenerator(absl::string_view path, std::vector<std::string> urls,
                             RemoteOptions options, std::unique_ptr<const ModelText> text,
                             Network* network, std::shared_ptr<RemoteServer> server,
                             absl::Status absence)
    : urls_(std::move(urls)),
      options_(std::move(options)),
      text_(std::move(text)),
      network_(network),
      server_(std::move(server)),
      absence_(std::move(absence)) {
  const RemoteModel& model = server_->model();
  info_.path = std::string(path);
  info_.name = model.name;
  info_.architecture = std::string(DialectName(model.dialect));
  info_.device = "network";
  info_.identity = RemoteIdentity(path, model.name, options_);
  info_.ranks = true;  // or its server says that it does not
  info_.generates = !options_.ranks;
  info_.price_in = options_.price_in;
  info_.price_out = options_.price_out;
  info_.context_length =
      static_cast<int32_t>(std::min<int64_t>(model.context_length, max_sequence_tokens()));
}

int32_t ChatGenerator::max_sequence_tokens() const {
  const int64_t context = server_->model().context_length;
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max() / 2;
  return context > 0 && context < kMost ? static_cast<int32_t>(context) : kMost;
}

absl::StatusOr<RequestSpec> ChatGenerator::Prepare(const TextRequest& request) const {
  if (request.task != Task::kEmbed && request.task != Task::kRank) {
    RETURN_IF_ERROR(CheckGenerates(info()));
  }
  TextRequest whole = request;
  whole.options.on_overflow = OnOverflow::kError;
  ASSIGN_OR_RETURN(RequestSpec spec, PrepareChat(whole));
  spec.options.on_overflow = request.options.on_overflow;
  if (options_.thinking_marks.has_value()) {
    spec.thinking_marks = ThinkingMarks::Named(*options_.thinking_marks);
  }
  if (request.options.on_overflow != OnOverflow::kError) {
    absl::string_view kept = request.question;
    if (request.task == Task::kRank) kept = "";
    if (request.task == Task::kEmbed) kept = request.system;
    spec.kept_end = static_cast<int64_t>(kept.size());
  }
  if (text_ != nullptr) RETURN_IF_ERROR(Fit(&spec));
  return spec;
}

absl::Status ChatGenerator::Fit(RequestSpec* spec) const {
  ASSIGN_OR_RETURN(spec->prompt, EncodeText(*text_, *spec, spec->text));
  const int64_t context = server_->model().context_length;
  const bool answers = !spec->embed.has_value();
  const int64_t answer = answers && !spec->wants_first_choices ? spec->options.max_tokens : answers;
  auto tokens = [spec] { return static_cast<int64_t>(spec->prompt.size()); };
  // What fits stays whole; what is cut leaves room.
  for (int64_t room = answers; context > 0 && tokens() + room > context;
       room = std::clamp<int64_t>(answer, answers, std::max<int64_t>(context / 2, 1))) {
    std::optional<std::string> cut =
        CutText(*spec, spec->text, ShareThatFits(context, tokens(), answer));
    if (!cut.has_value()) {
      return absl::OutOfRangeError(absl::StrCat("the prompt has ", tokens(),
                                                " tokens, the context of '", info_.name, "' ",
                                                context, " for it and the answer"));
    }
    spec->text = *std::move(cut);
    ASSIGN_OR_RETURN(spec->prompt, EncodeText(*text_, *spec, spec->text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChatGenerator::Render(const TextRequest& request) const {
  return ChatMessages(request);
}

absl::StatusOr<int64_t> ChatGenerator::CountTokens(const TextRequest& request) const {
  RETURN_IF_ERROR(absence_);
  const size_t bytes = request.prompt.size() + request.question.size() + request.system.size();
  const bool is_plain = request.task == Task::kScore || request.task == Task::kEmbed;
  if (text_ != nullptr && is_plain) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                     text_->tokenizer->EncodePlain(absl::StrCat(
                         request.task == Task::kEmbed ? request.system : "", request.prompt)));
    return static_cast<int64_t>(tokens.size());
  }
  if (text_ != nullptr) {
    const RequestSpec spec{.options = request.options};
    ASSIGN_OR_RETURN(const std::string messages, ChatMessages(request));
    ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EncodeText(*text_, spec, messages));
    return static_cast<int64_t>(tokens.size());
  }
  if (!is_plain) return GuessTokens(bytes);
  ASSIGN_OR_RETURN(const std::optional<int64_t> told, Told(request.prompt));
  if (told.has_value()) return *told;
  return absl::FailedPreconditionError(
      absl::StrCat(kUnknownTokens, "; by its bytes the text has some ", GuessTokens(bytes)));
}

absl::StatusOr<std::optional<int64_t>> ChatGenerator::Told(absl::string_view text) const {
  std::string digest = DigestOf(text).Hex();
  {
    absl::MutexLock lock(&mutex_);
    const auto known = told_.find(digest);
    if (known != told_.end()) return known->second;
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> told,
                   AskForTokens(network_, urls_, server_->model(), options_, text));
  if (!told.has_value()) return told;
  absl::MutexLock lock(&mutex_);
  if (told_.size() >= kMostTold) told_.clear();
  told_.emplace(std::move(digest), *told);
  return told;
}

absl::StatusOr<std::shared_ptr<Request>> ChatGenerator::Submit(
    RequestSpec spec, std::shared_ptr<RequestListener> listener) {
  RETURN_IF_ERROR(ValidateGenerationOptions(spec.options));
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, GrammarOf(spec.options.constraint));
  if (!absence_.ok()) {
    auto request = std::make_shared<Request>(std::move(spec));
    request->set_listener(std::move(listener));
    request->Finish({.status = absence_});
    return request;
  }
  return server_->Submit(std::move(spec), std::move(grammar), std::move(listener));
}

absl::Status ChatGenerator::Validate(const RequestSpec& spec) const {
  RETURN_IF_ERROR(ValidateGenerationOptions(spec.options));
  return CheckConstraint(spec.options);
}

absl::StatusOr<AdapterSet> ChatGenerator::AdaptersOf(const GenerationOptions& options) const {
  RETURN_IF_ERROR(CheckNoAdapters(options));
  return AdapterSet();
}

absl::Status ChatGenerator::CheckConstraint(const GenerationOptions& options) const {
  RETURN_IF_ERROR(CheckNoThinkingTokens(options));
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
  return CanBeDrawn(spec, answer, [this](const RequestSpec& one, const RememberedAnswer& its) {
    return CanBeOne(one, its);
  });
}

bool ChatGenerator::CanBeOne(const RequestSpec& spec, const RememberedAnswer& answer) const {
  if (answer.finish == FinishReason::kError || !answer.tokens.empty()) return false;
  if (answer.first_choices.empty() == spec.wants_first_choices) return false;
  const bool cut = answer.finish != FinishReason::kStop && answer.tokens_out > 0;
  const bool drops = spec.options.thinking == Thinking::kDrop && !spec.wants_first_choices;
  if (cut && drops && answer.text.empty()) return false;  // all of it was reasoning
  for (const FirstChoice& choice : answer.first_choices) {
    if (choice.text.empty() || !std::isfinite(choice.logprob) || choice.logprob > 0) return false;
  }
  const absl::StatusOr<std::shared_ptr<const Grammar>> grammar = GrammarOf(spec.options.constraint);
  if (!grammar.ok()) return false;
  return *grammar == nullptr || spec.wants_first_choices ||
         IsAnswer(spec.options.constraint, **grammar, answer.text);
}

absl::StatusOr<const Tokenizer*> ChatGenerator::tokenizer() const {
  RETURN_IF_ERROR(absence_);
  if (text_ != nullptr) return text_->tokenizer.get();
  return absl::FailedPreconditionError(kUnknownTokens);
}

absl::StatusOr<std::shared_ptr<Generator>> GetRemoteGenerator(const std::string& path,
                                                              const std::string& options,
                                                              Patience patience,
                                                              std::atomic<bool>& cancel) {
  uint64_t owner = 0;
  if (!registry_owner.compare_exchange_strong(owner, ThisProcess()) && owner != ThisProcess()) {
    return ForkGuard::Error();
  }
  const std::optional<Json> parsed = Json::Parse(options);
  const std::string key = absl::StrCat(path, "\n", parsed.has_value() ? parsed->Dump() : options);
  Registry& registry = TheRegistry();
  {
    absl::MutexLock lock(&registry.mutex);
    const auto known = registry.known.find(key);
    if (known != registry.known.end()) {
      if (std::shared_ptr<Generator> generator = known->second.lock()) return generator;
    }
    if (patience == Patience::kOfARow) {
      if (std::shared_ptr<Generator> stand_in = registry.StandIn(key)) return stand_in;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<RemoteGenerator> opened,
                   OpenServer(path, options, patience, cancel));
  absl::MutexLock lock(&registry.mutex);
  if (!opened->absence().ok()) {
    if (patience == Patience::kOfARow) {
      registry.absent[key] = {opened, MonotonicTime::Now() + kAbsenceLasts, kRowsOfAbsence - 1};
    }
    return std::shared_ptr<Generator>(std::move(opened));
  }
  registry.absent.erase(key);
  std::erase_if(registry.known, [](const auto& entry) { return entry.second.expired(); });
  // Two may have been opened at a time: one is kept.
  std::weak_ptr<RemoteGenerator>& kept = registry.known[key];
  if (std::shared_ptr<Generator> first = kept.lock()) return first;
  kept = opened;
  return std::shared_ptr<Generator>(opened);
}

bool HasNetwork() { return true; }

std::vector<std::shared_ptr<RemoteGenerator>> RunningRemoteGenerators() {
  std::vector<std::shared_ptr<RemoteGenerator>> running;
  if (registry_owner.load() != ThisProcess()) return running;
  Registry& registry = TheRegistry();
  absl::MutexLock lock(&registry.mutex);
  for (const auto& [key, generator] : registry.known) {
    if (std::shared_ptr<RemoteGenerator> one = generator.lock()) running.push_back(std::move(one));
  }
  return running;
}

}  // namespace lm

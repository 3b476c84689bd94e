#include "extension/batch_files/batch_questions.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_constraint.h"
#include "engine/remote/chat_reader.h"
#include "engine/remote/chat_request.h"
#include "engine/remote/estimated_tokens.h"
#include "engine/runtime/constraint_cache.h"
#include "extension/connection/call_options.h"
#include "extension/jobs/job_options.h"

namespace lm {
namespace {

constexpr size_t kShown = 200;
// Of a job's own errors those that say that a request was not begun.
constexpr absl::string_view kNotBegun[] = {"batch_expired", "batch_cancelled"};

// The dialects that a question may be asked in.
constexpr Dialect kDialects[] = {Dialect::kOpenAi,      Dialect::kVllm,   Dialect::kSglang,
                                 Dialect::kLlamaServer, Dialect::kTrtllm, Dialect::kOllama};

// nullopt where the dialect has no words for it.
std::optional<std::string> DigestIn(Dialect dialect, const RequestSpec& spec) {
  const absl::StatusOr<std::string> body =
      ChatBody(spec, {.name = "", .dialect = dialect}, RemoteOptions(), Delivery::kWhole);
  if (!body.ok()) return std::nullopt;
  return DigestOf(*body, static_cast<uint64_t>(dialect)).Hex();
}

std::string TextOf(const Json* json) {
  return json != nullptr && json->is_string() ? json->string() : std::string();
}

// What stands in a line's `error`.
absl::Status FailureOf(const Json& error) {
  const std::string code = TextOf(error.Find("code"));
  std::string text = ErrorText(error.Dump(), Secrets());
  if (!code.empty()) text = absl::StrCat(code, ": ", text);
  for (absl::string_view not_begun : kNotBegun) {
    if (code == not_begun) return absl::UnavailableError(text);
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace

absl::StatusOr<BatchLine> ReadBatchLine(absl::string_view text) {
  const std::optional<Json> json = Json::Parse(text);
  if (!json.has_value() || !json->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is no JSON object: ", Printable(text.substr(0, kShown))));
  }
  BatchLine line;
  const std::string id = TextOf(json->Find("custom_id"));
  const size_t digest = id.rfind(':');
  const size_t number = digest != id.npos && digest > 0 ? id.rfind(':', digest - 1) : id.npos;
  if (number == id.npos ||
      !absl::SimpleAtoi(absl::string_view(id).substr(number + 1, digest - number - 1),
                        &line.number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no custom_id of ours (job:row:digest), but ", Printable(id)));
  }
  line.job = id.substr(0, number);
  line.digest = id.substr(digest + 1);
  const Json* error = json->Find("error");
  const Json* response = json->Find("response");
  if (response != nullptr && response->is_object()) {
    const Json* body = response->Find("body");
    const Json* code = response->Find("status_code");
    // Some put the answer itself there.
    line.answer = body != nullptr ? *body : *response;
    const bool ok = code == nullptr || *code == Json(200);
    if (ok && line.answer.is_object()) return line;
    line.failure =
        absl::FailedPreconditionError(absl::StrCat("HTTP ", code != nullptr ? code->Dump() : "",
                                                   ": ", ErrorText(line.answer.Dump(), Secrets())));
    if (ok) line.failure = absl::FailedPreconditionError("the response has no body");
    return line;
  }
  line.failure = error != nullptr && !error->is_null()
                     ? FailureOf(*error)
                     : absl::FailedPreconditionError("there is neither a response nor an error");
  return line;
}

absl::StatusOr<BatchQuestions> BatchQuestions::Of(Connection& connection, const Job& job,
                                                  const BatchTarget& target) {
  BatchQuestions questions;
  questions.job_ = job.name;
  questions.system_ = job.system;
  if (!job.system.has_value()) questions.system_ = connection.settings().system;
  bool reads_in_parts = false;
  absl::StatusOr<GenerationOptions> options = [&]() -> absl::StatusOr<GenerationOptions> {
    ASSIGN_OR_RETURN(const JobOptions own, ReadJobOptions(job.options));
    reads_in_parts = own.parts != nullptr;
    ASSIGN_OR_RETURN(
        GenerationOptions all,
        ReadGenerationOptions(own.of_calls, connection.settings(), {.on_error = OnError::kNull}));
    // As a call of a model elsewhere has it.
    if (connection.settings().options.contains("thinking_tokens")) {
      ASSIGN_OR_RETURN(const GenerationOptions alone,
                       ReadGenerationOptions(own.of_calls, Settings(), {}));
      all.thinking_tokens = alone.thinking_tokens;
    }
    return all;
  }();
  if (!options.ok()) {
    return absl::Status(options.status().code(),
                        absl::StrCat("the job's options: ", options.status().message()));
  }
  questions.options_ = *std::move(options);
  RETURN_IF_ERROR(connection.examples().Resolve(&questions.options_));
  if (NumDrawn(questions.options_) > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job's options: ", questions.options_.vote > 0 ? "vote" : "n and best_of",
                     ": a row of a batch file is one request, and has one answer"));
  }
  if (reads_in_parts) {
    return absl::InvalidArgumentError(
        "the job's options: summarize: a row of a batch file is one request, a text that is read "
        "in parts is several");
  }
  const AnswerConstraint& constraint = questions.options_.constraint;
  if (constraint.kind != AnswerConstraint::Kind::kNone) {
    ASSIGN_OR_RETURN(questions.grammar_, CompileNotation(constraint));
  }
  const absl::StatusOr<ModelSource> source = connection.names().Resolve(
      target.reference.empty() ? questions.options_.model : target.reference,
      connection.settings());
  const bool is_remote = source.ok() && source->is_remote();
  if (is_remote) {
    ASSIGN_OR_RETURN(questions.remote_, ParseRemoteOptions(source->remote_options));
    ASSIGN_OR_RETURN(const std::vector<std::string> urls, ParseRemotePath(source->path));
    questions.model_.is_openais = AreOpenAis(urls);
  }
  questions.model_.name = target.model.value_or(questions.remote_.model);
  questions.remote_.dialect = target.dialect.value_or(questions.remote_.dialect);
  const Dialect dialect = questions.remote_.dialect;
  questions.model_.dialect = dialect == Dialect::kAuto ? target.spoken : dialect;
  if (is_remote && questions.model_.name == job.model) {
    questions.identity_ = RemoteIdentity(source->path, questions.model_.name, questions.remote_);
    questions.memo_ = connection.AccessToMemo();
    questions.memo_.scan = std::make_shared<MemoScan>();
  }
  return questions;
}

absl::StatusOr<std::string> BatchQuestions::model() const {
  if (!model_.name.empty()) return model_.name;
  return absl::FailedPreconditionError(
      "which model is to answer? {\"model\":\"...\"} in these options gives the server's name for "
      "it, and so does {\"model\":\"...\"} in the options of a model on the network in lm_models");
}

absl::StatusOr<RequestSpec> BatchQuestions::Ask(const JobRow& row) const {
  RETURN_IF_ERROR(row.prompt.status());
  RETURN_IF_ERROR(row.system.status());
  const std::optional<std::string>& system = row.system->has_value() ? *row.system : system_;
  TextRequest request{.prompt = **row.prompt, .options = options_};
  if (system.has_value()) request.system = *system;
  absl::StatusOr<RequestSpec> spec = PrepareChat(request);
  if (spec.ok() && remote_.thinking_marks.has_value()) {
    spec->thinking_marks = ThinkingMarks::Named(*remote_.thinking_marks);
  }
  return spec;
}

absl::StatusOr<std::string> BatchQuestions::Line(int64_t number, const RequestSpec& spec) const {
  RETURN_IF_ERROR(model().status());
  ASSIGN_OR_RETURN(const std::string body, ChatBody(spec, model_, remote_, Delivery::kWhole));
  const std::string digest = DigestIn(model_.dialect, spec).value_or("");
  return absl::StrCat("{\"custom_id\":", JsonString(absl::StrCat(job_, ":", number, ":", digest)),
                      ",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":", body,
                      "}\n");
}

bool BatchQuestions::Asked(const BatchLine& line, const RequestSpec& spec) {
  if (DigestIn(met_, spec) == line.digest) return true;
  for (Dialect dialect : kDialects) {
    if (DigestIn(dialect, spec) != line.digest) continue;
    met_ = dialect;
    return true;
  }
  return false;
}

Generation BatchQuestions::Answer(const BatchLine& line, const RequestSpec& spec) const {
  if (!line.failure.ok()) return {.status = line.failure};
  const Secrets none;  // a file is told nothing
  ChatReader reader(&spec, &none);
  reader.AppendJson(line.answer).IgnoreError();  // Read tells
  absl::StatusOr<Generation> read = reader.Read();
  Generation generation;
  if (read.ok()) {
    generation = *std::move(read);
  } else {
    generation.status = absl::FailedPreconditionError(read.status().message());
    reader.CountTokens(&generation);
  }
  // What the server does not tell is estimated, as of any other answer.
  if (generation.tokens_in == 0) generation.tokens_in = SaturatedTokens(PromptTokens(spec));
  if (generation.status.ok() && grammar_ != nullptr) {
    generation.status = ProveAnswer(options_.constraint, *grammar_, met_, &generation.text);
  }
  return generation;
}

void BatchQuestions::Remember(const RequestSpec& spec, const Generation& generation) const {
  if (identity_.empty() || !generation.status.ok()) return;
  const std::optional<MemoKey> key = MakeMemoKey(identity_, spec, memo_.owner);
  if (!key.has_value()) return;
  ProcessMemo().Add(*key,
                    {.text = generation.text,
                     .finish = generation.finish,
                     .tokens = {},
                     .tokens_in = generation.tokens_in,
                     .tokens_out = generation.tokens_out},
                    memo_);
}

void BatchQuestions::FlushMemo() const {
  if (memo_.store != nullptr) memo_.store->Flush();
}

}  // namespace lm

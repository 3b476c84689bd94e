#include "engine/remote/chat_request.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "engine/base/known_json.h"
#include "engine/base/status_macros.h"
#include "engine/remote/embedding_api.h"
#include "engine/text/chat/conversation.h"

namespace lm {
namespace {

Json Message(absl::string_view role, absl::string_view content) {
  Json message = Json::MakeObject();
  message.Add("role", role);
  message.Add("content", content);
  return message;
}

// RequestSpec::told: what chat_api.h makes of these.
std::string Told(const GenerationOptions& options) {
  Json told = Json::MakeObject();
  if (options.says_temperature && options.temperature == 0) told.Add("temperature", 0);
  if (!options.template_args.empty()) told.Add("template_args", options.template_args);
  return told.size() > 0 ? told.Dump() : "";
}

}  // namespace

absl::StatusOr<std::string> ChatMessages(const TextRequest& request) {
  Json messages = Json::MakeArray();
  if (!request.system.empty()) messages.Append(Message("system", request.system));
  RETURN_IF_ERROR(CheckExamples(request.options));
  for (const Example& example : request.options.examples) {
    messages.Append(Message("user", absl::StrCat(example.prompt, request.question)));
    messages.Append(Message("assistant", example.answer));
  }
  if (!request.options.messages) {
    messages.Append(Message("user", absl::StrCat(request.prompt, request.question)));
    return messages.Dump();
  }
  if (!request.question.empty()) {
    return absl::InvalidArgumentError("messages are for generate and its like, not for a question");
  }
  RETURN_IF_ERROR(ReadConversation(request.prompt, request.system, /*is_messages=*/true).status());
  ASSIGN_OR_RETURN(const Json own, ReadKnownJson(request.prompt));
  for (const Json& message : own.array()) messages.Append(message);
  return messages.Dump();
}

absl::Status CheckNoAdapters(const GenerationOptions& options) {
  if (!options.lora.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(
      "lora: a model on the network has the adapters that its server gives it; where that serves "
      "each under a name of its own, as vLLM does, the option model of lm_models says which");
}

absl::Status CheckNoThinkingTokens(const GenerationOptions& options) {
  if (!options.thinking_tokens.has_value()) return absl::OkStatus();
  return absl::UnimplementedError(
      "thinking_tokens: how much a model on the network reasons its server decides; what that "
      "takes for it goes into `extra` of the model's options in lm_models");
}

absl::StatusOr<RequestSpec> PrepareChat(const TextRequest& request) {
  RETURN_IF_ERROR(CheckNoAdapters(request.options));
  if (request.options.best_of > 0) {
    return absl::UnimplementedError(
        "best_of: a model on the network does not tell how probable its answers are; n has them "
        "all");
  }
  if (request.task == Task::kWeigh) {
    return absl::UnimplementedError(
        "a model on the network does not tell how probable a whole answer is: where `escalate` is "
        "to decide by that, the first model must be one of this machine");
  }
  RequestSpec spec{.options = request.options,
                   .salt = std::string(request.salt),
                   .stream = request.stream,
                   .wants_first_choices = request.task == Task::kChoose};
  if (request.task == Task::kScore) {
    return absl::UnimplementedError(
        "a model on the network does not tell the probabilities of a prompt");
  }
  if (request.task == Task::kEmbed || request.task == Task::kRank) {
    spec.ranks = request.task == Task::kRank;
    spec.text = spec.ranks ? RankedPair(request.question, request.prompt)
                           : absl::StrCat(request.system, request.prompt);
    if (request.pooling.has_value()) {
      return absl::InvalidArgumentError(
          "pooling: the server of a model on the network pools as it was started to");
    }
    spec.embed = Pooling::kMean;  // any: it says that no text is wanted
    return spec;
  }
  RETURN_IF_ERROR(CheckNoThinkingTokens(request.options));
  if (request.task == Task::kChoose && request.options.vote == 0) spec.options.temperature = 0;
  if (request.options.on_overflow != OnOverflow::kError) {
    return absl::UnimplementedError(
        "on_overflow: whether a prompt is too long its server finds out, and nobody is there then "
        "who would cut it; lm_chunks cuts texts");
  }
  if (!request.begun.empty()) {
    return absl::UnimplementedError(
        "a model on the network begins its answers itself; of labels that begin alike its "
        "probabilities are not known, and {\"vote\": 5} counts answers instead");
  }
  ASSIGN_OR_RETURN(spec.text, ChatMessages(request));
  spec.told = Told(spec.options);
  return spec;
}

uint64_t SystemPrefix(absl::string_view messages) {
  constexpr absl::string_view kSystem = R"([{"role":"system",)";
  if (!absl::StartsWith(messages, kSystem)) return 0;
  return DigestOf(messages.substr(0, messages.find(R"("},{"role":)"))).high | 1;
}

std::string RemoteIdentity(absl::string_view path, absl::string_view name,
                           const RemoteOptions& options) {
  std::string identity = absl::StrCat("network:", path, "#", name, options.extra.Dump());
  if (options.thinking_marks.has_value()) {
    Json marks = Json::MakeArray();
    for (const std::string& mark : *options.thinking_marks) marks.Append(mark);
    absl::StrAppend(&identity, "#marks:", marks.Dump());
  }
  if (options.headers.empty()) return identity;
  // Which may say who asks: a server answers each with what is theirs. They are nobody's to read.
  Json headers = Json::MakeArray();
  for (const auto& [header, value] : options.headers) headers.Append(header).Append(value);
  return absl::StrCat(identity, "#", DigestOf(headers.Dump()).Hex());
}

}  // namespace lm

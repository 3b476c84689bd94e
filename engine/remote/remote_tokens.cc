#include "engine/remote/remote_tokens.h"

#include <atomic>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/json.h"
#include "engine/base/known_json.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/fetch.h"
#include "engine/remote/remote_server.h"
#include "engine/runtime/render_chat.h"
#include "engine/runtime/trouble.h"
#include "engine/text/chat/conversation.h"

namespace lm {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

// {"count": 3} or {"tokens": [1, 2, 3]}
std::optional<int64_t> CountIn(const std::string& body) {
  const std::optional<Json> json = Json::Parse(body);
  if (!json.has_value()) return std::nullopt;
  const Json* count = json->Find("count");
  if (count != nullptr && count->is_unsigned()) {
    if (count->unsigned_integer() > INT64_MAX) return std::nullopt;
    return count->integer();
  }
  const Json* tokens = json->Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) return std::nullopt;
  return static_cast<int64_t>(tokens->size());
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EncodeText(const ModelText& model, const RequestSpec& spec,
                                                absl::string_view text) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (spec.ranks) {
    ASSIGN_OR_RETURN(const Json pair, ReadKnownJson(text));
    return tokenizer.EncodePair(pair.array()[0].string(), pair.array()[1].string());
  }
  if (spec.embed.has_value()) return tokenizer.EncodePlain(text);
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                   ReadConversation(text, "", /*is_messages=*/true));
  ASSIGN_OR_RETURN(
      const RenderedChat rendered,
      RenderChat(model.chat_template, messages, spec.options, *ThinkingMarks::Named({})));
  std::vector<int32_t> tokens;
  if (rendered.adds_bos) tokens.push_back(tokenizer.vocabulary().bos);
  RETURN_IF_ERROR(tokenizer.Encode(rendered.pieces, &tokens, rendered.says_bos));
  return tokens;
}

absl::StatusOr<std::optional<int64_t>> AskForTokens(Network* network,
                                                    const std::vector<std::string>& urls,
                                                    const RemoteModel& model,
                                                    const RemoteOptions& options,
                                                    absl::string_view text) {
  Json body = Json::MakeObject();
  if (model.dialect == Dialect::kLlamaServer) {
    body.Add("content", text);
    body.Add("add_special", true);
    body.Add("parse_special", false);
  } else if (model.dialect == Dialect::kVllm || model.dialect == Dialect::kSglang) {
    body.Add("model", model.name);
    body.Add("prompt", text);
    body.Add("add_special_tokens", true);
  } else {
    return std::nullopt;
  }
  static const std::atomic<bool> kNever{false};
  absl::Status why;
  for (absl::string_view url : urls) {
    absl::ConsumeSuffix(&url, "/v1");
    const HttpRequest request{.url = absl::StrCat(url, "/tokenize"),
                              .headers = RemoteHeaders(options),
                              .body = body.Dump(),
                              .timeout = kTimeout};
    const absl::StatusOr<Fetched> got = Fetch(network, request, kNever);
    why = got.status();
    if (absl::IsUnavailable(why)) {
      if (TroubleOf(why) == Trouble::kNone) why = WithTrouble(std::move(why), Trouble::kServer);
      continue;
    }
    RETURN_IF_ERROR(why);
    if (got->outcome.code == 404) return std::nullopt;
    if (got->outcome.code == 200) {
      if (const std::optional<int64_t> count = CountIn(got->body)) return count;
    }
    const int code = got->outcome.code;
    const Trouble said = RejectionTrouble(code, got->body);
    const bool fails = said == Trouble::kNone && (code >= 500 || code == 429);
    std::string words = ErrorText(got->body, Secrets(request.headers));
    if (code == 200) {
      words = absl::StrCat(R"(wanted {"count":3} or {"tokens":[1,2,3]}, got )", words);
    }
    why = WithTrouble(RejectionStatus(request.url, code, words, !options.key_env.empty()),
                      fails ? Trouble::kServer : said);
  }
  return why;
}

}  // namespace lm

#include "engine/remote/embedding_api.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/known_json.h"
#include "engine/base/status_macros.h"
#include "engine/remote/request_body.h"

namespace lm {
namespace {

absl::Status NotThat(absl::string_view what, absl::string_view body, const Secrets& secrets) {
  return absl::UnavailableError(
      absl::StrCat("the server sent no ", what, ": ", ErrorText(body, secrets)));
}

std::optional<float> FiniteFloat(const Json& number) {
  if (!number.is_number()) return std::nullopt;
  const auto value = static_cast<float>(number.number());
  return std::isfinite(value) ? std::optional<float>(value) : std::nullopt;
}

int64_t TokensOf(const Json& answer) {
  const Json* usage = answer.Find("usage");
  for (const char* name : {"prompt_tokens", "total_tokens"}) {
    const auto count = ReadCount(usage != nullptr ? usage->Find(name) : nullptr);
    if (count.has_value()) return *count;
  }
  return 0;
}

}  // namespace

std::string EmbeddingBody(absl::string_view text, const RemoteModel& model,
                          const RemoteOptions& options) {
  RequestBody body(options.extra);
  body.Add("model", model.name);
  body.Add("input", text);
  body.Add("encoding_format", "float");
  return body.Dump();
}

absl::StatusOr<EmbeddingAnswer> ReadEmbedding(absl::string_view body, const Secrets& secrets) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* data = json.has_value() ? json->Find("data") : nullptr;
  const Json* numbers = data != nullptr && data->is_array() && data->size() > 0
                            ? data->array()[0].Find("embedding")
                            : nullptr;
  if (numbers == nullptr || !numbers->is_array() || numbers->size() == 0) {
    return NotThat("embedding", body, secrets);
  }
  EmbeddingAnswer answer{{}, TokensOf(*json)};
  for (const Json& number : numbers->array()) {
    const std::optional<float> value = FiniteFloat(number);
    if (!value.has_value()) return NotThat("embedding", body, secrets);
    answer.numbers.push_back(*value);
  }
  return answer;
}

std::string RankedPair(absl::string_view query, absl::string_view text) {
  return Json::MakeArray().Append(query).Append(text).Dump();
}

absl::StatusOr<std::string> RerankBody(absl::string_view pair, const RemoteModel& model,
                                       const RemoteOptions& options) {
  ASSIGN_OR_RETURN(const Json both, ReadKnownJson(pair));
  RequestBody body(options.extra);
  body.Add("model", model.name);
  body.Add("query", both.array()[0]);
  body.Add("documents", Json::MakeArray().Append(both.array()[1]));
  return body.Dump();
}

// Jina's form, {"results":[{"relevance_score":1.5}]}, or a list of {"score":1.5}.
absl::StatusOr<EmbeddingAnswer> ReadScore(absl::string_view body, Dialect dialect,
                                          const Secrets& secrets) {
  const std::optional<Json> json = Json::Parse(body);
  const Json* list = json.has_value() ? json->Find("results") : nullptr;
  if (list == nullptr && json.has_value()) list = &*json;
  if (list == nullptr || !list->is_array() || list->size() != 1)
    return NotThat("score", body, secrets);
  const Json* score = list->array()[0].Find("relevance_score");
  if (score == nullptr) score = list->array()[0].Find("score");
  const std::optional<float> value = score != nullptr ? FiniteFloat(*score) : std::nullopt;
  if (!value.has_value()) return NotThat("score", body, secrets);
  EmbeddingAnswer answer{{*value}, TokensOf(*json)};
  if (dialect != Dialect::kLlamaServer) answer.numbers.push_back(1 - *value);
  return answer;
}

}  // namespace lm

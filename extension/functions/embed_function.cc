// lm_embed(text [, options])   BLOB: the text as a vector of float32, what vector extensions take
//
//   SELECT id, lm_embed(body) AS vector FROM notes;
//   SELECT length(lm_embed('rain all day')) / 4;                              -- its dimensions
//   SELECT lm_embed(body, '{"pooling":"last","normalize":false}') FROM notes;
//
// The model reads the text as it is (no chat template) and generates nothing; its hidden states,
// after the output norm, become one vector:
//   pooling    "mean": their mean (the default); "last": that of the last token, which has seen
//              all the others
//   normalize  true (the default): divided by its length, so that a dot product is a cosine
// `model`, `timeout_ms`, `on_error` and `on_overflow` mean what they mean for generate(). A text
// longer than the context is an error unless on_overflow asks for its beginning or end.
//
// The numbers are little-endian and the same bytes whatever else the engine does. Models made for
// chat give usable vectors, models trained for embedding give better ones. NULL gives NULL. A
// text without tokens ('', where the model begins with none of its own) has no vector: that is a
// failure of its row, an error unless {"on_error":"null"} makes it NULL.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "extension/batch/look_ahead.h"
#include "extension/connection/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

constexpr int kDeepestOptions = 100;  // what is put back as text must not exhaust the stack

struct EmbedOptions {
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
};

// Takes lm_embed's own keys out of the options. What is no JSON object stays as it is, for
// ParseGenerationOptions to refuse.
absl::Status TakeEmbedOptions(std::string* json, EmbedOptions* options) {
  int depth = 0;
  const std::optional<Json> object = Json::Parse(*json, &depth);
  if (depth > kDeepestOptions) {
    return absl::InvalidArgumentError(
        absl::StrCat("options are nested ", depth, " deep, ", kDeepestOptions, " is the most"));
  }
  if (!object || !object->is_object()) return absl::OkStatus();
  Json rest = Json::MakeObject();
  for (const auto& [name, value] : object->members()) {
    if (name == "pooling") {
      const bool known = value == Json("mean") || value == Json("last");
      if (!known) {
        return absl::InvalidArgumentError(
            absl::StrCat("pooling must be 'mean' or 'last', got ", value.Dump()));
      }
      options->pooling = value.string() == "mean" ? Pooling::kMean : Pooling::kLast;
    } else if (name == "normalize") {
      if (!value.is_boolean()) {
        return absl::InvalidArgumentError(
            absl::StrCat("normalize must be true or false, got ", value.Dump()));
      }
      options->normalize = value.boolean();
    } else {
      rest.Add(name, value);
    }
  }
  if (rest.size() < object->size()) *json = rest.Dump();
  return absl::OkStatus();
}

// Divides by the Euclidean length. A vector of zeros has none, and stays.
void Normalize(std::vector<float>* vector) {
  double squares = 0;
  for (float value : *vector) squares += double{value} * value;
  if (squares == 0) return;
  const double length = std::sqrt(squares);
  for (float& value : *vector) value = static_cast<float>(value / length);
}

absl::Status Embed(Call& call) {
  RowPrompt row{.prompt = call.Text(0, "text")};
  if (row.prompt.ok() && !row.prompt->has_value()) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::optional<std::string> json, call.Text(1, "options"));
  EmbedOptions embed;
  if (json.has_value()) RETURN_IF_ERROR(TakeEmbedOptions(&*json, &embed));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(json));
  row.options = std::make_shared<const CallOptions>(std::move(options));
  row.embed = embed.pooling;
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  const Generation& answer = pending->answer().generation;
  if (answer.status.ok()) {
    std::vector<float> vector = answer.embedding;
    if (embed.normalize) Normalize(&vector);
    sqlite3_result_blob64(call.context(), vector.data(), vector.size() * sizeof(float),
                          SQLITE_TRANSIENT);
    return absl::OkStatus();
  }
  return ResultAnswer(call.context(), pending->answer(), pending->on_error());
}

}  // namespace

int RegisterEmbed(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Embed>(connection, {"lm_embed", 1, 2, kDirectOnly | kReturnsJson});
}

}  // namespace lm

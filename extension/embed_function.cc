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
// chat give usable vectors, models trained for embedding give better ones. NULL gives NULL; a text
// without tokens is an error.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/generation_json.h"
#include "extension/interrupt.h"
#include "extension/registrations.h"
#include "extension/scalar_function.h"

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
  auto watch = [&depth](int d, nlohmann::json::parse_event_t, nlohmann::json&) {
    depth = std::max(depth, d);
    return true;
  };
  nlohmann::json object = nlohmann::json::parse(*json, watch, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::OkStatus();
  if (depth > kDeepestOptions) {
    return absl::InvalidArgumentError(
        absl::StrCat("options are nested ", depth, " deep, ", kDeepestOptions, " is the most"));
  }
  auto shown = [](const nlohmann::json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  bool taken = false;
  if (auto pooling = object.find("pooling"); pooling != object.end()) {
    if (*pooling == "mean") {
      options->pooling = Pooling::kMean;
    } else if (*pooling == "last") {
      options->pooling = Pooling::kLast;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("pooling must be 'mean' or 'last', got ", shown(*pooling)));
    }
    object.erase(pooling);
    taken = true;
  }
  if (auto normalize = object.find("normalize"); normalize != object.end()) {
    if (!normalize->is_boolean()) {
      return absl::InvalidArgumentError(
          absl::StrCat("normalize must be true or false, got ", shown(*normalize)));
    }
    options->normalize = normalize->get<bool>();
    object.erase(normalize);
    taken = true;
  }
  if (taken) *json = object.dump();
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

// Errors are the row's own, and an interrupt.
absl::StatusOr<std::vector<float>> EmbedText(Call& call,
                                             const absl::StatusOr<std::optional<std::string>>& text,
                                             const CallOptions& options,
                                             const EmbedOptions& embed) {
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(std::shared_ptr<Request> request,
                   options.session().SubmitEmbedding(**text, embed.pooling, options.generation));
  RETURN_IF_ERROR(Await(call.connection().db(), *request));
  RETURN_IF_ERROR(GenerationStatus(request->result()));
  std::vector<float> vector = request->result().embedding;
  if (embed.normalize) Normalize(&vector);
  return vector;
}

absl::Status Embed(Call& call) {
  absl::StatusOr<std::optional<std::string>> text = call.Text(0, "text");
  if (text.ok() && !text->has_value()) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::optional<std::string> json, call.Text(1, "options"));
  EmbedOptions embed;
  if (json.has_value()) RETURN_IF_ERROR(TakeEmbedOptions(&*json, &embed));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(json));
  const absl::StatusOr<std::vector<float>> vector = EmbedText(call, text, options, embed);
  if (vector.ok()) {
    sqlite3_result_blob64(call.context(), vector->data(), vector->size() * sizeof(float),
                          SQLITE_TRANSIENT);
    return absl::OkStatus();
  }
  if (absl::IsCancelled(vector.status()) || options.generation.on_error == OnError::kError) {
    return vector.status();
  }
  if (options.generation.on_error == OnError::kJson) {
    ResultJson(call.context(), FailureJson(vector.status()));
  } else {
    sqlite3_result_null(call.context());
  }
  return absl::OkStatus();
}

}  // namespace

int RegisterEmbed(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Embed>(connection, {"lm_embed", 1, 2, kDirectOnly | kReturnsJson});
}

}  // namespace lm

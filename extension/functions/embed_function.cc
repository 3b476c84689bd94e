// lm_embed(text [, options])   BLOB: the text as a vector of float32, what vector extensions take
//
//   SELECT id, lm_embed(body, '{"task":"document"}') AS vector FROM notes;
//   SELECT length(lm_embed('rain all day')) / 4;                              -- its dimensions
//   SELECT lm_embed(body, '{"dimensions":256}') FROM notes;                   -- the first 256 of
//   them
//
// The model reads the text as it is (no chat template) and generates nothing; its hidden states,
// after the output norm, become one vector:
//   pooling     "mean": their mean; "last": that of the last token; "cls": that of the first. The
//               default is what the model's file says, "mean" where it says nothing
//   task        "query", "document", "classification", "clustering", "similarity": what the text is
//               for. Models of search read words before it which say so: this puts them there, for
//               models of which they are known; for others it is an error
//   dimensions  so many numbers: the first ones, for models that were trained to be cut so
//               (Matryoshka), which are then divided by their length
//   normalize   true (the default): divided by its length, so that a dot product is a cosine
// `model`, `timeout_ms`, `on_error` and `on_overflow` mean what they mean for generate(). A text
// longer than the context is an error unless on_overflow asks for its beginning or end.
//
// The numbers are little-endian and the same bytes whatever else the engine does. Models made for
// chat give usable vectors, models trained for embedding give better ones: BERT and its kin (bge,
// e5, nomic-embed-text, ...), EmbeddingGemma, Qwen3-Embedding. NULL gives NULL. A text without
// tokens ('', where the model begins with none of its own) has no vector: that is a failure of its
// row, an error unless {"on_error":"null"} makes it NULL.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/model/task_prefixes.h"
#include "extension/batch/look_ahead.h"
#include "extension/connection/own_options.h"
#include "extension/connection/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

struct EmbedOptions {
  std::optional<Pooling> pooling = {};
  std::optional<std::string> task = {};
  int64_t dimensions = 0;  // 0: all
  bool normalize = true;
};

absl::StatusOr<std::optional<Pooling>> ReadPooling(const OwnOptions& own) {
  constexpr std::pair<absl::string_view, Pooling> kPoolings[] = {
      {"mean", Pooling::kMean}, {"last", Pooling::kLast}, {"cls", Pooling::kFirst}};
  ASSIGN_OR_RETURN(const std::optional<std::string> name, own.Text("pooling"));
  if (!name.has_value()) return std::optional<Pooling>();
  for (const auto& [known, pooling] : kPoolings) {
    if (*name == known) return std::optional<Pooling>(pooling);
  }
  return absl::InvalidArgumentError(absl::StrCat("pooling must be 'mean', 'last' or 'cls', got '",
                                                 Printable(name->substr(0, 64)), "'"));
}

absl::StatusOr<EmbedOptions> ReadEmbedOptions(const OwnOptions& own) {
  constexpr int64_t kMost = int64_t{1} << 24;
  EmbedOptions options;
  ASSIGN_OR_RETURN(options.pooling, ReadPooling(own));
  ASSIGN_OR_RETURN(options.task, own.Text("task"));
  ASSIGN_OR_RETURN(options.dimensions, own.Integer("dimensions", 0, 1, kMost));
  ASSIGN_OR_RETURN(options.normalize, own.Bool("normalize", true));
  return options;
}

absl::Status CheckDimensions(const EmbedOptions& options, int64_t most) {
  if (options.dimensions <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dimensions must be 1 to ", most, " for this model, got ", options.dimensions));
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
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(1, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::Take(json, {"pooling", "task", "dimensions", "normalize"}));
  ASSIGN_OR_RETURN(const EmbedOptions embed, ReadEmbedOptions(own));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
  const ModelInfo& info = options.generator().info();
  // What a model on the network gives is known when it comes.
  if (info.hidden_size > 0) RETURN_IF_ERROR(CheckDimensions(embed, info.hidden_size));
  if (embed.task.has_value()) {
    ASSIGN_OR_RETURN(const absl::string_view prefix, TaskPrefix(info, *embed.task));
    if (row.prompt.ok()) row.prompt = absl::StrCat(prefix, **row.prompt);
  }
  row.options = std::make_shared<const CallOptions>(std::move(options));
  row.embed = EmbedTask{.pooling = embed.pooling};
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  const Generation& answer = pending->answer().generation;
  if (answer.status.ok()) {
    std::vector<float> vector = answer.embedding;
    RETURN_IF_ERROR(CheckDimensions(embed, static_cast<int64_t>(vector.size())));
    if (embed.dimensions > 0) vector.resize(embed.dimensions);
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

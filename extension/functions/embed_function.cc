// lm_embed(text [, options])   BLOB: the text as a vector of float32, what vector extensions take
//
//   SELECT id, lm_embed(body, '{"task":"document"}') AS vector FROM notes;
//   SELECT length(lm_embed('rain all day')) / 4;                              -- its dimensions
//   SELECT lm_embed(body, '{"dimensions":256}') FROM notes;                   -- the first 256
//
// The model reads the text as it is (no chat template) and generates nothing; its hidden states,
// after the output norm, become one vector:
//   pooling     "mean": their mean; "last": that of the last token; "cls": that of the first. The
//               default is what the model's file says, "mean" where it says nothing
//   task        "query", "document", "classification", "clustering", "similarity": what the text is
//               for. Models of search read words before a text which say so: the option adds these
//               words, for models whose words are known; for others it is an error
//   dimensions  how many numbers: the first ones, divided by their length, for models that were
//               trained to be cut so (Matryoshka)
//   normalize   true (the default): divided by its length, so that a dot product is a cosine
// `model`, `timeout_ms`, `on_error` and `on_overflow` mean what they mean for generate(). A text
// longer than the context is an error unless on_overflow asks for its beginning or end. Options
// that only answers have (max_tokens, choices, examples, ...) are errors.
//
// The numbers are little-endian and the same bytes whatever else the engine does. Models made for
// chat give usable vectors, models trained for embedding give better ones: BERT and its kin (bge,
// e5, nomic-embed-text, ...), EmbeddingGemma, Qwen3-Embedding. NULL gives NULL. A text without
// tokens ('', where the model begins with none of its own) has no vector: that is a failure of its
// row, an error unless {"on_error":"null"} makes it NULL.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/embedder.h"

namespace lm {
namespace {

absl::Status Embed(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(1, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::TakeOfCall(json, {"pooling", "task", "dimensions", "normalize"}));
  RETURN_IF_ERROR(CheckNoneOfAnswers(own.rest()));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
  ASSIGN_OR_RETURN(const Embedder embedder, Embedder::Create(own, std::move(options)));
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending,
                   AwaitRow(call, embedder.Row(call.Text(0, "text"))));
  if (!pending.has_value()) return absl::OkStatus();
  if (!pending->answer().generation.status.ok()) {
    return ResultAnswer(call.context(), pending->answer(), pending->on_error());
  }
  ASSIGN_OR_RETURN(const std::vector<float> vector, embedder.Vector(pending->answer().generation));
  sqlite3_result_blob64(call.context(), vector.data(), vector.size() * sizeof(float),
                        SQLITE_TRANSIENT);
  return absl::OkStatus();
}

}  // namespace

int RegisterEmbed(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Embed>(connection, {"lm_embed", 1, 2, kDirectOnly | kReturnsJson});
}

}  // namespace lm

// lm_rerank(query, text [, options])   REAL: how well the text answers the query
//
//   SELECT id, body FROM notes
//    WHERE id IN (SELECT id FROM nearest) ORDER BY lm_rerank('rain in May', body) DESC LIMIT 10;
//
// The higher, the better. For models that are made to rank texts (bge-reranker, Qwen3-Reranker,
// ...): they read query and text together, and their classifier's first label is the score. Of most
// models the score is any number, of others a probability:
//   normalize   false (the default): the score as it is; true: 1 / (1 + exp(-score)), from 0 to 1,
//               where the model has no probabilities itself
// `model`, `timeout_ms`, `on_error` and `on_overflow` mean what they mean for generate(): query and
// text together may be as long as the context, on_overflow cuts the text. NULL gives NULL. Other
// models are refused; lm_score says what they think of a text.
//
// A model on the network is asked at /rerank, which its server must have (llama-server with
// --reranking, vLLM, SGLang, Jina's and Cohere's kin). Its score is what the server gives:
// llama-server any number, which normalize makes a probability; others a probability.
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/constrained_options.h"

namespace lm {
namespace {

absl::Status Rerank(Call& call) {
  if (call.IsNull(0) || call.IsNull(1)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string query, NeededText(call, 0, "query"));
  RowPrompt row{.prompt = call.Text(1, "text"), .question = std::move(query)};
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(2, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::TakeOfCall(json, {"normalize"}));
  ASSIGN_OR_RETURN(const bool normalize, own.Bool("normalize", false));
  RETURN_IF_ERROR(CheckNoneOfAnswers(own.rest()));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
  RETURN_IF_ERROR(CheckRanks(options.generator().info()));
  row.options = std::make_shared<const CallOptions>(std::move(options));
  row.embed = EmbedTask{.ranks = true};
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  const Generation& answer = pending->answer().generation;
  if (!answer.status.ok()) {
    return ResultAnswer(call.context(), pending->answer(), pending->on_error());
  }
  double score = answer.embedding[0];
  // Of several labels the model has made probabilities.
  if (normalize && answer.embedding.size() == 1) score = 1 / (1 + std::exp(-score));
  sqlite3_result_double(call.context(), score);
  return absl::OkStatus();
}

}  // namespace

int RegisterRerank(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Rerank>(connection, {"lm_rerank", 2, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm

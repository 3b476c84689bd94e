#include "extension/batch/row_answer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "extension/connection/await.h"
#include "extension/host/sqlite_value.h"

namespace lm {
namespace {

auto ResultOf(AnswerType type) { return type == AnswerType::kJson ? &ResultJson : &ResultText; }

}  // namespace

absl::Status ResultAnswer(sqlite3_context* context, const RowAnswer& answer, OnError on_error,
                          AnswerType type) {
  if (answer.null_prompt) {
    sqlite3_result_null(context);
    return absl::OkStatus();
  }
  if (answer.generation.status.ok()) {
    ResultOf(type)(context, answer.generation.text);
    return absl::OkStatus();
  }
  switch (on_error) {
    case OnError::kError:
      break;
    case OnError::kNull:
      sqlite3_result_null(context);
      return absl::OkStatus();
    case OnError::kJson:
      ResultJson(context, GenerationJson(answer.generation));
      return absl::OkStatus();
  }
  return answer.generation.status;
}

absl::Status OfRow(int64_t number, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("row ", number, ": ", status.message()));
}

void ResultAnswerColumn(sqlite3_context* context, const RowAnswer& answer, int column,
                        const GenerationOptions& asked) {
  if (answer.null_prompt) return;  // NULL
  const Generation& generation = answer.generation;
  const bool ok = generation.status.ok();
  switch (column) {
    case kAnswerValue:
      if (ok)
        return ResultOf(asked.n > 0 ? AnswerType::kJson : AnswerType::kText)(context,
                                                                             generation.text);
      if (asked.on_error == OnError::kJson) return ResultJson(context, GenerationJson(generation));
      return;
    case kAnswerError: {
      absl::string_view message = generation.status.message();
      if (!ok) ResultText(context, message);
      return;
    }
    case kAnswerFinish:
      return ResultText(context, FinishReasonName(ok ? generation.finish : FinishReason::kError));
    case kAnswerTokensIn:
      return sqlite3_result_int(context, generation.tokens_in);
    case kAnswerTokensCached:
      return sqlite3_result_int(context, generation.tokens_cached);
    case kAnswerTokensOut:
      return sqlite3_result_int(context, generation.tokens_out);
  }
}

std::string GenerationJson(const Generation& generation, bool vote) {
  absl::Status status = GenerationStatus(generation);
  Json object = Json::MakeObject();
  object.Add("value", status.ok() ? Json(generation.text) : Json());
  object.Add("error", status.ok() ? Json() : Json(status.message()));
  object.Add("finish", FinishReasonName(status.ok() ? generation.finish : FinishReason::kError));
  object.Add("tokens_in", generation.tokens_in);
  object.Add("tokens_out", generation.tokens_out);
  if (vote && !generation.first_choices.empty()) {
    std::vector<FirstChoice> said = generation.first_choices;
    std::stable_sort(said.begin(), said.end(), [](const FirstChoice& a, const FirstChoice& b) {
      return a.logprob > b.logprob;
    });
    Json votes = Json::MakeObject();
    for (const FirstChoice& one : said) {
      // As many digits as a share of at most kMostVotes needs.
      votes.Add(one.text, std::round(1e6 * std::exp(double{one.logprob})) / 1e6);
    }
    object.Add("votes", std::move(votes));
  }
  return object.Dump();
}

}  // namespace lm

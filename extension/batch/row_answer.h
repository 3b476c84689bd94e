// RowAnswer: what became of one row's prompt, and the ways in which SQL shows it.
#ifndef LM_EXTENSION_BATCH_ROW_ANSWER_H_
#define LM_EXTENSION_BATCH_ROW_ANSWER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/runtime/generation_options.h"
#include "engine/runtime/request.h"
#include "extension/host/sqlite_api.h"

namespace lm {

struct RowAnswer {
  bool null_prompt = false;  // then the answer is NULL, and nothing else says anything
  // Its status is never Cancelled: an interrupt is the statement's, not a row's.
  Generation generation;
};

enum class AnswerType { kText, kJson };

// The result of a scalar function: the text, or what `on_error` wants of a row that failed. With
// OnError::kError that is the returned status.
absl::Status ResultAnswer(sqlite3_context* context, const RowAnswer& answer, OnError on_error,
                          AnswerType type = AnswerType::kText);

// The error of a row among others, with its number, from 1 on.
absl::Status OfRow(int64_t number, const absl::Status& status);

// Columns that every table of answers has, in this order.
enum AnswerColumn {
  kAnswerValue,
  kAnswerError,
  kAnswerFinish,
  kAnswerTokensIn,
  kAnswerTokensCached,
  kAnswerTokensOut,
  kNumAnswerColumns
};
inline constexpr char kAnswerColumns[] =
    "value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, tokens_cached INTEGER, "
    "tokens_out INTEGER";

// `asked` is what the row was asked with: with OnError::kJson, the value of a row that failed is
// lm_try's object; else it is NULL.
void ResultAnswerColumn(sqlite3_context* context, const RowAnswer& answer, int column,
                        const GenerationOptions& asked);

// The JSON object in which lm_try, and on_error 'json', report a generation that is over, well or
// not, or that never began:
//   {"value":"Lily","error":null,"finish":"stop","tokens_in":12,"tokens_out":2}
// Nothing of it depends on what was asked before: how much of a prompt was cached is a column of
// tables. Of a `vote` that was counted, a tie or not, it has the share of each answer, the greatest
// first:
//   ..., "votes":{"Lily":0.6,"Max":0.4}}
std::string GenerationJson(const Generation& generation, bool vote = false);

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_ROW_ANSWER_H_

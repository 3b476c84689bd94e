// lm_prefetch(prompt [, system [, options]])   aggregate, INTEGER: how many rows it has answers for
//
//   SELECT lm_prefetch(body, 'Label the review.') FROM reviews WHERE label IS NULL;
//   UPDATE reviews SET label = generate(body, 'Label the review.') WHERE label IS NULL;
//
// Generates all rows together and leaves the answers in the memo, where the same call of generate()
// finds them: the UPDATE is quick then, and holds its write lock for milliseconds instead of for as
// long as the model takes. prompt, system and options must be the same in both. Its own SELECT is a
// reader meanwhile, past which others commit only in WAL mode: or it reads a TEMP copy of the
// texts.
//
// NULL prompts need no answer. A prompt that fails ends the statement with its error and the number
// of its row in the group; with {"on_error":"null"} or "json" it is left for generate() to report.
// With {"cache":false} nothing would be remembered: an error. A group without rows has none: 0.
// The memo in memory has room for tens of thousands of short answers. Where there are more, those
// of the first rows stay and the others are forgotten again: they are not counted, and
// lm_stats.hint says how many they are. With lm_settings('memo') it is a file and has room for all.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/memo.h"
#include "extension/batch/answer_queue.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/aggregate_function.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/statement_call.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

class Prefetch : public Aggregate {
 public:
  absl::Status Step(Call& row) override {
    if (rows_++ == 0) forgotten_before_ = NumForgotten(row.connection());
    ASSIGN_OR_RETURN(RowPrompt prompt, ReadRow(row));
    if (prompt.options == nullptr) return absl::OkStatus();  // NULL
    if (!Memoizable(prompt.options->generation)) {
      return absl::InvalidArgumentError("nothing would be remembered with \"cache\": false");
    }
    if (!queue_.HasRoom()) RETURN_IF_ERROR(TakeFront(row.connection().db()));
    queue_.Push(std::move(prompt));
    numbers_.push_back(rows_);
    return absl::OkStatus();
  }

  absl::Status Final(Call& call) override {
    while (!queue_.empty()) RETURN_IF_ERROR(TakeFront(call.connection().db()));
    int64_t forgotten = 0;
    if (answered_ > 0) {  // those of a group before this one may be among them
      forgotten = std::min(NumForgotten(call.connection()) - forgotten_before_, answered_);
    }
    if (forgotten > 0) {
      StatementCall::Note(absl::StrCat(
          forgotten, " of ", answered_,
          " answers of lm_prefetch are forgotten again: the memo in memory holds ",
          ProcessMemo().max_bytes() >> 20,
          " MiB; INSERT INTO temp.lm_settings VALUES ('memo', 'memo.db') keeps all in a file"));
    }
    sqlite3_result_int64(call.context(), answered_ - forgotten);
    return absl::OkStatus();
  }

 private:
  // How many of the statement's answers there was no room for, so far; none where a file has them.
  static int64_t NumForgotten(Connection& connection) {
    const std::shared_ptr<RunningWork> work = StatementCall::Work();
    if (work == nullptr || connection.MemoInUse() != nullptr) return 0;
    return work->scan()->num_forgotten;
  }

  absl::Status TakeFront(sqlite3* db) {
    RETURN_IF_ERROR(queue_.AwaitFront(db));
    const absl::Status& status = queue_.front().generation.status;
    if (!status.ok() && queue_.front_on_error() == OnError::kError) {
      return OfRow(numbers_.front(), status);
    }
    numbers_.pop_front();
    answered_ += status.ok();
    queue_.Pop();
    return absl::OkStatus();
  }

  AnswerQueue queue_;
  std::deque<int64_t> numbers_;  // of the rows in it
  int64_t rows_ = 0;
  int64_t answered_ = 0;
  int64_t forgotten_before_ = 0;
};

}  // namespace

int RegisterPrefetch(const std::shared_ptr<Connection>& connection) {
  return RegisterAggregate<Prefetch>(connection, {"lm_prefetch", 1, 3, kDirectOnly});
}

}  // namespace lm

#include "extension/batch/answer_queue.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"

namespace lm {

void AnswerQueue::Push(RowPrompt row) {
  if (row.options != nullptr) {
    most_ = std::max(most_, row.options->session().generator().most_under_way());
  }
  rows_.emplace_back(std::move(row));
  SubmitMore();
}

void AnswerQueue::SubmitMore() {
  while (submitted_ < rows_.size() && rows_[submitted_].Submit()) ++submitted_;
}

absl::Status AnswerQueue::AwaitFront(sqlite3* db) {
  SubmitMore();
  RETURN_IF_ERROR(rows_.front().Await(db));
  submitted_ = std::max<size_t>(submitted_, 1);
  return absl::OkStatus();
}

void AnswerQueue::Pop() {
  rows_.pop_front();
  submitted_ -= std::min<size_t>(submitted_, 1);
}

}  // namespace lm

#include "extension/batch/answer_queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"

namespace lm {

void AnswerQueue::Push(RowPrompt row) {
  Append(std::move(row));
  waiting_.push_back(&rows_.back());
  SubmitMore();
}

void AnswerQueue::PushTogether(std::vector<RowPrompt> rows) {
  std::vector<std::pair<std::string, PendingAnswer*>> places;
  for (RowPrompt& row : rows) {
    std::string place = PlaceOf(row);
    Append(std::move(row));
    places.emplace_back(std::move(place), &rows_.back());
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, row] : places) waiting_.push_back(row);
  SubmitMore();
}

void AnswerQueue::Append(RowPrompt row) {
  if (row.options != nullptr) {
    most_ = std::max(most_, row.options->session().generator().most_under_way());
  }
  rows_.emplace_back(std::move(row));
}

void AnswerQueue::SubmitMore() {
  while (!waiting_.empty() && waiting_.front()->Submit()) waiting_.pop_front();
}

absl::Status AnswerQueue::AwaitFront(sqlite3* db, absl::FunctionRef<absl::Status()> meanwhile) {
  SubmitMore();
  if (rows_.size() > 1 && rows_.front().NeedsModel()) StatementCall::Batched();
  RETURN_IF_ERROR(rows_.front().Await(db, meanwhile));
  std::erase(waiting_, &rows_.front());  // there was no room before
  return absl::OkStatus();
}

bool AnswerQueue::IsFrontDone() {
  SubmitMore();
  rows_.front().Collect();
  return rows_.front().answered();
}

void AnswerQueue::Pop() { rows_.pop_front(); }

}  // namespace lm

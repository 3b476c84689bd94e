#include "extension/batch/tickets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "extension/connection/statement_call.h"

namespace lm {
namespace {

size_t BytesOf(const absl::StatusOr<std::optional<std::string>>& text) {
  return text.ok() && text->has_value() ? (*text)->size() : 0;
}

}  // namespace

absl::StatusOr<int64_t> Tickets::Issue(RowPrompt row) {
  constexpr absl::string_view kInstead =
      "; await them in the same statement, submit fewer rows at a time (LIMIT), or ask for all of "
      "them with lm_query(), which takes a table of any size";
  const size_t bytes = BytesOf(row.prompt) + BytesOf(row.system);
  if (tickets_.size() >= kMaxTickets) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a connection may have ", kMaxTickets, " tickets at a time", kInstead));
  }
  if (bytes > kMaxBytes - bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the prompts of a connection's tickets may have ", kMaxBytes, " bytes together", kInstead));
  }
  auto pending = std::make_unique<PendingAnswer>(std::move(row));
  not_submitted_.push_back(last_ + 1);
  tickets_[++last_] = {std::move(pending), bytes};
  bytes_ += bytes;
  SubmitMore();
  return last_;
}

PendingAnswer* Tickets::Find(int64_t ticket) {
  auto found = tickets_.find(ticket);
  return found != tickets_.end() ? found->second.pending.get() : nullptr;
}

void Tickets::SubmitMore() {
  while (!under_way_.empty()) {
    PendingAnswer* first = Find(under_way_.front());
    if (first != nullptr && !first->Done()) break;
    if (first != nullptr) first->Collect();
    under_way_.pop_front();
  }
  while (!not_submitted_.empty() && under_way_.size() < kMaxUnderWay) {
    PendingAnswer* first = Find(not_submitted_.front());
    if (first != nullptr) {
      if (!first->Submit()) return;
      under_way_.push_back(not_submitted_.front());
    }
    not_submitted_.pop_front();
  }
  if (under_way_.size() > 1) StatementCall::Batched();
}

void Tickets::Withdraw(const std::vector<int64_t>& tickets) {
  for (int64_t ticket : tickets) {
    auto found = tickets_.find(ticket);
    if (found == tickets_.end()) continue;
    bytes_ -= found->second.bytes;
    tickets_.erase(found);
  }
}

}  // namespace lm

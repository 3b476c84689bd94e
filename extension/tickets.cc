#include "extension/tickets.h"

#include <utility>

namespace lm {

int64_t Tickets::Issue(RowPrompt row) {
  answers_.emplace(++last_, std::make_unique<PendingAnswer>(std::move(row)));
  not_submitted_.push_back(last_);
  SubmitMore();
  return last_;
}

PendingAnswer* Tickets::Find(int64_t ticket) {
  auto found = answers_.find(ticket);
  return found != answers_.end() ? found->second.get() : nullptr;
}

void Tickets::SubmitMore() {
  while (!not_submitted_.empty()) {
    PendingAnswer* first = Find(not_submitted_.front());
    if (first != nullptr && !first->Submit()) return;
    not_submitted_.pop_front();
  }
}

void Tickets::Withdraw(const std::vector<int64_t>& tickets) {
  for (int64_t ticket : tickets) answers_.erase(ticket);
}

}  // namespace lm

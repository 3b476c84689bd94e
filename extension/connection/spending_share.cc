#include "extension/connection/spending_share.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/runtime/prompt_tally.h"
#include "extension/connection/statement_call.h"

namespace lm {

absl::StatusOr<SpendingShare> SpendingShare::Take(
    const CallOptions& options,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit) {
  SpendingShare share;
  if (!HasBudget(options.generation) || options.session().only_counts()) return share;
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  if (work == nullptr) return share;
  PromptTally tally;
  Session counting = options.session();
  counting.set_tally(&tally);
  if (!submit(counting).ok() || tally.empty()) return share;
  const PromptTally::Totals totals = tally.Count().front();
  share.prices_ = options.model->prices;
  if (totals.guessed) share.guessed_tokens_ = totals.tokens;
  share.prompt_tokens_ =
      totals.guessed ? work->spending()->PromptTokens(totals.tokens) : totals.tokens;
  share.most_ = ExpenseOf(share.prompt_tokens_, totals.most_tokens_out(), share.prices_);
  RETURN_IF_ERROR(work->spending()->SetAside(options.generation, share.most_));
  share.spending_ = work->spending();
  return share;
}

absl::StatusOr<std::shared_ptr<Request>> SpendingShare::Submit(
    const CallOptions& options,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit,
    SpendingShare* share) {
  ASSIGN_OR_RETURN(*share, Take(options, submit));
  absl::StatusOr<std::shared_ptr<Request>> request = submit(options.session());
  if (!request.ok()) share->SettleTokens(0, 0);
  return request;
}

SpendingShare& SpendingShare::operator=(SpendingShare&& other) {
  Abandon(0);
  spending_ = std::move(other.spending_);
  prices_ = other.prices_;
  most_ = other.most_;
  prompt_tokens_ = other.prompt_tokens_;
  guessed_tokens_ = other.guessed_tokens_;
  return *this;
}

void SpendingShare::Settle(const Generation& result) {
  const bool takes = !result.remembered;
  // A prompt that is asked again and again is not as long as that, and one that fails may be none.
  const int64_t prompt = result.status.ok() ? result.tokens_in - result.in_vain : 0;
  if (takes && spending_ != nullptr && guessed_tokens_ > 0 && prompt > 0) {
    spending_->NotePrompt(guessed_tokens_, prompt);
  }
  SettleTokens(takes ? result.tokens_in : 0, takes ? result.tokens_out : 0);
}

void SpendingShare::SettleTokens(int64_t tokens_in, int64_t tokens_out) {
  if (spending_ == nullptr) return;
  spending_->Settle(most_, ExpenseOf(tokens_in, tokens_out, prices_));
  spending_.reset();
}

}  // namespace lm

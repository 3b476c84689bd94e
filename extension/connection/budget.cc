#include "extension/connection/budget.h"

#include "engine/base/status_macros.h"
#include "engine/runtime/prompt_tally.h"
#include "extension/connection/statement_call.h"

namespace lm {

absl::StatusOr<std::unique_ptr<SpendingShare>> SetAside(
    const CallOptions& options,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit) {
  if (!HasBudget(options.generation) || options.session().only_counts()) return nullptr;
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  if (work == nullptr) return nullptr;
  PromptTally tally;
  Session counting = options.session();
  counting.set_tally(&tally);
  if (!submit(counting).ok() || tally.empty()) return nullptr;
  const PromptTally::Totals totals = tally.Count().front();
  const Prices& prices = options.model->prices;
  const Expense prompt = ExpenseOf(totals.tokens, 0, prices);
  const Expense most =
      ExpenseOf(totals.tokens, totals.most_answer_tokens + totals.most_chosen_tokens, prices);
  RETURN_IF_ERROR(work->spending()->SetAside(options.generation, most));
  return std::make_unique<SpendingShare>(work->spending(), most, prompt);
}

void SettleBy(const Generation& generation, const CallOptions& options,
              std::unique_ptr<SpendingShare>* share) {
  if (*share == nullptr) return;
  (*share)->Settle(generation.remembered ? Expense()
                                         : ExpenseOf(generation.tokens_in, generation.tokens_out,
                                                     options.model->prices));
  share->reset();
}

}  // namespace lm

// Spending: what a statement's answers have taken of its budgets, max_total_tokens and max_cost,
// and what those under way may take at most. An answer is asked for only where the most that it may
// take is left, so a budget is never exceeded.
//
//   RETURN_IF_ERROR(spending.SetAside(options, most));   // before it is asked for
//   ...
//   spending.Settle(most, taken);                        // once it is there, or nobody wants it
#ifndef LM_EXTENSION_CONNECTION_SPENDING_H_
#define LM_EXTENSION_CONNECTION_SPENDING_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// Of a million tokens, in any currency.
struct Prices {
  std::optional<double> in = {};   // of prompts
  std::optional<double> out = {};  // of answers

  bool known() const { return in.has_value() || out.has_value(); }
};

struct Expense {
  int64_t tokens = 0;
  double cost = 0;
};
Expense ExpenseOf(int64_t tokens_in, int64_t tokens_out, const Prices& prices);

// Whether the options limit what a statement may spend.
inline bool HasBudget(const GenerationOptions& options) {
  return options.max_total_tokens > 0 || options.max_cost > 0;
}

// Not thread-safe: used on the statement's thread.
class Spending {
 public:
  // FailedPrecondition, in words for the user, where `most` is not left.
  absl::Status SetAside(const GenerationOptions& options, const Expense& most);
  void Settle(const Expense& most, const Expense& taken);

 private:
  Expense taken_;
  Expense set_aside_;
  int64_t answers_ = 0;  // that have taken something
};

// What is set aside for one answer; gives back what that has not taken. Where nobody says what it
// was (a request that was cancelled), its prompt is.
class SpendingShare {
 public:
  SpendingShare(std::shared_ptr<Spending> spending, const Expense& most, const Expense& prompt)
      : spending_(std::move(spending)), most_(most), prompt_(prompt) {}
  ~SpendingShare() { Settle(prompt_); }
  SpendingShare(const SpendingShare&) = delete;
  SpendingShare& operator=(const SpendingShare&) = delete;

  // The prompt, and what is known of an answer that nobody waits for any more.
  void SettlePrompt(const Expense& answer) {
    Settle({prompt_.tokens + answer.tokens, prompt_.cost + answer.cost});
  }
  void Settle(const Expense& taken) {
    if (spending_ != nullptr) spending_->Settle(most_, taken);
    spending_.reset();
  }

 private:
  std::shared_ptr<Spending> spending_;
  const Expense most_;
  const Expense prompt_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_SPENDING_H_

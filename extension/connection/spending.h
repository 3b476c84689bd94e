// Spending: what a statement's answers have taken of its budgets, max_total_tokens and max_cost,
// and what those under way may take at most. An answer is asked for only where the most that it may
// take is left, so a budget is never exceeded, but by prompts whose tokens are guessed: how far off
// guesses are the answers show that have come.
//
//   RETURN_IF_ERROR(spending.SetAside(options, most));   // before an answer is asked for
//   ...
//   spending.Settle(most, taken);                        // it is there, or no longer wanted
//
// For one request of a statement SpendingShare does both.
#ifndef LM_EXTENSION_CONNECTION_SPENDING_H_
#define LM_EXTENSION_CONNECTION_SPENDING_H_

#include <cstdint>
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

  // The tokens of a prompt for which so many are guessed; not fewer.
  int64_t PromptTokens(int64_t guessed) const;
  // A prompt had so many. REQUIRES: guessed > 0.
  void NotePrompt(int64_t guessed, int64_t taken);

 private:
  Expense taken_;
  Expense set_aside_;
  int64_t answers_ = 0;  // that have taken something
  // Of the prompts that were noted: how many, their tokens as guessed and as they were, and the
  // sums of squares of the first and of the products of both.
  double prompts_ = 0, guessed_ = 0, taken_of_prompts_ = 0, squares_ = 0, products_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_SPENDING_H_

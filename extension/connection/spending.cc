#include "extension/connection/spending.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lm {
namespace {

template <typename Number>
absl::Status Spent(absl::string_view budget, Number limit, int64_t answers, Number taken,
                   Number most) {
  return absl::FailedPreconditionError(
      absl::StrCat(budget, " = ", limit, " does not reach for another answer: ", answers,
                   " have taken ", taken, ", the next may take ", most));
}

}  // namespace

Expense ExpenseOf(int64_t tokens_in, int64_t tokens_out, const Prices& prices) {
  return {.tokens = tokens_in + tokens_out,
          .cost = (static_cast<double>(tokens_in) * prices.in.value_or(0) +
                   static_cast<double>(tokens_out) * prices.out.value_or(0)) /
                  1e6};
}

absl::Status Spending::SetAside(const GenerationOptions& options, const Expense& most) {
  const int64_t tokens = taken_.tokens + set_aside_.tokens + most.tokens;
  if (options.max_total_tokens > 0 && tokens > options.max_total_tokens) {
    return Spent("max_total_tokens", options.max_total_tokens, answers_, taken_.tokens,
                 most.tokens);
  }
  // Sums of prices differ by their order.
  const double cost = taken_.cost + set_aside_.cost + most.cost;
  if (options.max_cost > 0 && cost > options.max_cost * (1 + 1e-9)) {
    return Spent("max_cost", options.max_cost, answers_, taken_.cost, most.cost);
  }
  set_aside_.tokens += most.tokens;
  set_aside_.cost += most.cost;
  return absl::OkStatus();
}

void Spending::Settle(const Expense& most, const Expense& taken) {
  set_aside_.tokens -= most.tokens;
  set_aside_.cost -= most.cost;
  taken_.tokens += taken.tokens;
  taken_.cost += taken.cost;
  answers_ += taken.tokens > 0;
}

// A line through what has come: so many tokens a guessed one, and what a template adds to each.
int64_t Spending::PromptTokens(int64_t guessed) const {
  if (prompts_ == 0) return guessed;
  constexpr double kMostEach = 4;  // a token has a byte at least, and four are guessed to be one
  const double mean = guessed_ / prompts_, mean_taken = taken_of_prompts_ / prompts_;
  const double spread = squares_ / prompts_ - mean * mean;
  const double common = products_ / prompts_ - mean * mean_taken;
  const bool vary = spread > 0.01 * mean * mean;
  const double each = std::clamp(vary ? common / spread : mean_taken / mean, 1.0, kMostEach);
  const double added = std::max(0.0, mean_taken - each * mean);
  return static_cast<int64_t>(std::ceil(each * static_cast<double>(guessed) + added));
}

void Spending::NotePrompt(int64_t guessed, int64_t taken) {
  const auto g = static_cast<double>(guessed), t = static_cast<double>(taken);
  ++prompts_;
  guessed_ += g;
  taken_of_prompts_ += t;
  squares_ += g * g;
  products_ += g * t;
}

}  // namespace lm

// Decimal numbers between two bounds, digit by digit, as an automaton.
#ifndef LM_ENGINE_GRAMMAR_NUMBER_RANGE_H_
#define LM_ENGINE_GRAMMAR_NUMBER_RANGE_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "engine/grammar/automaton_builder.h"

namespace lm {

// Digits that a generated number has at most, without a fraction.
inline constexpr int kMaxWholeDigits = 18;
// With a fraction, all digits together: so few that a reader who rounds it to a double can neither
// round two numbers to one nor one onto a bound or across.
inline constexpr int kMaxDigits = 15;
inline constexpr int kMaxFractionDigits = kMaxDigits - 1;
// A number with more digits before the point, or more than kMaxFractionDigits behind it, is written
// with an exponent.
inline constexpr int kMaxPlainDigits = 21;

// An exact decimal number. Zero is not negative.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // no zeros in front
  std::string fraction;     // no zeros at the end
};

// From a JSON number such as -12.50e-3; nothing where the exponent is beyond 400.
std::optional<Decimal> ParseDecimal(absl::string_view text);
// < 0, 0, > 0 like memcmp.
int Compare(const Decimal& a, const Decimal& b);
// The least and the greatest number of OpenAPI's formats int32 and int64; nothing for others.
std::optional<std::pair<Decimal, Decimal>> BoundsOfFormat(absl::string_view format);

struct NumberBound {
  Decimal value;
  bool inclusive = true;
};

struct NumberRange {
  std::optional<NumberBound> lower = {};
  std::optional<NumberBound> upper = {};
  int max_fraction_digits = kMaxFractionDigits;
  // The number is a multiple of multiple_of / 10^multiple_digits; above 1 it has no more digits
  // behind the point than that. See AddStep.
  int multiple_of = 1;
  int multiple_digits = 0;
};

// Makes *range multiples of `step` too. False where that is not possible: `step` is not above 0, or
// multiple_of would be above kMaxMultiple.
inline constexpr int kMaxMultiple = 1000;
bool AddStep(const Decimal& step, NumberRange* range);
// Nothing where there are too many digits.
std::optional<bool> IsMultiple(const Decimal& number, const Decimal& step);

// The numbers of the range in their shortest form: without exponent, without zeros at the end of a
// fraction, without -0. Where a bound is missing, numbers of up to kMaxWholeDigits digits. `why`:
// see AutomatonBuilder::Nothing; it is said where there is no such number.
Fragment NumbersIn(const NumberRange& range, std::string why, AutomatonBuilder* builder);
// The numbers that need an exponent, with one of two digits at most: 6.02e23, -1.5e-20.
Fragment NumbersWithExponent(AutomatonBuilder* builder);

// The text that these write for a number.
std::string NumberText(const Decimal& number);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_NUMBER_RANGE_H_

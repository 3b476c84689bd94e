#include "engine/grammar/number_range.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lm {
namespace {

constexpr int kMaxExponent = 400;

bool IsZero(const Decimal& d) { return d.whole == "0" && d.fraction.empty(); }

int Sign(int order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

int CompareMagnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (int order = a.whole.compare(b.whole); order != 0) return Sign(order);
  return Sign(a.fraction.compare(b.fraction));  // no zeros at the end: a prefix is less
}

// |number| * 10^digits, which is whole; nothing if that has more than 18 digits.
std::optional<int64_t> Scaled(const Decimal& number, int digits) {
  std::string text = number.whole + number.fraction;
  text.append(static_cast<size_t>(digits) - number.fraction.size(), '0');
  text.erase(0, text.find_first_not_of('0'));
  int64_t value = 0;
  if (text.empty()) return value;
  if (text.size() > kMaxWholeDigits || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// The nodes of numbers that no bound touches any more, by what may still come: the same for several
// bounds of one range.
struct FreeDigits {
  std::map<std::tuple<size_t, size_t, size_t, int>, NodeId> whole;
  std::map<std::tuple<int, int, int>, NodeId> fraction;
};

// Writes the numbers d with low <= d <= high, neither negative, as nodes that end at `end`. A state
// knows how much of the number is written and whether that is still a prefix of low, of high.
class MagnitudeWriter {
 public:
  // Where nothing goes on, `dead` follows.
  MagnitudeWriter(const NumberBound& low, const std::optional<NumberBound>& high,
                  const NumberRange& range, NodeId end, NodeId dead, FreeDigits* free,
                  AutomatonBuilder* builder)
      : low_(low),
        high_(high),
        range_(range),
        end_(end),
        dead_(dead),
        free_(*free),
        builder_(*builder) {}

  // Without `high`, up to `most_digits`, which are no fewer than low has.
  NodeId Write(size_t most_digits) {
    const size_t shortest = low_.value.whole.size();
    const size_t longest = high_ ? high_->value.whole.size() : most_digits;
    std::vector<NodeId> ways;
    auto add = [&](NodeId way) {
      if (way != dead_) ways.push_back(way);
    };
    add(Whole(shortest, 0, {true, high_ && longest == shortest, 0}));
    // Between the bounds' lengths no digit is bound.
    const size_t last_free = high_ ? longest - 1 : longest;
    if (shortest < last_free) add(FreeWhole(shortest + 1, last_free, 0, 0));
    if (high_ && longest > shortest) add(Whole(longest, 0, {false, true, 0}));
    return Fork(ways);
  }

 private:
  struct State {
    bool at_low;
    bool at_high;
    int remainder;
    bool ends_in_zero = false;  // its fraction does
    bool is_free() const { return !at_low && !at_high; }
    bool operator==(const State&) const = default;
  };

  NodeId Fork(const std::vector<NodeId>& ways) {
    return ways.empty() ? dead_ : builder_.AddFork(ways);
  }

  // Digit `pos` of a whole part of `length` digits comes next, on a bound or at the beginning.
  NodeId Whole(size_t length, size_t pos, const State& state) {
    if (pos == length) return BehindWhole(length, state);
    if (pos > 0 && state.is_free()) return FreeWhole(length, length, pos, state.remainder);
    const int least = pos == 0 && length > 1 ? 1 : 0;
    return Digit(state.at_low ? low_.value.whole[pos] - '0' : least,
                 state.at_high ? high_->value.whole[pos] - '0' : 9, state,
                 /*in_fraction=*/false,
                 [&](const State& next) { return Whole(length, pos + 1, next); });
  }

  // The same of a whole part of `shortest` to `longest` digits, of which none is bound any more.
  NodeId FreeWhole(size_t shortest, size_t longest, size_t pos, int remainder) {
    const std::tuple<size_t, size_t, size_t, int> key{shortest, longest, pos, remainder};
    if (auto at = free_.whole.find(key); at != free_.whole.end()) return at->second;
    std::vector<NodeId> ways;
    const State state{false, false, remainder};
    if (pos >= shortest) ways.push_back(BehindWhole(pos, state));
    if (pos < longest) {
      const int least = pos == 0 && longest > 1 ? 1 : 0;
      ways.push_back(Digit(least, 9, state, /*in_fraction=*/false, [&](const State& next) {
        return FreeWhole(shortest, longest, pos + 1, next.remainder);
      }));
    }
    const NodeId node = Fork(ways);
    free_.whole[key] = node;
    return node;
  }

  // A digit from `least` to `most`; at them the number stays on the bound.
  template <typename Then>
  NodeId Digit(int least, int most, const State& state, bool in_fraction, Then then) {
    std::vector<NodeId> ways;
    for (int first = least; first <= most;) {
      auto after = [&](int digit) {
        return State{state.at_low && digit == least, state.at_high && digit == most,
                     (state.remainder * 10 + digit) % range_.multiple_of,
                     in_fraction && digit == 0};
      };
      const State next = after(first);
      int last = first;
      while (last < most && after(last + 1) == next) ++last;
      const NodeId behind = then(next);
      if (behind != dead_) {
        ways.push_back(builder_.AddBytes(static_cast<uint8_t>('0' + first),
                                         static_cast<uint8_t>('0' + last), behind));
      }
      first = last + 1;
    }
    return Fork(ways);
  }

  // Behind a whole part of `length` digits.
  int MostFractionDigits(size_t length) const {
    if (length >= kMaxDigits) return 0;
    return std::min(range_.max_fraction_digits, kMaxDigits - static_cast<int>(length));
  }

  NodeId BehindWhole(size_t length, const State& state) {
    std::vector<NodeId> ways;
    if (MayStop(0, state)) ways.push_back(end_);
    const int digits = MostFractionDigits(length);
    const NodeId fraction = digits > 0 ? Fraction(0, digits, state) : dead_;
    if (fraction != dead_) ways.push_back(builder_.AddBytes('.', '.', fraction));
    return Fork(ways);
  }

  // Digit `pos` behind the point comes next; `left` more may, at most. REQUIRES: left > 0.
  NodeId Fraction(int pos, int left, State state) {
    // No fraction ends in zero, so one that goes on behind a bound's last digit is above it.
    if (state.at_low && pos >= static_cast<int>(low_.value.fraction.size())) state.at_low = false;
    if (state.at_high && pos >= static_cast<int>(high_->value.fraction.size())) return dead_;
    state.ends_in_zero = false;  // of what is before
    if (state.is_free()) {
      pos = std::min(pos, range_.multiple_digits);
      auto at = free_.fraction.find({pos, left, state.remainder});
      if (at != free_.fraction.end()) return at->second;
    }
    const NodeId node =
        Digit(state.at_low ? DigitAt(low_, pos) : 0, state.at_high ? DigitAt(*high_, pos) : 9,
              state, /*in_fraction=*/true, [&](const State& next) {
                std::vector<NodeId> ways;
                if (MayStop(pos + 1, next)) ways.push_back(end_);
                const NodeId more = left > 1 ? Fraction(pos + 1, left - 1, next) : dead_;
                if (more != dead_) ways.push_back(more);
                return Fork(ways);
              });
    if (state.is_free()) free_.fraction[{pos, left, state.remainder}] = node;
    return node;
  }

  static int DigitAt(const NumberBound& bound, int pos) {
    const std::string& digits = bound.value.fraction;
    return pos < static_cast<int>(digits.size()) ? digits[pos] - '0' : 0;
  }

  // May the number end with `pos` digits behind the point? What is not written is zeros.
  bool MayStop(int pos, const State& state) const {
    auto is_all = [pos](const NumberBound& bound) {
      return pos >= static_cast<int>(bound.value.fraction.size());
    };
    if (state.ends_in_zero) return false;
    int remainder = state.remainder;
    for (int i = pos; i < range_.multiple_digits; ++i) {
      remainder = remainder * 10 % range_.multiple_of;
    }
    if (remainder != 0) return false;
    if (state.at_low && !(is_all(low_) && low_.inclusive)) return false;
    return !state.at_high || !is_all(*high_) || high_->inclusive;
  }

  const NumberBound& low_;
  const std::optional<NumberBound>& high_;
  const NumberRange& range_;
  const NodeId end_;
  const NodeId dead_;
  FreeDigits& free_;
  AutomatonBuilder& builder_;
};

NodeId Magnitudes(NumberBound low, std::optional<NumberBound> high, const NumberRange& range,
                  NodeId end, NodeId dead, FreeDigits* free, AutomatonBuilder* builder) {
  low.value.negative = false;
  if (high) high->value.negative = false;
  if (high && CompareMagnitudes(low.value, high->value) > 0) return dead;
  const size_t low_digits = low.value.whole.size();
  auto write = [&](const std::optional<NumberBound>& top, size_t most_digits) {
    return MagnitudeWriter(low, top, range, end, dead, free, builder).Write(most_digits);
  };
  // Without a bound above that makes a difference, up to kMaxWholeDigits or as many digits as low
  // has; or one more, where low leaves no number of so many.
  const bool high_is_far = high && high->value.whole.size() > kMaxWholeDigits;
  if (high && (!high_is_far || low_digits > kMaxWholeDigits)) return write(high, 0);
  const NodeId usual = write(std::nullopt, std::max<size_t>(low_digits, kMaxWholeDigits));
  if (usual != dead) return usual;
  if (high && high->value.whole.size() <= low_digits + 1) return write(high, 0);
  return write(std::nullopt, low_digits + 1);
}

}  // namespace

std::optional<Decimal> ParseDecimal(absl::string_view text) {
  Decimal result;
  if (!text.empty() && text[0] == '-') {
    result.negative = true;
    text.remove_prefix(1);
  }
  std::string digits;
  int point = -1, exponent = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      point = static_cast<int>(digits.size());
    } else if (text[i] == 'e' || text[i] == 'E') {
      absl::string_view power = text.substr(i + 1);
      if (!power.empty() && power[0] == '+') power.remove_prefix(1);
      if (!absl::SimpleAtoi(power, &exponent) || std::abs(exponent) > kMaxExponent) {
        return std::nullopt;
      }
      break;
    } else {
      digits.push_back(text[i]);
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  point += exponent;
  if (point < 0) {
    digits.insert(0, -point, '0');
    point = 0;
  }
  if (point > static_cast<int>(digits.size())) digits.resize(point, '0');
  result.whole = digits.substr(0, point);
  result.fraction = digits.substr(point);
  result.whole.erase(0, result.whole.find_first_not_of('0'));
  if (result.whole.empty()) result.whole.push_back('0');
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (IsZero(result)) result.negative = false;
  return result;
}

bool AddStep(const Decimal& step, NumberRange* range) {
  constexpr int kMaxStepDigits = kMaxFractionDigits;
  const int digits = static_cast<int>(step.fraction.size());
  const std::optional<int64_t> whole = Scaled(step, digits);
  if (step.negative || !whole || *whole == 0 || digits > kMaxStepDigits) return false;
  // Both in the smaller of the two units.
  const bool is_first = range->multiple_of == 1 && range->max_fraction_digits == kMaxFractionDigits;
  int64_t before = range->multiple_of, now = *whole;
  int unit = digits;
  if (!is_first) {
    const int old_digits =
        range->multiple_of > 1 ? range->multiple_digits : range->max_fraction_digits;
    unit = std::max(digits, old_digits);
    for (int i = old_digits; i < unit && before <= kMaxMultiple; ++i) before *= 10;
    for (int i = digits; i < unit && now <= kMaxMultiple; ++i) now *= 10;
    if (before > kMaxMultiple || now > kMaxMultiple) return false;
    now = std::lcm(before, now);
  }
  // 0.50 is 0.5.
  while (unit > 0 && now % 10 == 0) {
    now /= 10;
    --unit;
  }
  if (now > kMaxMultiple) return false;
  range->multiple_of = static_cast<int>(now);
  range->multiple_digits = unit;
  range->max_fraction_digits = std::min(range->max_fraction_digits, unit);
  return true;
}

std::optional<bool> IsMultiple(const Decimal& number, const Decimal& step) {
  const size_t unit = std::max(number.fraction.size(), step.fraction.size());
  const std::optional<int64_t> divisor = Scaled(step, static_cast<int>(unit));
  if (!divisor || *divisor == 0) return std::nullopt;
  std::string digits = number.whole + number.fraction;
  digits.append(unit - number.fraction.size(), '0');
  uint64_t remainder = 0;
  for (char digit : digits) {
    remainder =
        (remainder * 10 + static_cast<uint64_t>(digit - '0')) % static_cast<uint64_t>(*divisor);
  }
  return remainder == 0;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int order = CompareMagnitudes(a, b);
  return a.negative ? -order : order;
}

std::optional<std::pair<Decimal, Decimal>> BoundsOfFormat(absl::string_view format) {
  if (format != "int32" && format != "int64") return std::nullopt;
  const bool is_short = format == "int32";
  return std::pair(*ParseDecimal(is_short ? "-2147483648" : "-9223372036854775808"),
                   *ParseDecimal(is_short ? "2147483647" : "9223372036854775807"));
}

Fragment NumbersIn(const NumberRange& range, std::string why, AutomatonBuilder* builder) {
  const NodeId end = builder->AddLink();
  const NodeId dead = builder->AddDead(std::move(why));
  const NumberBound zero{Decimal(), /*inclusive=*/true};
  const NumberBound above_zero{Decimal(), /*inclusive=*/false};
  FreeDigits free;
  std::vector<NodeId> ways;
  if (!range.upper || !range.upper->value.negative) {
    const bool from_zero = !range.lower || range.lower->value.negative;
    ways.push_back(
        Magnitudes(from_zero ? zero : *range.lower, range.upper, range, end, dead, &free, builder));
  }
  if (!range.lower || range.lower->value.negative) {
    const bool to_zero = !range.upper || !range.upper->value.negative;
    ways.push_back(builder->AddBytes('-', '-',
                                     Magnitudes(to_zero ? above_zero : *range.upper, range.lower,
                                                range, end, dead, &free, builder)));
  }
  return {ways.empty() ? dead : builder->AddFork(ways), end};
}

Fragment NumbersWithExponent(AutomatonBuilder* builder) {
  const NodeId end = builder->AddLink();
  const NodeId any_digit = builder->AddBytes('0', '9', end);
  const NodeId two_digits = builder->AddBytes('1', '9', any_digit);
  // From `least` to 99.
  auto whole = [&](int least) {
    const uint8_t ones = static_cast<uint8_t>('0' + least % 10);
    const uint8_t tens = static_cast<uint8_t>('0' + least / 10);
    const NodeId last = builder->AddBytes(ones, '9', end);
    if (tens == '0') return builder->AddSplit(last, two_digits);
    const NodeId same_ten = builder->AddBytes(tens, tens, last);
    return builder->AddSplit(same_ten,
                             builder->AddBytes(static_cast<uint8_t>(tens + 1), '9', any_digit));
  };
  const NodeId large = whole(kMaxPlainDigits);
  // Behind a digit and `digits` more, where the number may end.
  auto exponent = [&](int digits) {
    const NodeId small = builder->AddBytes('-', '-', whole(kMaxDigits - digits));
    return builder->AddBytes('e', 'e', builder->AddSplit(large, small));
  };
  NodeId more = -1;  // a further digit, where there may be one
  for (int digits = kMaxDigits - 1; digits > 0; --digits) {
    const NodeId ends = exponent(digits);
    const NodeId other = more < 0 ? ends : builder->AddSplit(ends, more);
    const NodeId digit = builder->AddBytes('1', '9', other);
    more = more < 0 ? digit : builder->AddSplit(digit, builder->AddBytes('0', '0', more));
  }
  const NodeId behind_first = builder->AddSplit(exponent(0), builder->AddBytes('.', '.', more));
  const NodeId first = builder->AddBytes('1', '9', behind_first);
  return {builder->AddSplit(first, builder->AddBytes('-', '-', first)), end};
}

std::string NumberText(const Decimal& number) {
  const std::string sign = number.negative ? "-" : "";
  const bool plain = number.whole.size() <= kMaxPlainDigits &&
                     number.fraction.size() <= static_cast<size_t>(kMaxFractionDigits);
  if (plain) {
    return absl::StrCat(sign, number.whole, number.fraction.empty() ? "" : ".", number.fraction);
  }
  std::string digits = absl::StrCat(number.whole, number.fraction);
  const size_t zeros = digits.find_first_not_of('0');
  const int64_t exponent =
      static_cast<int64_t>(number.whole.size()) - 1 - static_cast<int64_t>(zeros);
  digits.erase(0, zeros);
  digits.erase(digits.find_last_not_of('0') + 1);
  return absl::StrCat(sign, digits.substr(0, 1), digits.size() > 1 ? "." : "", digits.substr(1),
                      "e", exponent);
}

}  // namespace lm

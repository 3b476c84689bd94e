#include "engine/text/template/template_operators.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/template/template_strings.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;
using Operator = TemplateExpression::Operator;

absl::string_view SymbolOf(Operator op) {
  static constexpr absl::string_view kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<int>(op)];
}

absl::Status NoOperator(Operator op, const TemplateValue& a, const TemplateValue& b) {
  return TemplateError(
      absl::StrCat("there is no '", a.TypeName(), "' ", SymbolOf(op), " '", b.TypeName(), "'"));
}

absl::StatusOr<int64_t> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  // Beyond 64 multiplications only 0, 1 and -1 are left.
  if (exponent > 64 && base >= -1 && base <= 1) exponent = 2 + exponent % 2;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result))
      return TemplateError("a number beyond 64 bits");
  }
  return result;
}

absl::StatusOr<TemplateValue> CalculateIntegers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower: {
      ASSIGN_OR_RETURN(result, IntegerPower(a, b));
      break;
    }
    default: {
      if (b == -1) {  // of INT64_MIN it would overflow
        overflows = op == Operator::kFloorDivide && __builtin_sub_overflow(0, a, &result);
        break;
      }
      const int64_t remainder = a % b;
      const bool down = remainder != 0 && (remainder < 0) != (b < 0);
      result = op == Operator::kModulo ? remainder + (down ? b : 0) : a / b - (down ? 1 : 0);
    }
  }
  if (overflows) return TemplateError("a number beyond 64 bits");
  return TemplateValue::Integer(result);
}

absl::StatusOr<TemplateValue> CalculateNumbers(Operator op, const TemplateValue& a,
                                               const TemplateValue& b) {
  const bool division =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (division && b.number() == 0) return TemplateError("division by zero");
  const bool integers = a.is_integer() && b.is_integer() && op != Operator::kDivide &&
                        !(op == Operator::kPower && b.integer() < 0);
  if (integers) return CalculateIntegers(op, a.integer(), b.integer());
  const double x = a.number();
  const double y = b.number();
  switch (op) {
    case Operator::kAdd:
      return TemplateValue::Float(x + y);
    case Operator::kSubtract:
      return TemplateValue::Float(x - y);
    case Operator::kMultiply:
      return TemplateValue::Float(x * y);
    case Operator::kDivide:
      return TemplateValue::Float(x / y);
    case Operator::kFloorDivide:
      return TemplateValue::Float(std::floor(x / y));
    case Operator::kModulo: {
      const double remainder = std::fmod(x, y);
      return TemplateValue::Float(remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y
                                                                               : remainder);
    }
    default:
      if (x == 0 && y < 0) return TemplateError("division by zero");
      return TemplateValue::Float(std::pow(x, y));
  }
}

absl::StatusOr<TemplateValue> Repeat(const TemplateValue& value, int64_t times,
                                     TemplateBudget* budget) {
  times = std::max<int64_t>(times, 0);
  if (value.Is(Kind::kString)) {
    const int64_t size = static_cast<int64_t>(value.text().size());
    TemplateText text;
    if (size == 0) return TemplateValue::String(text);
    int64_t total = 0;
    if (__builtin_mul_overflow(size, times, &total)) total = INT64_MAX / 2;
    RETURN_IF_ERROR(budget->Bytes(total));
    for (; times > 0; --times) text.Append(value.text());
    return TemplateValue::String(std::move(text));
  }
  const int64_t size = static_cast<int64_t>(value.list().size());
  TemplateValue::List list;
  if (size == 0) return TemplateValue::Sequence(value.kind(), list);
  int64_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) total = INT64_MAX / 2;
  RETURN_IF_ERROR(budget->Steps(total));
  list.reserve(total);
  for (; times > 0; --times) {
    list.insert(list.end(), value.list().begin(), value.list().end());
  }
  return TemplateValue::Sequence(value.kind(), std::move(list));
}

bool IsPlainSequence(const TemplateValue& value) {
  return value.Is(Kind::kList) || value.Is(Kind::kTuple);
}

absl::StatusOr<bool> Contains(const TemplateValue& a, const TemplateValue& container,
                              TemplateBudget* budget) {
  if (container.Is(Kind::kString)) {
    if (!a.Is(Kind::kString)) return NoOperator(Operator::kIn, a, container);
    RETURN_IF_ERROR(budget->Looks(container.text().size()));
    return FindFirst(container.text().bytes(), a.text().bytes()) != absl::string_view::npos;
  }
  if (container.Is(Kind::kDict)) {
    if (!IsHashable(a)) return TemplateError(absl::StrCat("unhashable type: '", a.TypeName(), "'"));
    ASSIGN_OR_RETURN(const TemplateValue* found, container.Find(a, budget));
    return found != nullptr;
  }
  if (container.Is(Kind::kUndefined)) return false;
  if (!container.is_sequence()) return NoOperator(Operator::kIn, a, container);
  for (const TemplateValue& element : container.list()) {
    ASSIGN_OR_RETURN(bool same, SameValue(a, element, budget));
    if (same) return true;
  }
  return false;
}

// A slice's bound as Python takes it: none, or an integer.
absl::StatusOr<std::optional<int64_t>> Bound(const TemplateValue& value) {
  if (value.Is(Kind::kUndefined) || value.Is(Kind::kNone)) return std::nullopt;
  if (!value.is_integer()) return TemplateError("slice indices must be integers or None");
  return value.integer();
}

}  // namespace

absl::StatusOr<TemplateValue> Calculate(Operator op, const TemplateValue& a, const TemplateValue& b,
                                        TemplateBudget* budget) {
  if (a.is_number() && b.is_number()) {
    ASSIGN_OR_RETURN(TemplateValue result, CalculateNumbers(op, a, b));
    return std::move(result).FromInput(a.from_input() || b.from_input());
  }
  if (op == Operator::kModulo && a.Is(Kind::kString)) return FormatPercent(a.text(), b, budget);
  if (op == Operator::kAdd && a.Is(Kind::kString) && b.Is(Kind::kString)) {
    const bool safe = a.is_safe() || b.is_safe();
    RETURN_IF_ERROR(budget->Bytes((safe ? 6 : 1) * (a.text().size() + b.text().size())));
    if (safe) {
      TemplateText all = a.is_safe() ? a.text() : EscapeHtml(a.text());
      all.Append(b.is_safe() ? b.text() : EscapeHtml(b.text()));
      return TemplateValue::String(std::move(all)).Safe();
    }
    TemplateText text = a.text();
    text.Append(b.text());
    return TemplateValue::String(std::move(text));
  }
  if (op == Operator::kAdd && IsPlainSequence(a) && a.kind() == b.kind()) {
    RETURN_IF_ERROR(budget->Steps(a.list().size() + b.list().size()));
    TemplateValue::List list = a.list();
    list.insert(list.end(), b.list().begin(), b.list().end());
    return TemplateValue::Sequence(a.kind(), std::move(list));
  }
  if (op == Operator::kMultiply) {
    if ((a.Is(Kind::kString) || IsPlainSequence(a)) && b.is_integer()) {
      return Repeat(a, b.integer(), budget);
    }
    if ((b.Is(Kind::kString) || IsPlainSequence(b)) && a.is_integer()) {
      return Repeat(b, a.integer(), budget);
    }
  }
  return NoOperator(op, a, b);
}

absl::StatusOr<bool> Holds(Operator op, const TemplateValue& a, const TemplateValue& b,
                           TemplateBudget* budget) {
  switch (op) {
    case Operator::kEqual:
      return SameValue(a, b, budget);
    case Operator::kNotEqual: {
      ASSIGN_OR_RETURN(bool same, SameValue(a, b, budget));
      return !same;
    }
    case Operator::kIn:
      return Contains(a, b, budget);
    case Operator::kNotIn: {
      ASSIGN_OR_RETURN(bool inside, Contains(a, b, budget));
      return !inside;
    }
    default:
      break;
  }
  // What is not a number is neither less nor greater.
  const bool nan =
      (a.is_number() && std::isnan(a.number())) || (b.is_number() && std::isnan(b.number()));
  ASSIGN_OR_RETURN(int order, CompareValues(a, b, budget));
  if (nan) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessOrEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

absl::StatusOr<TemplateValue> ElementAt(const TemplateValue& sequence, int64_t index,
                                        TemplateBudget* budget) {
  if (!sequence.Is(Kind::kString)) {
    const TemplateValue::List& list = sequence.list();
    if (index < 0) index += static_cast<int64_t>(list.size());
    if (index < 0 || index >= static_cast<int64_t>(list.size())) return TemplateValue();
    return list[index];
  }
  const absl::string_view bytes = sequence.text().bytes();
  RETURN_IF_ERROR(budget->Bytes(bytes.size()));
  if (index < 0) index += CountCharacters(bytes);
  if (index < 0) return TemplateValue();
  const size_t begin = ByteOfCharacter(bytes, index);
  if (begin == bytes.size()) return TemplateValue();
  size_t end = begin;
  DecodeUtf8(bytes, &end);
  return TemplateValue::String(sequence.text().Part(begin, end));
}

absl::StatusOr<TemplateValue> Slice(const TemplateValue& value, const TemplateValue& begin,
                                    const TemplateValue& end, const TemplateValue& step,
                                    TemplateBudget* budget) {
  if (!value.Is(Kind::kString) && !IsPlainSequence(value)) {
    return TemplateError(absl::StrCat("a '", value.TypeName(), "' cannot be sliced"));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> from, Bound(begin));
  ASSIGN_OR_RETURN(const std::optional<int64_t> to, Bound(end));
  ASSIGN_OR_RETURN(const std::optional<int64_t> by, Bound(step));
  const int64_t stride = by.value_or(1);
  if (stride == 0) return TemplateError("slice step cannot be zero");
  ASSIGN_OR_RETURN(const int64_t size, LengthOf(value, budget));
  const bool up = stride > 0;
  auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound.has_value()) return otherwise;
    const int64_t place = *bound < 0 ? std::max(*bound, -size - 1) + size : *bound;
    return std::clamp<int64_t>(place, up ? 0 : -1, up ? size : size - 1);
  };
  const int64_t first = clamp(from, up ? 0 : size - 1);
  const int64_t last = clamp(to, up ? size : -1);
  if (value.Is(Kind::kString)) {
    const absl::string_view bytes = value.text().bytes();
    RETURN_IF_ERROR(budget->Bytes(bytes.size()));
    if (stride == 1) {
      const size_t from_byte = ByteOfCharacter(bytes, first);
      const size_t bytes_long =
          last > first ? ByteOfCharacter(bytes.substr(from_byte), last - first) : 0;
      return TemplateValue::String(value.text().Part(from_byte, from_byte + bytes_long));
    }
    RETURN_IF_ERROR(budget->Steps(size));
    std::vector<size_t> starts;
    for (size_t pos = 0; pos < bytes.size(); DecodeUtf8(bytes, &pos)) starts.push_back(pos);
    starts.push_back(bytes.size());
    TemplateText text;
    for (int64_t i = first; up ? i < last : i > last;) {
      if (i + 1 < static_cast<int64_t>(starts.size()))
        text.Append(value.text(), starts[i], starts[i + 1]);
      if (__builtin_add_overflow(i, stride, &i)) break;
    }
    return TemplateValue::String(std::move(text));
  }
  RETURN_IF_ERROR(budget->Steps(size));
  TemplateValue::List list;
  for (int64_t i = first; up ? i < last : i > last;) {
    list.push_back(value.list()[i]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  return TemplateValue::Sequence(value.kind(), std::move(list));
}

absl::StatusOr<TemplateValue::List> Elements(const TemplateValue& value, TemplateBudget* budget) {
  TemplateValue::List list;
  switch (value.kind()) {
    case Kind::kUndefined:
      return list;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator:
      RETURN_IF_ERROR(budget->Steps(value.list().size()));
      return value.list();
    case Kind::kDict:
      RETURN_IF_ERROR(budget->Steps(value.entries().size()));
      for (const auto& entry : value.entries()) list.push_back(entry.first);
      return list;
    case Kind::kString: {
      const absl::string_view bytes = value.text().bytes();
      ASSIGN_OR_RETURN(const int64_t size, LengthOf(value, budget));
      RETURN_IF_ERROR(budget->Steps(size));
      list.reserve(size);
      // All that are the same ASCII character, and said by the same, are one value.
      constexpr size_t kNumAscii = 128;
      TemplateValue::List known(2 * kNumAscii);
      for (size_t pos = 0; pos < bytes.size();) {
        const size_t begin = pos;
        const uint32_t c = DecodeUtf8(bytes, &pos);
        TemplateValue other;
        const bool markup = value.text().KindAt(begin) == TextKind::kMarkup;
        TemplateValue& one = c < kNumAscii ? known[c + (markup ? kNumAscii : 0)] : other;
        if (one.Is(Kind::kUndefined)) {
          RETURN_IF_ERROR(budget->Bytes(sizeof(TemplateText)));
          one = TemplateValue::String(value.text().Part(begin, pos));
        }
        list.push_back(one);
      }
      return list;
    }
    default:
      return TemplateError(absl::StrCat("a '", value.TypeName(), "' cannot be looped over"));
  }
}

absl::StatusOr<int64_t> LengthOf(const TemplateValue& value, TemplateBudget* budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      RETURN_IF_ERROR(budget->Bytes(value.text().size()));
      return CountCharacters(value.text().bytes());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return static_cast<int64_t>(value.list().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.entries().size());
    default:
      return TemplateError(absl::StrCat("a '", value.TypeName(), "' has no length"));
  }
}

}  // namespace lm

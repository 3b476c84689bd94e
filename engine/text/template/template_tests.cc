// The tests of chat templates: what stands behind `is`.
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/template_call.h"
#include "engine/text/template/template_operators.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Arguments = TemplateArguments;
using Operator = TemplateExpression::Operator;
using Holding = absl::StatusOr<bool>;
using Budget = TemplateBudget;

template <Kind kind>
Holding IsKind(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.Is(kind);
}

Holding Defined(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return !value.Is(Kind::kUndefined);
}

template <bool wanted>
Holding IsBool(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.Is(Kind::kBool) && (value.integer() != 0) == wanted;
}

Holding Number(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.is_number();
}

Holding Sequence(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  switch (value.kind()) {
    case Kind::kUndefined:  // it has a length and an operator []
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return true;
    default:
      return false;
  }
}

Holding Iterable(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.is_sequence() || value.Is(Kind::kUndefined) || value.Is(Kind::kString) ||
         value.Is(Kind::kDict) || value.Is(Kind::kLoop);
}

Holding Callable(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.Is(Kind::kUndefined) || value.Is(Kind::kMacro) || value.Is(Kind::kFunction) ||
         value.Is(Kind::kMethod);
}

template <Operator op>
Holding Compared(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a test", {"other"}));
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr) return absl::InvalidArgumentError("a test lacks its argument");
  return Holds(op, value, *other, budget);
}

// The same list or dict; of what has no identity here, the same value of the same type.
Holding SameAs(const Value& value, const Arguments& arguments, Budget* budget) {
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr) return absl::InvalidArgumentError("a test lacks its argument");
  if (value.kind() != other->kind()) return false;
  if (value.Is(Kind::kList)) return &value.list() == &other->list();
  if (value.Is(Kind::kDict)) return &value.entries() == &other->entries();
  return SameValue(value, *other, budget);
}

absl::StatusOr<int64_t> Remainder(const Value& value, const Value& divisor, Budget* budget) {
  ASSIGN_OR_RETURN(Value remainder, Calculate(Operator::kModulo, value, divisor, budget));
  if (!remainder.is_integer()) return absl::InvalidArgumentError("a test of what is no integer");
  return remainder.integer();
}

template <int wanted>
Holding Parity(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  ASSIGN_OR_RETURN(int64_t remainder, Remainder(value, Value::Integer(2), budget));
  return remainder == wanted;
}

Holding DivisibleBy(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("divisibleby", {"num"}));
  const Value* divisor = arguments.Find(0, "num");
  if (divisor == nullptr) return absl::InvalidArgumentError("a test lacks its argument");
  ASSIGN_OR_RETURN(int64_t remainder, Remainder(value, *divisor, budget));
  return remainder == 0;
}

// `is lower` and `is upper` ask the string for islower() and isupper().
template <bool upper>
Holding IsCased(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  static const TemplateMethod* const kMethod = FindTemplateMethod(upper ? "isupper" : "islower");
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  ASSIGN_OR_RETURN(Value result, kMethod->of_string(text, {}, budget));
  return result.Truth();
}

template <typename Found, Found* (*find)(absl::string_view)>
Holding Exists(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("a test", {}));
  return value.Is(Kind::kString) && find(value.text().bytes()) != nullptr;
}

struct NamedTest {
  absl::string_view name;
  TemplateTest* test;
};

constexpr NamedTest kTests[] = {
    {"defined", &Defined},
    {"undefined", &IsKind<Kind::kUndefined>},
    {"none", &IsKind<Kind::kNone>},
    {"string", &IsKind<Kind::kString>},
    {"mapping", &IsKind<Kind::kDict>},
    {"boolean", &IsKind<Kind::kBool>},
    {"integer", &IsKind<Kind::kInteger>},
    {"float", &IsKind<Kind::kFloat>},
    {"true", &IsBool<true>},
    {"false", &IsBool<false>},
    {"number", &Number},
    {"sequence", &Sequence},
    {"iterable", &Iterable},
    {"callable", &Callable},
    {"odd", &Parity<1>},
    {"even", &Parity<0>},
    {"divisibleby", &DivisibleBy},
    {"lower", &IsCased<false>},
    {"upper", &IsCased<true>},
    {"sameas", &SameAs},
    {"in", &Compared<Operator::kIn>},
    {"==", &Compared<Operator::kEqual>},
    {"eq", &Compared<Operator::kEqual>},
    {"equalto", &Compared<Operator::kEqual>},
    {"!=", &Compared<Operator::kNotEqual>},
    {"ne", &Compared<Operator::kNotEqual>},
    {"<", &Compared<Operator::kLess>},
    {"lt", &Compared<Operator::kLess>},
    {"lessthan", &Compared<Operator::kLess>},
    {"<=", &Compared<Operator::kLessOrEqual>},
    {"le", &Compared<Operator::kLessOrEqual>},
    {">", &Compared<Operator::kGreater>},
    {"gt", &Compared<Operator::kGreater>},
    {"greaterthan", &Compared<Operator::kGreater>},
    {">=", &Compared<Operator::kGreaterOrEqual>},
    {"ge", &Compared<Operator::kGreaterOrEqual>},
    {"filter", &Exists<TemplateFilter, &FindTemplateFilter>},
    {"test", &Exists<TemplateTest, &FindTemplateTest>},
};

}  // namespace

TemplateTest* FindTemplateTest(absl::string_view name) {
  for (const NamedTest& named : kTests) {
    if (named.name == name) return named.test;
  }
  return nullptr;
}

}  // namespace lm

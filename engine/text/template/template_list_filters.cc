#include "engine/text/template/template_list_filters.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/template_operators.h"
#include "engine/text/template/template_strings.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Arguments = TemplateArguments;
using Result = absl::StatusOr<TemplateValue>;
using Budget = TemplateBudget;

Value ListOf(Value::List list) { return Value::Sequence(Kind::kList, std::move(list)); }
Value GeneratorOf(Value::List list) { return Value::Sequence(Kind::kGenerator, std::move(list)); }

// value["a"]["b"] of the attribute "a.b", value[0] of 0; undefined where the last is missing.
Result Attribute(const Value& value, const Value& attribute, Budget* budget) {
  if (attribute.is_integer()) {
    if (!value.Is(Kind::kList) && !value.Is(Kind::kTuple)) return Value();
    return ElementAt(value, attribute.integer(), budget);
  }
  if (!attribute.Is(Kind::kString)) return TemplateError("an attribute must be a name");
  RETURN_IF_ERROR(budget->Bytes(attribute.text().size()));
  Value current = value;
  for (absl::string_view part : absl::StrSplit(attribute.text().bytes(), '.')) {
    RETURN_IF_ERROR(budget->Steps(1));
    if (current.Is(Kind::kUndefined)) return TemplateError("an attribute of what is undefined");
    int64_t index = 0;
    if (current.Is(Kind::kDict)) {
      ASSIGN_OR_RETURN(const Value* found, current.Find(part, budget));
      current = found != nullptr ? *found : Value();
    } else if ((current.Is(Kind::kList) || current.Is(Kind::kTuple)) &&
               absl::SimpleAtoi(part, &index)) {
      ASSIGN_OR_RETURN(current, ElementAt(current, index, budget));
    } else {
      current = Value();
    }
  }
  return current;
}

// What is compared in place of a value: its attribute, in lower case where case does not count.
Result SortKey(const Value& value, const Value* attribute, bool case_sensitive, Budget* budget) {
  Value key = value;
  if (attribute != nullptr && !attribute->Is(Kind::kNone)) {
    ASSIGN_OR_RETURN(key, Attribute(value, *attribute, budget));
  }
  if (case_sensitive || !key.Is(Kind::kString)) return key;
  RETURN_IF_ERROR(budget->Bytes(4 * key.text().size()));
  return Value::String(ChangeCase(key.text(), TextCase::kLower));
}

struct Keyed {
  Value key;
  Value value;
};

absl::StatusOr<std::vector<Keyed>> KeyedElements(const Value& value, const Value* attribute,
                                                 bool case_sensitive, Budget* budget) {
  ASSIGN_OR_RETURN(Value::List list, Elements(value, budget));
  std::vector<Keyed> keyed;
  for (Value& element : list) {
    ASSIGN_OR_RETURN(Value key, SortKey(element, attribute, case_sensitive, budget));
    keyed.push_back({std::move(key), std::move(element)});
  }
  return keyed;
}

absl::Status SortByKey(bool reverse, Budget* budget, std::vector<Keyed>* keyed) {
  absl::Status status;
  std::stable_sort(keyed->begin(), keyed->end(), [&](const Keyed& a, const Keyed& b) {
    if (!status.ok()) return false;
    absl::StatusOr<int> order = CompareValues(a.key, b.key, budget);
    if (!order.ok()) status = order.status();
    return order.ok() && (reverse ? *order > 0 : *order < 0);
  });
  return status;
}

Value Values(std::vector<Keyed> keyed) {
  Value::List list;
  for (Keyed& one : keyed) list.push_back(std::move(one.value));
  return ListOf(std::move(list));
}

Result Sort(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("sort", {"reverse", "case_sensitive", "attribute"}));
  const Value* attribute = arguments.Find(2, "attribute");
  if (attribute != nullptr && attribute->Is(Kind::kString) &&
      absl::StrContains(attribute->text().bytes(), ',')) {
    return TemplateError("sort by several attributes is not supported");
  }
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedElements(value, attribute, arguments.IsTrue(1, "case_sensitive"), budget));
  RETURN_IF_ERROR(SortByKey(arguments.IsTrue(0, "reverse"), budget, &keyed));
  return Values(std::move(keyed));
}

Result DictSort(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("dictsort", {"case_sensitive", "by", "reverse"}));
  if (!value.Is(Kind::kDict))
    return TemplateError(absl::StrCat("dictsort of a '", value.TypeName(), "'"));
  const Value* by = arguments.Find(1, "by");
  const absl::string_view what = by == nullptr           ? "key"
                                 : by->Is(Kind::kString) ? by->text().bytes()
                                                         : absl::string_view();
  if (what != "key" && what != "value")
    return TemplateError("dictsort by something else than key, value");
  std::vector<Keyed> keyed;
  for (const auto& [key, element] : value.entries()) {
    RETURN_IF_ERROR(budget->Steps(2));
    ASSIGN_OR_RETURN(Value sort_key, SortKey(what == "key" ? key : element, nullptr,
                                             arguments.IsTrue(0, "case_sensitive"), budget));
    keyed.push_back({std::move(sort_key), Value::Sequence(Kind::kTuple, {key, element})});
  }
  RETURN_IF_ERROR(SortByKey(arguments.IsTrue(2, "reverse"), budget, &keyed));
  return Values(std::move(keyed));
}

Result Unique(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("unique", {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedElements(value, arguments.Find(1, "attribute"),
                                 arguments.IsTrue(0, "case_sensitive"), budget));
  Value::List seen;
  Value::List list;
  for (Keyed& one : keyed) {
    bool is_new = true;
    for (const Value& other : seen) {
      ASSIGN_OR_RETURN(bool same, SameValue(one.key, other, budget));
      is_new &= !same;
    }
    if (!is_new) continue;
    seen.push_back(std::move(one.key));
    list.push_back(std::move(one.value));
  }
  return GeneratorOf(std::move(list));
}

template <bool largest>
Result Extreme(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("min or max", {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedElements(value, arguments.Find(1, "attribute"),
                                 arguments.IsTrue(0, "case_sensitive"), budget));
  if (keyed.empty()) return Value();
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    ASSIGN_OR_RETURN(int order, CompareValues(keyed[i].key, keyed[best].key, budget));
    if (largest ? order > 0 : order < 0) best = i;
  }
  return keyed[best].value;
}

Result Sum(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("sum", {"attribute", "start"}));
  const Value* attribute = arguments.Find(0, "attribute");
  const Value* start = arguments.Find(1, "start");
  Value sum = start != nullptr ? *start : Value::Integer(0);
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  for (const Value& element : list) {
    ASSIGN_OR_RETURN(const Value term, SortKey(element, attribute, true, budget));
    ASSIGN_OR_RETURN(sum, Calculate(TemplateExpression::Operator::kAdd, sum, term, budget));
  }
  return sum;
}

Result First(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("first", {}));
  if (value.Is(Kind::kString)) return ElementAt(value, 0, budget);
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  return list.empty() ? Value() : list.front();
}

Result Last(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("last", {}));
  if (value.Is(Kind::kString)) return ElementAt(value, -1, budget);
  if (value.Is(Kind::kGenerator)) return TemplateError("last of a 'generator'");
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  return list.empty() ? Value() : list.back();
}

Result List(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("list", {}));
  ASSIGN_OR_RETURN(Value::List list, Elements(value, budget));
  return ListOf(std::move(list));
}

Result Reverse(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("reverse", {}));
  if (value.Is(Kind::kString)) {
    return Slice(value, Value(), Value(), Value::Integer(-1), budget);
  }
  ASSIGN_OR_RETURN(Value::List list, Elements(value, budget));
  std::reverse(list.begin(), list.end());
  return GeneratorOf(std::move(list));
}

Result Items(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("items", {}));
  if (value.Is(Kind::kUndefined)) return GeneratorOf({});
  if (!value.Is(Kind::kDict)) return TemplateError("Can only get item pairs from a mapping.");
  RETURN_IF_ERROR(budget->Steps(2 * value.entries().size()));
  Value::List list;
  for (const auto& [key, element] : value.entries()) {
    list.push_back(Value::Sequence(Kind::kTuple, {key, element}));
  }
  return GeneratorOf(std::move(list));
}

Result JoinElements(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("join", {"d", "attribute"}));
  const Value* separator = arguments.Find(0, "d");
  const Value* attribute = arguments.Find(1, "attribute");
  TemplateText between;
  if (separator != nullptr) RETURN_IF_ERROR(AppendString(*separator, budget, &between));
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  TemplateText text;
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(budget->Bytes(between.size()));
    if (i > 0) text.Append(between);
    ASSIGN_OR_RETURN(const Value element, SortKey(list[i], attribute, true, budget));
    RETURN_IF_ERROR(AppendString(element, budget, &text));
  }
  return Value::String(std::move(text));
}

// map(attribute="a", default=b), or map("filter", arguments of that).
Result Map(const Value& value, const Arguments& arguments, Budget* budget) {
  if (!value.Truth()) return GeneratorOf({});  // as Python has it, None too
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  Value::List results;
  if (arguments.values.empty()) {
    RETURN_IF_ERROR(arguments.Check("map", {"attribute", "default"}));
    const Value* attribute = arguments.Find(SIZE_MAX, "attribute");
    const Value* otherwise = arguments.Find(SIZE_MAX, "default");
    if (attribute == nullptr) return TemplateError("map requires a filter argument");
    for (const Value& element : list) {
      ASSIGN_OR_RETURN(Value result, Attribute(element, *attribute, budget));
      if (result.Is(Kind::kUndefined) && otherwise != nullptr) result = *otherwise;
      results.push_back(std::move(result));
    }
    return GeneratorOf(std::move(results));
  }
  if (!arguments.values[0].Is(Kind::kString))
    return TemplateError("map takes the name of a filter");
  const absl::string_view name = arguments.values[0].text().bytes();
  TemplateFilter* const filter = FindTemplateFilter(name);
  if (filter == nullptr) return TemplateError(absl::StrCat("No filter named ", QuoteName(name)));
  Arguments rest = arguments;
  rest.values.erase(rest.values.begin());
  RETURN_IF_ERROR(budget->CheckStack());
  for (const Value& element : list) {
    RETURN_IF_ERROR(budget->Steps(1));
    ASSIGN_OR_RETURN(Value result, filter(element, rest, budget));
    results.push_back(std::move(result));
  }
  return GeneratorOf(std::move(results));
}

// select, reject, and with `by_attribute` selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Result Choose(const Value& value, const Arguments& arguments, Budget* budget) {
  if (!value.Truth()) return GeneratorOf({});  // as Python has it, None too
  Arguments rest = arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.values.empty()) return TemplateError("Missing parameter for attribute name");
    attribute = rest.values[0];
    rest.values.erase(rest.values.begin());
  }
  TemplateTest* test = nullptr;
  if (!rest.values.empty()) {
    const Value name = rest.values[0];
    if (name.Is(Kind::kString)) test = FindTemplateTest(name.text().bytes());
    if (test == nullptr) return TemplateError("No test of that name");
    rest.values.erase(rest.values.begin());
  }
  ASSIGN_OR_RETURN(const Value::List list, Elements(value, budget));
  Value::List chosen;
  for (const Value& element : list) {
    RETURN_IF_ERROR(budget->Steps(1));
    ASSIGN_OR_RETURN(const Value subject,
                     SortKey(element, by_attribute ? &attribute : nullptr, true, budget));
    bool holds = subject.Truth();
    if (test != nullptr) {
      ASSIGN_OR_RETURN(holds, test(subject, rest, budget));
    }
    if (holds == wanted) chosen.push_back(element);
  }
  return GeneratorOf(std::move(chosen));
}

struct NamedListFilter {
  absl::string_view name;
  TemplateFilter* filter;
};

constexpr NamedListFilter kListFilters[] = {
    {"dictsort", &DictSort},
    {"first", &First},
    {"items", &Items},
    {"join", &JoinElements},
    {"last", &Last},
    {"list", &List},
    {"map", &Map},
    {"max", &Extreme<true>},
    {"min", &Extreme<false>},
    {"reject", &Choose<false, false>},
    {"rejectattr", &Choose<false, true>},
    {"reverse", &Reverse},
    {"select", &Choose<true, false>},
    {"selectattr", &Choose<true, true>},
    {"sort", &Sort},
    {"sum", &Sum},
    {"unique", &Unique},
};

}  // namespace

TemplateFilter* FindTemplateListFilter(absl::string_view name) {
  for (const NamedListFilter& named : kListFilters) {
    if (named.name == name) return named.filter;
  }
  return nullptr;
}

}  // namespace lm

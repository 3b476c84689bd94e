// The filters of chat templates: what stands behind a bar. Those over one value; for those over
// lists see template_list_filters.cc.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/template/template_call.h"
#include "engine/text/template/template_json.h"
#include "engine/text/template/template_list_filters.h"
#include "engine/text/template/template_operators.h"
#include "engine/text/template/template_strings.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Arguments = TemplateArguments;
using Result = absl::StatusOr<TemplateValue>;
using Budget = TemplateBudget;

// value.method(...) of str(value).
absl::StatusOr<Value> CallOnString(absl::string_view method, const Value& value,
                                   const Arguments& arguments, Budget* budget) {
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  return FindTemplateMethod(method)->of_string(text, arguments, budget);
}

Result Trim(const Value& value, const Arguments& arguments, Budget* budget) {
  return CallOnString("strip", value, arguments, budget);
}
Result Lower(const Value& value, const Arguments& arguments, Budget* budget) {
  return CallOnString("lower", value, arguments, budget);
}
Result Upper(const Value& value, const Arguments& arguments, Budget* budget) {
  return CallOnString("upper", value, arguments, budget);
}
Result Capitalize(const Value& value, const Arguments& arguments, Budget* budget) {
  return CallOnString("capitalize", value, arguments, budget);
}

// A capital after white space and after - ( { [ <.
Result Title(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("title", {}));
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  const absl::string_view bytes = text.text().bytes();
  RETURN_IF_ERROR(budget->Bytes(4 * bytes.size()));
  TemplateText result;
  bool starts = true;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(bytes, &pos);
    const absl::string_view character = bytes.substr(begin, pos - begin);
    result.Append(starts ? ToUpperCharacter(character) : LowerCharacter(character),
                  text.text().KindAt(begin));
    starts = IsUnicodeSpace(c) || (c < 0x80 && absl::StrContains("-({[<", static_cast<char>(c)));
  }
  return Value::String(std::move(result));
}

Result String(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("string", {}));
  return ToString(value, budget);
}

Result Safe(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("safe", {}));
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  return std::move(text).Safe();
}

Result Escape(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("escape", {}));
  if (value.is_safe()) return value;
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  RETURN_IF_ERROR(budget->Bytes(6 * text.text().size()));
  return Value::String(EscapeHtml(text.text())).Safe();
}

Result Default(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("default", {"default_value", "boolean"}));
  const bool replaced =
      value.Is(Kind::kUndefined) || (arguments.IsTrue(1, "boolean") && !value.Truth());
  if (!replaced) return value;
  const Value* otherwise = arguments.Find(0, "default_value");
  return otherwise != nullptr ? *otherwise : Value::Template("");
}

Result Length(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("length", {}));
  ASSIGN_OR_RETURN(int64_t length, LengthOf(value, budget));
  return Value::Integer(length);
}

Result Abs(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("abs", {}));
  if (!value.is_number()) return TemplateError(absl::StrCat("abs of a '", value.TypeName(), "'"));
  if (value.number() >= 0 && !value.Is(Kind::kBool)) return value;
  return Calculate(TemplateExpression::Operator::kMultiply, value,
                   Value::Integer(value.number() < 0 ? -1 : 1), budget);
}

// As Python reads numbers, with underscores between digits.
std::string WithoutUnderscores(absl::string_view text) {
  std::string number;
  auto is_digit = [text](size_t at) { return at < text.size() && absl::ascii_isdigit(text[at]); };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1);
    if (!between) number.push_back(text[i]);
  }
  return number;
}

// Python's float() of a text: without the digits that C has besides, as in 0x1f.
bool IsNumber(absl::string_view text, double* number) {
  return text.find_first_of("xX(") == text.npos && absl::SimpleAtod(text, number);
}

Result ToInt(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("int", {"default", "base"}));
  if (arguments.Find(1, "base") != nullptr)
    return TemplateError("int with a base is not supported");
  const Value* given = arguments.Find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value::Integer(0);
  double number = 0;
  if (value.is_integer()) return Value::Integer(value.integer()).FromInput(value.from_input());
  if (value.Is(Kind::kFloat)) {
    number = value.number();
  } else if (value.Is(Kind::kString)) {
    const bool from_input = value.text().WholeKind() == TextKind::kInput;
    RETURN_IF_ERROR(budget->Bytes(2 * value.text().size()));
    const std::string text = WithoutUnderscores(value.text().bytes());
    int64_t integer = 0;
    if (absl::SimpleAtoi(text, &integer)) return Value::Integer(integer).FromInput(from_input);
    if (!IsNumber(text, &number)) return otherwise;
  } else if (value.Is(Kind::kUndefined)) {
    return TemplateError("int of what is undefined");
  } else {
    return otherwise;
  }
  if (std::isnan(number)) return otherwise;
  if (!(std::abs(number) < 9e18)) return TemplateError("a number beyond 64 bits");
  return Value::Integer(static_cast<int64_t>(number)).FromInput();
}

Result ToFloat(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("float", {"default"}));
  const Value* given = arguments.Find(0, "default");
  double number = 0;
  if (value.is_number()) return Value::Float(value.number()).FromInput(value.from_input());
  if (value.Is(Kind::kUndefined)) return TemplateError("float of what is undefined");
  if (value.Is(Kind::kString)) {
    RETURN_IF_ERROR(budget->Bytes(2 * value.text().size()));
    if (IsNumber(WithoutUnderscores(value.text().bytes()), &number)) {
      return Value::Float(number).FromInput();
    }
  }
  return given != nullptr ? *given : Value::Float(0);
}

Result Round(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("round", {"precision", "method"}));
  const Value* precision = arguments.Find(0, "precision");
  const Value* method = arguments.Find(1, "method");
  const bool plain = precision == nullptr || (precision->is_integer() && precision->integer() == 0);
  const absl::string_view how =
      method != nullptr && method->Is(Kind::kString) ? method->text().bytes() : "common";
  if (!value.is_number() || !plain) return TemplateError("round of this is not supported");
  double number = value.number();
  if (how == "common") {
    if (value.is_integer()) return Value::Integer(value.integer()).FromInput(value.from_input());
    number = std::nearbyint(number);  // halves to even
  } else if (how == "ceil") {
    number = std::ceil(number);
  } else if (how == "floor") {
    number = std::floor(number);
  } else {
    return TemplateError("method must be common, ceil or floor");
  }
  return Value::Float(number).FromInput(value.from_input());
}

Result ReplaceAll(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("replace", {"old", "new", "count"}));
  Arguments strings;
  for (size_t i = 0; i < 2; ++i) {
    const Value* argument = arguments.Find(i, i == 0 ? "old" : "new");
    if (argument == nullptr) return TemplateError("replace takes two strings");
    ASSIGN_OR_RETURN(Value text, ToString(*argument, budget));
    strings.values.push_back(std::move(text));
  }
  const Value* count = arguments.Find(2, "count");
  if (count != nullptr && !count->Is(Kind::kNone)) strings.values.push_back(*count);
  return CallOnString("replace", value, strings, budget);
}

// str(value) % arguments
Result FormatValue(const Value& value, const Arguments& arguments, Budget* budget) {
  ASSIGN_OR_RETURN(Value text, ToString(value, budget));
  if (arguments.keywords.empty()) {
    return FormatPercent(text.text(), Value::Sequence(Kind::kTuple, arguments.values), budget);
  }
  Value::Entries entries;
  for (const auto& [keyword, argument] : arguments.keywords) {
    entries.emplace_back(Value::Template(keyword), argument);
  }
  return FormatPercent(text.text(), Value::Dict(std::move(entries)), budget);
}

// The text that `width` stands for: so many spaces, or itself.
absl::StatusOr<TemplateText> Indention(const Value* width, int64_t otherwise) {
  constexpr int64_t kMost = 1000;
  if (width != nullptr && width->Is(Kind::kString)) return width->text();
  const int64_t spaces = width != nullptr ? width->integer() : otherwise;
  if (width != nullptr && !width->is_integer()) return TemplateError("a width must be int or str");
  if (spaces > kMost) return TemplateError(absl::StrCat("a width of more than ", kMost));
  return TemplateText(std::string(std::max<int64_t>(spaces, 0), ' '), TextKind::kMarkup);
}

Result Indent(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("indent", {"width", "first", "blank"}));
  ASSIGN_OR_RETURN(const TemplateText indention, Indention(arguments.Find(0, "width"), 4));
  const bool first = arguments.IsTrue(1, "first");
  const bool blank = arguments.IsTrue(2, "blank");
  if (!value.Is(Kind::kString))
    return TemplateError(absl::StrCat("indent of a '", value.TypeName(), "'"));
  TemplateText source = value.text();
  source.Append("\n", TextKind::kMarkup);
  ASSIGN_OR_RETURN(const Value::List lines, SplitLines(source, budget));
  TemplateText result;
  for (size_t i = 0; i < lines.size(); ++i) {
    const TemplateText& line = lines[i].text();
    RETURN_IF_ERROR(budget->Bytes(line.size() + indention.size() + 1));
    if (i > 0) result.Append("\n", TextKind::kMarkup);
    if (i == 0 ? first : blank || !line.empty()) result.Append(indention);
    result.Append(line);
  }
  return Value::String(std::move(result));
}

Result ToJson(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  TemplateJsonForm form;
  form.ensure_ascii = arguments.IsTrue(0, "ensure_ascii");
  form.sort_keys = arguments.IsTrue(3, "sort_keys");
  if (const Value* indent = arguments.Find(1, "indent");
      indent != nullptr && !indent->Is(Kind::kNone)) {
    ASSIGN_OR_RETURN(const TemplateText indention, Indention(indent, 0));
    form.is_indented = true;
    form.indent = std::string(indention.bytes());
    form.item_separator.resize(1);  // no space at the ends of lines
  }
  if (const Value* separators = arguments.Find(2, "separators");
      separators != nullptr && !separators->Is(Kind::kNone)) {
    const bool pair = (separators->Is(Kind::kTuple) || separators->Is(Kind::kList)) &&
                      separators->list().size() == 2 && separators->list()[0].Is(Kind::kString) &&
                      separators->list()[1].Is(Kind::kString);
    if (!pair) return TemplateError("separators must be two strings");
    form.item_separator = std::string(separators->list()[0].text().bytes());
    form.key_separator = std::string(separators->list()[1].text().bytes());
  }
  TemplateText text;
  RETURN_IF_ERROR(AppendJson(value, form, budget, &text));
  return Value::String(std::move(text));
}

struct NamedFilter {
  absl::string_view name;
  TemplateFilter* filter;
};

constexpr NamedFilter kTextFilters[] = {
    {"tojson", &ToJson},      {"length", &Length}, {"count", &Length},
    {"trim", &Trim},          {"string", &String}, {"default", &Default},
    {"d", &Default},          {"safe", &Safe},     {"lower", &Lower},
    {"upper", &Upper},        {"title", &Title},   {"capitalize", &Capitalize},
    {"replace", &ReplaceAll}, {"indent", &Indent}, {"format", &FormatValue},
    {"int", &ToInt},          {"float", &ToFloat}, {"abs", &Abs},
    {"round", &Round},        {"escape", &Escape}, {"e", &Escape},
};

}  // namespace

TemplateFilter* FindTemplateFilter(absl::string_view name) {
  for (const NamedFilter& named : kTextFilters) {
    if (named.name == name) return named.filter;
  }
  return FindTemplateListFilter(name);
}

}  // namespace lm

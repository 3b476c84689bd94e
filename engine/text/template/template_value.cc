#include "engine/text/template/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printed.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;

template <typename T>
std::shared_ptr<const T> MakeCounted(T object) {
  return std::allocate_shared<T>(CountedAllocator<T>(), std::move(object));
}

const std::shared_ptr<const TemplateText>& EmptyText() {
  static const auto* const kEmpty =
      new std::shared_ptr<const TemplateText>(std::make_shared<TemplateText>());
  return *kEmpty;
}

// Three-way comparison of an integer and a float is exact in Python; beyond 2^53 it is not here.
int Order(double a, double b) { return a < b ? -1 : a > b ? 1 : 0; }

absl::Status AppendFloat(const TemplateValue& value, TemplateBudget* budget, TemplateText* out) {
  const std::string text = value.FloatText();
  RETURN_IF_ERROR(budget->Bytes(text.size()));
  out->Append(text, value.from_input() ? TextKind::kInput : TextKind::kMarkup);
  return absl::OkStatus();
}

absl::Status AppendQuoted(const TemplateText& text, TemplateBudget* budget, TemplateText* out) {
  const absl::string_view bytes = text.bytes();
  RETURN_IF_ERROR(budget->Bytes(2 * bytes.size()));
  const char quote = absl::StrContains(bytes, '\'') && !absl::StrContains(bytes, '"') ? '"' : '\'';
  out->Append(absl::string_view(&quote, 1), TextKind::kInput);
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(bytes, &pos);
    const TextKind kind = text.KindAt(begin);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out->Append("\\", kind);
      out->Append(text, begin, pos);
    } else if (c == '\n') {
      out->Append("\\n", kind);
    } else if (c == '\r') {
      out->Append("\\r", kind);
    } else if (c == '\t') {
      out->Append("\\t", kind);
    } else if (IsPrintable(c)) {
      out->Append(text, begin, pos);
    } else if (c < 0x100) {
      out->Append(Printed("\\x%02x", c), kind);
    } else if (c < 0x10000) {
      out->Append(Printed("\\u%04x", c), kind);
    } else {
      out->Append(Printed("\\U%08x", c), kind);
    }
  }
  out->Append(absl::string_view(&quote, 1), TextKind::kInput);
  return absl::OkStatus();
}

absl::Status AppendList(const TemplateValue& value, TemplateBudget* budget, TemplateText* out) {
  const bool tuple = value.Is(Kind::kTuple);
  out->Append(tuple ? "(" : "[", TextKind::kInput);
  const TemplateValue::List& list = value.list();
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out->Append(", ", TextKind::kInput);
    RETURN_IF_ERROR(AppendRepr(list[i], budget, out));
  }
  out->Append(!tuple ? "]" : list.size() == 1 ? ",)" : ")", TextKind::kInput);
  return absl::OkStatus();
}

absl::Status AppendDict(const TemplateValue& value, TemplateBudget* budget, TemplateText* out) {
  absl::string_view separator = "{";
  for (const auto& [key, element] : value.entries()) {
    out->Append(separator, TextKind::kInput);
    separator = ", ";
    RETURN_IF_ERROR(AppendRepr(key, budget, out));
    out->Append(": ", TextKind::kInput);
    RETURN_IF_ERROR(AppendRepr(element, budget, out));
  }
  out->Append(value.entries().empty() ? "{}" : "}", TextKind::kInput);
  return absl::OkStatus();
}

}  // namespace

absl::Status TemplateBudget::TooManySteps() const {
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template takes more than ", max_steps_, " steps"));
}

absl::Status TemplateBudget::TooManyBytes() const {
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template handles more than ", max_bytes_, " bytes of text"));
}

absl::Status TemplateBudget::TooMuchMemory() const {
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template holds more than ", max_memory_, " bytes of memory"));
}

absl::Status TemplateBudget::TooDeep() {
  return absl::InvalidArgumentError(absl::StrCat("the chat template goes too deep: more than ",
                                                 kStackBytes >> 10, " KiB of stack"));
}

TemplateValue TemplateValue::None() { return Of(Kind::kNone, 0); }
TemplateValue TemplateValue::Bool(bool value) { return Of(Kind::kBool, value); }
TemplateValue TemplateValue::Integer(int64_t value) { return Of(Kind::kInteger, value); }

TemplateValue TemplateValue::Float(double value) {
  TemplateValue result;
  result.kind_ = Kind::kFloat;
  result.float_ = value;
  return result;
}

TemplateValue TemplateValue::LargeInteger(double value, absl::string_view digits) {
  TemplateValue result = Float(value);
  result.object_ = std::make_shared<const std::string>(digits);
  return result;
}

TemplateValue TemplateValue::String(TemplateText text) {
  TemplateValue value;
  value.kind_ = Kind::kString;
  value.object_ = text.empty() ? EmptyText() : MakeCounted(std::move(text));
  return value;
}

TemplateValue TemplateValue::Template(absl::string_view text) {
  return String(TemplateText(text, TextKind::kMarkup));
}

TemplateValue TemplateValue::Input(absl::string_view text) {
  return String(TemplateText(text, TextKind::kInput));
}

TemplateValue TemplateValue::Sequence(Kind kind, List elements) {
  TemplateValue value;
  value.kind_ = kind;
  for (const TemplateValue& element : elements)
    value.depth_ = std::max(value.depth_, element.depth_);
  if (value.depth_ < UINT8_MAX) ++value.depth_;
  value.object_ = MakeCounted(std::move(elements));
  return value;
}

TemplateValue TemplateValue::Dict(Entries entries) {
  TemplateValue value;
  value.kind_ = Kind::kDict;
  for (const auto& [key, element] : entries) {
    value.depth_ = std::max({value.depth_, key.depth_, element.depth_});
  }
  if (value.depth_ < UINT8_MAX) ++value.depth_;
  value.object_ = MakeCounted(std::move(entries));
  return value;
}

TemplateValue TemplateValue::Of(Kind kind, int64_t index) {
  TemplateValue value;
  value.kind_ = kind;
  value.integer_ = index;
  return value;
}

TemplateValue TemplateValue::Method(const TemplateMethod* method, TemplateValue receiver) {
  TemplateValue value;
  value.kind_ = Kind::kMethod;
  value.method_ = method;
  value.depth_ = std::min(receiver.depth_ + 1, UINT8_MAX);
  value.object_ = MakeCounted(std::move(receiver));
  return value;
}

double TemplateValue::number() const {
  return kind_ == Kind::kFloat ? float_ : static_cast<double>(integer_);
}

std::string TemplateValue::FloatText() const {
  if (object_ != nullptr) return *static_cast<const std::string*>(object_.get());
  return FloatRepr(float_);
}

const TemplateText& TemplateValue::text() const {
  return *static_cast<const TemplateText*>(object_.get());
}

const TemplateValue::List& TemplateValue::list() const {
  return *static_cast<const List*>(object_.get());
}

const TemplateValue::Entries& TemplateValue::entries() const {
  return *static_cast<const Entries*>(object_.get());
}

const TemplateMethod* TemplateValue::method() const { return method_; }

const TemplateValue& TemplateValue::receiver() const {
  return *static_cast<const TemplateValue*>(object_.get());
}

absl::StatusOr<const TemplateValue*> TemplateValue::Find(absl::string_view key,
                                                         TemplateBudget* budget) const {
  for (const auto& [name, value] : entries()) {
    RETURN_IF_ERROR(budget->Steps(1));
    if (name.kind_ != Kind::kString || name.text().size() != key.size()) continue;
    RETURN_IF_ERROR(budget->Bytes(key.size()));
    if (name.text().bytes() == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<const TemplateValue*> TemplateValue::Find(const TemplateValue& key,
                                                         TemplateBudget* budget) const {
  if (key.kind_ == Kind::kString) return Find(key.text().bytes(), budget);
  RETURN_IF_ERROR(budget->Steps(entries().size()));
  for (const auto& [name, value] : entries()) {
    if (name.kind_ == key.kind_
            ? name.integer_ == key.integer_
            : name.is_number() && key.is_number() && name.number() == key.number()) {
      return &value;
    }
  }
  return nullptr;
}

TemplateValue TemplateValue::FromInput(bool from_input) && {
  from_input_ = from_input;
  return std::move(*this);
}

TemplateValue TemplateValue::Safe() && {
  is_safe_ = true;
  return std::move(*this);
}

bool TemplateValue::Truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return integer_ != 0;
    case Kind::kFloat:
      return float_ != 0;
    case Kind::kString:
      return !text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !list().empty();
    case Kind::kDict:
      return !entries().empty();
    case Kind::kGenerator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kMethod:
      break;
  }
  return true;
}

const char* TemplateValue::TypeName() const {
  static constexpr const char* kNames[] = {
      "Undefined", "NoneType",  "bool", "int",       "float",       "str",   "list",     "tuple",
      "dict_view", "generator", "dict", "Namespace", "LoopContext", "Macro", "function", "method"};
  return kNames[static_cast<int>(kind_)];
}

absl::StatusOr<bool> SameValue(const TemplateValue& a, const TemplateValue& b,
                               TemplateBudget* budget) {
  RETURN_IF_ERROR(budget->Steps(1));
  if (a.is_number() && b.is_number()) {
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      RETURN_IF_ERROR(budget->Bytes(std::min(a.text().size(), b.text().size())));
      return a.text().bytes() == b.text().bytes();
    case Kind::kList:
    case Kind::kTuple:
      if (a.list().size() != b.list().size()) return false;
      for (size_t i = 0; i < a.list().size(); ++i) {
        ASSIGN_OR_RETURN(bool same, SameValue(a.list()[i], b.list()[i], budget));
        if (!same) return false;
      }
      return true;
    case Kind::kDict:
      if (a.entries().size() != b.entries().size()) return false;
      for (const auto& [key, value] : a.entries()) {
        ASSIGN_OR_RETURN(const TemplateValue* other, b.Find(key, budget));
        if (other == nullptr) return false;
        ASSIGN_OR_RETURN(bool same, SameValue(value, *other, budget));
        if (!same) return false;
      }
      return true;
    default:
      return !a.is_sequence() && !a.Is(Kind::kMethod) && a.integer() == b.integer();
  }
}

absl::StatusOr<int> CompareValues(const TemplateValue& a, const TemplateValue& b,
                                  TemplateBudget* budget) {
  RETURN_IF_ERROR(budget->Steps(1));
  if (a.is_number() && b.is_number()) {
    if (!a.is_integer() || !b.is_integer()) return Order(a.number(), b.number());
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    // UTF-8 sorts as its code points do.
    RETURN_IF_ERROR(budget->Bytes(std::min(a.text().size(), b.text().size())));
    const int order = a.text().bytes().compare(b.text().bytes());
    return order < 0 ? -1 : order > 0;
  }
  if (a.kind() == b.kind() && (a.Is(Kind::kList) || a.Is(Kind::kTuple))) {
    const size_t shared = std::min(a.list().size(), b.list().size());
    for (size_t i = 0; i < shared; ++i) {
      ASSIGN_OR_RETURN(bool same, SameValue(a.list()[i], b.list()[i], budget));
      if (!same) return CompareValues(a.list()[i], b.list()[i], budget);
    }
    return a.list().size() < b.list().size() ? -1 : a.list().size() > b.list().size();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", a.TypeName(), "' and '", b.TypeName(), "' have no order"));
}

bool IsHashable(const TemplateValue& value) { return value.kind() <= Kind::kString; }

absl::Status SetEntry(TemplateValue key, TemplateValue value, TemplateBudget* budget,
                      TemplateValue::Entries* entries) {
  if (!IsHashable(key)) {
    return absl::InvalidArgumentError(absl::StrCat("unhashable type: '", key.TypeName(), "'"));
  }
  RETURN_IF_ERROR(budget->Steps(entries->size() + 1));
  for (auto& [name, old] : *entries) {
    ASSIGN_OR_RETURN(bool same, SameValue(name, key, budget));
    if (!same) continue;
    old = std::move(value);
    return absl::OkStatus();
  }
  entries->emplace_back(std::move(key), std::move(value));
  return absl::OkStatus();
}

absl::Status AppendString(const TemplateValue& value, TemplateBudget* budget, TemplateText* out) {
  if (value.Is(Kind::kString)) {
    RETURN_IF_ERROR(budget->Bytes(value.text().size()));
    out->Append(value.text());
    return absl::OkStatus();
  }
  if (value.Is(Kind::kUndefined)) return absl::OkStatus();
  return AppendRepr(value, budget, out);
}

absl::Status AppendRepr(const TemplateValue& value, TemplateBudget* budget, TemplateText* out) {
  RETURN_IF_ERROR(budget->Steps(1));
  RETURN_IF_ERROR(budget->Bytes(16));
  const TextKind kind = value.from_input() ? TextKind::kInput : TextKind::kMarkup;
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined", kind);
      return absl::OkStatus();
    case Kind::kNone:
      out->Append("None", kind);
      return absl::OkStatus();
    case Kind::kBool:
      out->Append(value.integer() != 0 ? "True" : "False", kind);
      return absl::OkStatus();
    case Kind::kInteger:
      out->Append(absl::StrCat(value.integer()), kind);
      return absl::OkStatus();
    case Kind::kFloat:
      return AppendFloat(value, budget, out);
    case Kind::kString:
      return AppendQuoted(value.text(), budget, out);
    case Kind::kList:
    case Kind::kTuple:
      return AppendList(value, budget, out);
    case Kind::kDict:
      return AppendDict(value, budget, out);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a '", value.TypeName(), "' has no text that could be written"));
  }
}

absl::StatusOr<TemplateValue> ToString(const TemplateValue& value, TemplateBudget* budget) {
  if (value.Is(Kind::kString)) return value;
  TemplateText text;
  RETURN_IF_ERROR(AppendString(value, budget, &text));
  return TemplateValue::String(std::move(text));
}

TemplateText EscapeHtml(const TemplateText& text) {
  TemplateText escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text.bytes()[i]) {
      case '&':
        escaped.Append("&amp;", text.KindAt(i));
        break;
      case '<':
        escaped.Append("&lt;", text.KindAt(i));
        break;
      case '>':
        escaped.Append("&gt;", text.KindAt(i));
        break;
      case '"':
        escaped.Append("&#34;", text.KindAt(i));
        break;
      case '\'':
        escaped.Append("&#39;", text.KindAt(i));
        break;
      default:
        escaped.Append(text, i, i + 1);
    }
  }
  return escaped;
}

std::string FloatRepr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (number != 0 && (exponent < -4 || exponent >= 16)) return text;
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  return absl::StrContains(text, '.') ? text : text + ".0";
}

}  // namespace lm

// The methods that Python's str, list and dict have, as far as a sandbox lets templates call them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/template/template_call.h"
#include "engine/text/template/template_operators.h"
#include "engine/text/template/template_strings.h"
#include "engine/text/token_index.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Arguments = TemplateArguments;
using Result = absl::StatusOr<TemplateValue>;
using Budget = TemplateBudget;

// The string argument at `place`.
absl::StatusOr<const TemplateText*> TextAt(const Arguments& arguments, size_t place,
                                           absl::string_view name) {
  const Value* value = arguments.Find(place, name);
  if (value == nullptr) return TemplateError(absl::StrCat("the argument '", name, "' is missing"));
  if (!value->Is(Kind::kString)) {
    return TemplateError(absl::StrCat("'", name, "' must be str, not '", value->TypeName(), "'"));
  }
  return &value->text();
}

// The same where None or nothing means white space.
absl::StatusOr<std::optional<absl::string_view>> OptionalText(const Arguments& arguments,
                                                              size_t place,
                                                              absl::string_view name) {
  const Value* value = arguments.Find(place, name);
  if (value == nullptr || value->Is(Kind::kNone)) return std::nullopt;
  ASSIGN_OR_RETURN(const TemplateText* text, TextAt(arguments, place, name));
  return text->bytes();
}

absl::StatusOr<int64_t> IntegerAt(const Arguments& arguments, size_t place, absl::string_view name,
                                  int64_t otherwise) {
  const Value* value = arguments.Find(place, name);
  if (value == nullptr) return otherwise;
  if (!value->is_integer()) return TemplateError(absl::StrCat("'", name, "' must be an integer"));
  return value->integer();
}

template <TextSides sides>
Result Strip(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("strip", {"chars"}));
  ASSIGN_OR_RETURN(auto characters, OptionalText(arguments, 0, "chars"));
  const int64_t looks = 1 + static_cast<int64_t>(characters.value_or("").size() / 16);
  RETURN_IF_ERROR(budget->Looks(looks * value.text().size()));
  RETURN_IF_ERROR(budget->Bytes(value.text().size()));
  return Value::String(StripText(value.text(), characters, sides));
}

template <bool from_right>
Result Split(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("split", {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(auto separator, OptionalText(arguments, 0, "sep"));
  ASSIGN_OR_RETURN(const int64_t most, IntegerAt(arguments, 1, "maxsplit", -1));
  ASSIGN_OR_RETURN(Value::List parts, SplitText(value.text(), separator, most, from_right, budget));
  return Value::Sequence(Kind::kList, std::move(parts));
}

Result Lines(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("splitlines", {}));
  ASSIGN_OR_RETURN(Value::List lines, SplitLines(value.text(), budget));
  return Value::Sequence(Kind::kList, std::move(lines));
}

// Of str.find and its like; npos where it is not.
absl::StatusOr<size_t> Place(absl::string_view text, absl::string_view part, bool from_right,
                             Budget* budget) {
  if (from_right) return FindLast(text, part, budget);
  return FindFirst(text, part);
}

template <bool from_right>
Result Partition(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("partition", {"sep"}));
  ASSIGN_OR_RETURN(const TemplateText* separator, TextAt(arguments, 0, "sep"));
  if (separator->empty()) return TemplateError("empty separator");
  const TemplateText& text = value.text();
  RETURN_IF_ERROR(budget->Bytes(2 * text.size()));
  ASSIGN_OR_RETURN(const size_t found, Place(text.bytes(), separator->bytes(), from_right, budget));
  const bool none = found == absl::string_view::npos;
  const size_t begin = !none ? found : from_right ? 0 : text.size();
  const size_t end = none ? begin : found + separator->size();
  return Value::Sequence(Kind::kTuple,
                         {Value::String(text.Part(0, begin)), Value::String(text.Part(begin, end)),
                          Value::String(text.Part(end, text.size()))});
}

Result Replace(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("replace", {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const TemplateText* old, TextAt(arguments, 0, "old"));
  ASSIGN_OR_RETURN(const TemplateText* replacement, TextAt(arguments, 1, "new"));
  ASSIGN_OR_RETURN(const int64_t most, IntegerAt(arguments, 2, "count", -1));
  ASSIGN_OR_RETURN(TemplateText text,
                   ReplaceText(value.text(), old->bytes(), *replacement, most, budget));
  return Value::String(std::move(text));
}

template <TextCase wanted>
Result Case(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a method", {}));
  RETURN_IF_ERROR(budget->Looks(13 * value.text().size()));
  RETURN_IF_ERROR(budget->Bytes(3 * value.text().size()));  // "ß" is "SS", "ΐ" three characters
  return Value::String(ChangeCase(value.text(), wanted));
}

// startswith and endswith: of a string, or of one of a tuple.
template <bool at_start>
Result Affix(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check(at_start ? "startswith" : "endswith", {"affix"}));
  const Value* affix = arguments.Find(0, "affix");
  auto has = [&](const Value& part) -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(budget->Looks(std::min(value.text().size(), part.text().size())));
    return at_start ? absl::StartsWith(value.text().bytes(), part.text().bytes())
                    : absl::EndsWith(value.text().bytes(), part.text().bytes());
  };
  if (affix != nullptr && affix->Is(Kind::kString)) {
    ASSIGN_OR_RETURN(const bool holds, has(*affix));
    return Value::Bool(holds);
  }
  if (affix == nullptr || !affix->Is(Kind::kTuple)) {
    return TemplateError("startswith and endswith take a str or a tuple of str");
  }
  for (const Value& part : affix->list()) {
    RETURN_IF_ERROR(budget->Steps(1));
    if (!part.Is(Kind::kString)) return TemplateError("a tuple for startswith must be of str");
    ASSIGN_OR_RETURN(const bool holds, has(part));
    if (holds) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_start>
Result RemoveAffix(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("removeprefix or removesuffix", {"affix"}));
  ASSIGN_OR_RETURN(const TemplateText* affix, TextAt(arguments, 0, "affix"));
  const TemplateText& text = value.text();
  RETURN_IF_ERROR(budget->Bytes(text.size()));
  if (at_start && absl::StartsWith(text.bytes(), affix->bytes())) {
    return Value::String(text.Part(affix->size(), text.size()));
  }
  if (!at_start && absl::EndsWith(text.bytes(), affix->bytes())) {
    return Value::String(text.Part(0, text.size() - affix->size()));
  }
  return value;
}

// find, rfind and index.
template <bool from_right, bool must>
Result Find(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("find or index", {"sub"}));
  ASSIGN_OR_RETURN(const TemplateText* part, TextAt(arguments, 0, "sub"));
  const absl::string_view bytes = value.text().bytes();
  RETURN_IF_ERROR(budget->Looks(2 * bytes.size()));
  ASSIGN_OR_RETURN(const size_t found, Place(bytes, part->bytes(), from_right, budget));
  if (found != absl::string_view::npos) {
    return Value::Integer(CountCharacters(bytes.substr(0, found)));
  }
  if (must) return TemplateError("substring not found");
  return Value::Integer(-1);
}

Result Count(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("count", {"sub"}));
  ASSIGN_OR_RETURN(const TemplateText* part, TextAt(arguments, 0, "sub"));
  const absl::string_view bytes = value.text().bytes();
  RETURN_IF_ERROR(budget->Looks(bytes.size()));
  if (part->empty()) return Value::Integer(CountCharacters(bytes) + 1);
  int64_t count = 0;
  for (size_t pos = 0; (pos = FindFirst(bytes, part->bytes(), pos)) != absl::string_view::npos;) {
    ++count;
    pos += part->size();
  }
  return Value::Integer(count);
}

// isdigit and its like: of every character, and there must be one.
template <bool (*holds)(uint32_t)>
Result All(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a method", {}));
  const absl::string_view bytes = value.text().bytes();
  RETURN_IF_ERROR(budget->Looks(16 * bytes.size()));
  for (size_t pos = 0; pos < bytes.size();) {
    if (!holds(DecodeUtf8(bytes, &pos))) return Value::Bool(false);
  }
  return Value::Bool(!bytes.empty());
}
bool IsAlphabetic(uint32_t c) { return IsInClass(c, CharacterClass::kLetter); }
bool IsDecimal(uint32_t c) { return IsInClass(c, CharacterClass::kDecimal); }
bool IsAlphanumeric(uint32_t c) { return IsAlphabetic(c) || IsInClass(c, CharacterClass::kNumber); }

// isupper and islower: no character of the other case, and one that has a case.
template <bool upper>
Result IsCase(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("a method", {}));
  const absl::string_view bytes = value.text().bytes();
  RETURN_IF_ERROR(budget->Looks(16 * bytes.size()));
  bool any = false;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t begin = pos;
    DecodeUtf8(bytes, &pos);
    const absl::string_view character = bytes.substr(begin, pos - begin);
    const bool is_lower = ToUpperCharacter(character) != character;
    const bool is_upper = ToLowerCharacter(character) != character;
    if (upper ? is_lower : is_upper) return Value::Bool(false);
    any |= is_lower || is_upper;
  }
  return Value::Bool(any);
}

Result Join(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("join", {"iterable"}));
  const Value* iterable = arguments.Find(0, "iterable");
  if (iterable == nullptr) return TemplateError("join takes an iterable");
  ASSIGN_OR_RETURN(const Value::List list, Elements(*iterable, budget));
  TemplateText text;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].Is(Kind::kString)) {
      return TemplateError(absl::StrCat("join expected str, got '", list[i].TypeName(), "'"));
    }
    RETURN_IF_ERROR(budget->Bytes(value.text().size() + list[i].text().size()));
    if (i > 0) text.Append(value.text());
    text.Append(list[i].text());
  }
  return Value::String(std::move(text));
}

// str.format: {}, {0}, {name}, !s and !r, without format specifications.
Result Format(const Value& value, const Arguments& arguments, Budget* budget) {
  const TemplateText& format = value.text();
  const absl::string_view bytes = format.bytes();
  RETURN_IF_ERROR(budget->Bytes(bytes.size()));
  TemplateText text;
  size_t next = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", pos), bytes.size());
    text.Append(format, pos, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      text.Append(format, brace, brace + 1);
      pos = brace + 2;
      continue;
    }
    const size_t close = bytes.find('}', brace);
    if (bytes[brace] == '}' || close == absl::string_view::npos) {
      return TemplateError("a single brace in a format string");
    }
    absl::string_view field = bytes.substr(brace + 1, close - brace - 1);
    pos = close + 1;
    const bool repr = absl::EndsWith(field, "!r");
    if (repr || absl::EndsWith(field, "!s")) field.remove_suffix(2);
    const Value* argument = nullptr;
    size_t index = 0;
    if (field.empty()) {
      argument = arguments.Find(next++, "");
    } else if (absl::SimpleAtoi(field, &index)) {
      argument = arguments.Find(index, "");
    } else if (field.find_first_of(".[:!{") != absl::string_view::npos) {
      return TemplateError(absl::StrCat("the format ", QuoteName(field), " is not supported"));
    } else {
      argument = arguments.Find(SIZE_MAX, field);
    }
    if (argument == nullptr)
      return TemplateError(absl::StrCat("no argument for ", QuoteName(field)));
    RETURN_IF_ERROR(repr ? AppendRepr(*argument, budget, &text)
                         : AppendString(*argument, budget, &text));
  }
  return Value::String(std::move(text));
}

// ---- list ----

Result IndexOf(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("index", {"value"}));
  const Value* wanted = arguments.Find(0, "value");
  if (wanted == nullptr) return TemplateError("index takes a value");
  for (size_t i = 0; i < value.list().size(); ++i) {
    ASSIGN_OR_RETURN(bool same, SameValue(value.list()[i], *wanted, budget));
    if (same) return Value::Integer(static_cast<int64_t>(i));
  }
  return TemplateError("the value is not in the list");
}

Result CountOf(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("count", {"value"}));
  const Value* wanted = arguments.Find(0, "value");
  if (wanted == nullptr) return TemplateError("count takes a value");
  int64_t count = 0;
  for (const Value& element : value.list()) {
    ASSIGN_OR_RETURN(bool same, SameValue(element, *wanted, budget));
    count += same;
  }
  return Value::Integer(count);
}

Result Copy(const Value& value, const Arguments& arguments, Budget*) {
  RETURN_IF_ERROR(arguments.Check("copy", {}));
  return value;
}

// ---- dict ----

Result Get(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("get", {"key", "default"}));
  const Value* key = arguments.Find(0, "key");
  if (key == nullptr || !IsHashable(*key)) return TemplateError("get takes a key");
  ASSIGN_OR_RETURN(const Value* found, value.Find(*key, budget));
  if (found != nullptr) return *found;
  const Value* otherwise = arguments.Find(1, "default");
  return otherwise != nullptr ? *otherwise : Value::None();
}

enum class View { kKeys, kValues, kItems };
template <View view>
Result ViewOf(const Value& value, const Arguments& arguments, Budget* budget) {
  RETURN_IF_ERROR(arguments.Check("keys, values or items", {}));
  RETURN_IF_ERROR(budget->Steps(2 * value.entries().size()));
  Value::List list;
  for (const auto& [key, element] : value.entries()) {
    list.push_back(view == View::kKeys     ? key
                   : view == View::kValues ? element
                                           : Value::Sequence(Kind::kTuple, {key, element}));
  }
  return Value::Sequence(Kind::kView, std::move(list));
}

Result Changes(const Value& value, const Arguments&, Budget*) {
  return TemplateError(absl::StrCat("a method that changes a '", value.TypeName(),
                                    "' is unsafe, and refused as in every sandbox"));
}

Result Unknown(const Value& value, const Arguments&, Budget*) {
  return TemplateError(absl::StrCat("this method of '", value.TypeName(), "' is not supported"));
}

constexpr TemplateMethod kMethods[] = {
    {"append", nullptr, &Changes},
    {"capitalize", &Case<TextCase::kCapitalized>},
    {"casefold", &Unknown},
    {"center", &Unknown},
    {"clear", nullptr, &Changes, &Changes},
    {"copy", nullptr, &Copy, &Copy},
    {"count", &Count, &CountOf},
    {"encode", &Unknown},
    {"endswith", &Affix<false>},
    {"expandtabs", &Unknown},
    {"extend", nullptr, &Changes},
    {"find", &Find<false, false>},
    {"format", &Format},
    {"format_map", &Unknown},
    {"fromkeys", nullptr, nullptr, &Unknown},
    {"get", nullptr, nullptr, &Get},
    {"index", &Find<false, true>, &IndexOf},
    {"insert", nullptr, &Changes},
    {"isalnum", &All<IsAlphanumeric>},
    {"isalpha", &All<IsAlphabetic>},
    {"isascii", &Unknown},
    {"isdecimal", &All<IsDecimal>},
    {"isdigit", &All<IsDigit>},
    {"isidentifier", &Unknown},
    {"islower", &IsCase<false>},
    {"isnumeric", &Unknown},
    {"isprintable", &Unknown},
    {"isspace", &All<IsUnicodeSpace>},
    {"istitle", &Unknown},
    {"isupper", &IsCase<true>},
    {"items", nullptr, nullptr, &ViewOf<View::kItems>},
    {"join", &Join},
    {"keys", nullptr, nullptr, &ViewOf<View::kKeys>},
    {"ljust", &Unknown},
    {"lower", &Case<TextCase::kLower>},
    {"lstrip", &Strip<TextSides::kLeft>},
    {"maketrans", &Unknown},
    {"partition", &Partition<false>},
    {"pop", nullptr, &Changes, &Changes},
    {"popitem", nullptr, nullptr, &Changes},
    {"remove", nullptr, &Changes},
    {"removeprefix", &RemoveAffix<true>},
    {"removesuffix", &RemoveAffix<false>},
    {"replace", &Replace},
    {"reverse", nullptr, &Changes},
    {"rfind", &Find<true, false>},
    {"rindex", &Find<true, true>},
    {"rjust", &Unknown},
    {"rpartition", &Partition<true>},
    {"rsplit", &Split<true>},
    {"rstrip", &Strip<TextSides::kRight>},
    {"setdefault", nullptr, nullptr, &Changes},
    {"sort", nullptr, &Changes},
    {"split", &Split<false>},
    {"splitlines", &Lines},
    {"startswith", &Affix<true>},
    {"strip", &Strip<TextSides::kBoth>},
    {"swapcase", &Unknown},
    {"title", &Case<TextCase::kTitle>},
    {"translate", &Unknown},
    {"update", nullptr, nullptr, &Changes},
    {"upper", &Case<TextCase::kUpper>},
    {"values", nullptr, nullptr, &ViewOf<View::kValues>},
    {"zfill", &Unknown},
};

}  // namespace

const TemplateValue* TemplateArguments::Find(size_t place, absl::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [keyword, value] : keywords) {
    if (keyword == name) return &value;
  }
  return nullptr;
}

bool TemplateArguments::IsTrue(size_t place, absl::string_view name) const {
  const Value* value = Find(place, name);
  return value != nullptr && value->Truth();
}

absl::Status TemplateArguments::Check(absl::string_view callee,
                                      absl::Span<const absl::string_view> names) const {
  if (values.size() > names.size()) {
    return TemplateError(
        absl::StrCat(callee, " takes at most ", names.size(), " arguments, got ", values.size()));
  }
  for (const auto& [keyword, value] : keywords) {
    const auto place = std::find(names.begin(), names.end(), keyword) - names.begin();
    if (place == static_cast<int64_t>(names.size()) ||
        place < static_cast<int64_t>(values.size())) {
      return TemplateError(
          absl::StrCat(callee, " has no use for an argument ", QuoteName(keyword)));
    }
  }
  return absl::OkStatus();
}

TemplateFilter* TemplateMethod::Of(const TemplateValue& value) const {
  switch (value.kind()) {
    case Kind::kString:
      return of_string;
    case Kind::kList:
      return of_list;
    case Kind::kTuple:
      return name == "index" || name == "count" ? of_list : nullptr;
    case Kind::kDict:
      return of_dict;
    default:
      return nullptr;
  }
}

const TemplateMethod* FindTemplateMethod(absl::string_view name) {
  for (const TemplateMethod& method : kMethods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace lm

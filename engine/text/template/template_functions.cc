#include "engine/text/template/template_functions.h"

#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printed.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Value = TemplateValue;
using Kind = TemplateValue::Kind;
using Result = absl::StatusOr<TemplateValue>;

constexpr int64_t kMaxRange = 100000;  // that of jinja2's sandbox

Result RangeOf(const TemplateArguments& arguments, TemplateBudget* budget) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.values.size();
  if (count == 0 || count > 3 || !arguments.keywords.empty()) {
    return TemplateError("range takes one to three integers");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!arguments.values[i].is_integer()) return TemplateError("range takes integers");
    bounds[count == 1 ? 1 : i] = arguments.values[i].integer();
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return TemplateError("range() arg 3 must not be zero");
  Value::List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(list.size()) == kMaxRange) {
      return TemplateError(
          absl::StrCat("Range too big. The sandbox blocks ranges larger than ", kMaxRange));
    }
    RETURN_IF_ERROR(budget->Steps(1));
    list.push_back(Value::Integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Sequence(Kind::kList, std::move(list));
}

Result Dict(const TemplateArguments& arguments, TemplateBudget* budget) {
  Value::Entries entries;
  for (const Value& value : arguments.values) {
    if (!value.Is(Kind::kDict))
      return TemplateError("dict of something else than a dict is not supported");
    RETURN_IF_ERROR(budget->Steps(value.entries().size()));
    entries = value.entries();
  }
  for (const auto& [name, value] : arguments.keywords) {
    RETURN_IF_ERROR(SetEntry(Value::Template(name), value, budget, &entries));
  }
  return Value::Dict(std::move(entries));
}

Result Raise(const TemplateArguments& arguments, TemplateBudget* budget) {
  TemplateText text;
  if (const Value* message = arguments.Find(0, "message"); message != nullptr) {
    RETURN_IF_ERROR(AppendString(*message, budget, &text));
  }
  constexpr size_t kMost = 500;
  std::string words(text.bytes().substr(0, kMost));
  words.resize(ValidUtf8Prefix(words));
  for (char& c : words) {
    if (absl::ascii_iscntrl(c)) c = ' ';  // a message is one line
  }
  return absl::FailedPreconditionError(words);
}

// The names are English whatever the process's locale is.
std::string DatePart(char letter, absl::CivilSecond now) {
  static constexpr absl::string_view kMonths[] = {"January",   "February", "March",    "April",
                                                  "May",       "June",     "July",     "August",
                                                  "September", "October",  "November", "December"};
  static constexpr absl::string_view kDays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                "Friday", "Saturday", "Sunday"};
  const absl::string_view month = kMonths[now.month() - 1];
  const int weekday = static_cast<int>(absl::GetWeekday(now));  // Monday is 0
  const absl::string_view day = kDays[weekday];
  const int hour12 = now.hour() % 12 == 0 ? 12 : now.hour() % 12;
  switch (letter) {
    case 'Y':
      return absl::StrCat(now.year());
    case 'y':
      return Printed("%02d", static_cast<int>(now.year() % 100));
    case 'm':
      return Printed("%02d", now.month());
    case 'd':
      return Printed("%02d", now.day());
    case 'e':
      return Printed("%2d", now.day());
    case 'H':
      return Printed("%02d", now.hour());
    case 'I':
      return Printed("%02d", hour12);
    case 'M':
      return Printed("%02d", now.minute());
    case 'S':
      return Printed("%02d", now.second());
    case 'p':
      return now.hour() < 12 ? "AM" : "PM";
    case 'j':
      return Printed("%03d", absl::GetYearDay(now));
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'a':
      return std::string(day.substr(0, 3));
    case 'u':
      return absl::StrCat(weekday + 1);
    case 'w':
      return absl::StrCat((weekday + 1) % 7);
    case 'F':
      return Printed("%lld-%02d-%02d", static_cast<long long>(now.year()), now.month(), now.day());
    case 'T':
      return Printed("%02d:%02d:%02d", now.hour(), now.minute(), now.second());
    case '%':
      return "%";
    default:
      return "";
  }
}

Result Date(const TemplateArguments& arguments, absl::CivilSecond now) {
  const Value* format = arguments.Find(0, "format");
  if (format == nullptr || !format->Is(Kind::kString))
    return TemplateError("strftime_now takes a format");
  const absl::string_view bytes = format->text().bytes();
  TemplateText text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%' || i + 1 == bytes.size()) {
      text.Append(format->text(), i, i + 1);
      continue;
    }
    ++i;
    const bool bare = bytes[i] == '-' && i + 1 < bytes.size();  // no leading zero
    if (bare) ++i;
    std::string part = DatePart(bytes[i], now);
    if (part.empty()) {
      return TemplateError(absl::StrCat("strftime_now with % and ", QuoteName(bytes.substr(i, 1)),
                                        " is not supported"));
    }
    while (bare && part.size() > 1 && (part[0] == '0' || part[0] == ' ')) part.erase(0, 1);
    text.Append(part, TextKind::kMarkup);
  }
  return Value::String(std::move(text));
}

}  // namespace

const std::string& TemplateFunctionName(int64_t function) {
  static const auto* const kNames = new std::array<std::string, kNumTemplateFunctions>{
      "namespace", "range", "dict", "raise_exception", "strftime_now"};
  return (*kNames)[function];
}

absl::StatusOr<TemplateValue> CallTemplateFunction(int64_t function,
                                                   const TemplateArguments& arguments,
                                                   absl::CivilSecond now, TemplateBudget* budget) {
  switch (function) {
    case 1:
      return RangeOf(arguments, budget);
    case 2:
      return Dict(arguments, budget);
    case 3:
      return Raise(arguments, budget);
    default:
      return Date(arguments, now);
  }
}

}  // namespace lm

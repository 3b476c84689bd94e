// printf-style formatting of chat templates: the operator % and the filter format.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printed.h"
#include "engine/base/status_macros.h"
#include "engine/text/template/template_operators.h"
#include "engine/text/template/template_strings.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

// As printf's "%.*f" in the C locale: the host may have another one.
std::string Fixed(double number, int precision) {
  std::string digits(std::numeric_limits<double>::max_exponent10 + 3 + precision, ' ');
  const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(),
                                                 number, std::chars_format::fixed, precision);
  digits.resize(end.ptr - digits.data());
  return digits;
}

using Kind = TemplateValue::Kind;

constexpr int kMaxWidth = 1000;

// %[(name)][flags][width][.precision]conversion
struct Conversion {
  std::string name;
  bool named = false;
  bool left = false;
  bool zeros = false;
  bool plus = false;
  bool space = false;
  int width = 0;
  int precision = -1;
  char letter = 0;
};

absl::StatusOr<int> Digits(absl::string_view format, size_t* pos) {
  int number = 0;
  for (; *pos < format.size() && absl::ascii_isdigit(format[*pos]); ++*pos) {
    number = number * 10 + (format[*pos] - '0');
    if (number > kMaxWidth) return TemplateError(absl::StrCat("a width of more than ", kMaxWidth));
  }
  return number;
}

// Reads a conversion behind its %.
absl::StatusOr<Conversion> ReadConversion(absl::string_view format, size_t* pos) {
  Conversion conversion;
  if (*pos < format.size() && format[*pos] == '(') {
    const size_t close = format.find(')', *pos);
    if (close == absl::string_view::npos) return TemplateError("incomplete format key");
    conversion.named = true;
    conversion.name = std::string(format.substr(*pos + 1, close - *pos - 1));
    *pos = close + 1;
  }
  for (; *pos < format.size() && absl::StrContains("-0+ #", format[*pos]); ++*pos) {
    conversion.left |= format[*pos] == '-';
    conversion.zeros |= format[*pos] == '0';
    conversion.plus |= format[*pos] == '+';
    conversion.space |= format[*pos] == ' ';
  }
  ASSIGN_OR_RETURN(conversion.width, Digits(format, pos));
  if (*pos < format.size() && format[*pos] == '.') {
    ++*pos;
    ASSIGN_OR_RETURN(conversion.precision, Digits(format, pos));
  }
  if (*pos == format.size()) return TemplateError("incomplete format");
  conversion.letter = format[(*pos)++];
  return conversion;
}

absl::StatusOr<TemplateText> Convert(const Conversion& conversion, const TemplateValue& value,
                                     TemplateBudget* budget) {
  TemplateText text;
  switch (conversion.letter) {
    case 's':
    case 'r': {
      RETURN_IF_ERROR(conversion.letter == 's' ? AppendString(value, budget, &text)
                                               : AppendRepr(value, budget, &text));
      if (conversion.precision < 0) return text;
      return text.Part(0, ByteOfCharacter(text.bytes(), conversion.precision));
    }
    default:
      break;
  }
  if (!value.is_number()) {
    return TemplateError(absl::StrCat("the conversion ",
                                      QuoteName(std::string(1, conversion.letter)), " of a '",
                                      value.TypeName(), "'"));
  }
  const TextKind kind = value.from_input() ? TextKind::kInput : TextKind::kMarkup;
  std::string digits;
  switch (conversion.letter) {
    case 'd':
    case 'i':
      // Of an integer beyond 64 bits the text has its digits.
      digits = value.is_integer() ? absl::StrCat(value.integer()) : value.FloatText();
      if (digits.find_first_not_of("-0123456789") != digits.npos) {
        digits = Printed("%.0f", std::trunc(value.number()));
      }
      break;
    case 'x':
      if (!value.is_integer() || value.integer() < 0) return TemplateError("%x of this number");
      digits = Printed("%llx", static_cast<unsigned long long>(value.integer()));
      break;
    case 'f':
      digits = Fixed(value.number(), conversion.precision < 0 ? 6 : conversion.precision);
      break;
    default:
      return TemplateError(absl::StrCat(
          "the conversion ", QuoteName(std::string(1, conversion.letter)), " is not supported"));
  }
  const bool has_sign = conversion.plus || conversion.space || digits[0] == '-';
  if (has_sign && digits[0] != '-') digits.insert(0, 1, conversion.plus ? '+' : ' ');
  const size_t width = conversion.width;
  if (conversion.zeros && !conversion.left && digits.size() < width) {
    digits.insert(has_sign ? 1 : 0, width - digits.size(), '0');
  }
  text.Append(digits, kind);
  return text;
}

}  // namespace

absl::StatusOr<TemplateValue> FormatPercent(const TemplateText& format, const TemplateValue& value,
                                            TemplateBudget* budget) {
  const bool tuple = value.Is(Kind::kTuple);
  const size_t given = tuple ? value.list().size() : 1;
  size_t next = 0;
  bool any_named = false;
  TemplateText text;
  const absl::string_view bytes = format.bytes();
  RETURN_IF_ERROR(budget->Bytes(bytes.size()));
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', pos), bytes.size());
    text.Append(format, pos, percent);
    if (percent == bytes.size()) break;
    pos = percent + 1;
    ASSIGN_OR_RETURN(Conversion conversion, ReadConversion(bytes, &pos));
    if (conversion.letter == '%') {
      text.Append(format, percent, percent + 1);
      continue;
    }
    const TemplateValue* argument = nullptr;
    if (conversion.named) {
      any_named = true;
      if (!value.Is(Kind::kDict)) return TemplateError("format requires a mapping");
      ASSIGN_OR_RETURN(argument, value.Find(conversion.name, budget));
    } else if (next < given) {
      argument = tuple ? &value.list()[next] : &value;
      ++next;
    }
    if (argument == nullptr) return TemplateError("not enough arguments for format string");
    ASSIGN_OR_RETURN(TemplateText part, Convert(conversion, *argument, budget));
    const int64_t padding = conversion.width - CountCharacters(part.bytes());
    const std::string spaces(std::max<int64_t>(padding, 0), ' ');
    RETURN_IF_ERROR(budget->Bytes(part.size() + spaces.size()));
    if (!conversion.left) text.Append(spaces, TextKind::kMarkup);
    text.Append(part);
    if (conversion.left) text.Append(spaces, TextKind::kMarkup);
  }
  if (next < given && !any_named && !value.Is(Kind::kDict)) {
    return TemplateError("not all arguments converted during string formatting");
  }
  return TemplateValue::String(std::move(text));
}

}  // namespace lm

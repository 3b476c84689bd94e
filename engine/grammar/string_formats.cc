#include "engine/grammar/string_formats.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

struct Format {
  std::string name;
  std::string regex;
};

// The calendar: years 1000 to 9999, months with their days, 29 February in leap years.
std::string DateRegex() {
  const std::string year = "[1-9][0-9]{3}";
  const std::string leap_year =
      "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)";
  return absl::StrCat("(", year, "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|",
                      "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|", leap_year,
                      "-02-29)");
}

const std::vector<Format>& Formats() {
  static const std::vector<Format>& formats = *[] {
    const std::string date = DateRegex();
    // RFC 3339 without leap seconds.
    const std::string time =
        "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?"
        "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
    // ISO 8601: a part for each unit, in order, at least one; T only before a part.
    const std::string n = "(0|[1-9][0-9]{0,5})";
    const std::string seconds = n + "S", minutes = absl::StrCat(n, "M(", seconds, ")?");
    const std::string days = n + "D", months = absl::StrCat(n, "M(", days, ")?");
    const std::string time_of_duration =
        absl::StrCat("T(", n, "H(", minutes, ")?|", minutes, "|", seconds, ")");
    const std::string duration =
        absl::StrCat("P(", n, "W|(", n, "Y(", months, ")?|", months, "|", days, ")(",
                     time_of_duration, ")?|", time_of_duration, ")");
    const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
    const std::string hostname = absl::StrCat(label, "(\\.", label, "){0,3}");
    const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    return new std::vector<Format>({
        {"date", date},
        {"time", time},
        {"date-time", absl::StrCat(date, "T", time)},
        {"duration", duration},
        {"email", absl::StrCat("[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@", label, "(\\.",
                               label, "){0,2}\\.[A-Za-z]{2,24}")},
        {"hostname", hostname},
        {"ipv4", absl::StrCat("(", octet, "\\.){3}", octet)},
        {"ipv6", "([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}"},
        {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
        {"uri", absl::StrCat("[a-z][a-z0-9+.-]{0,20}://", hostname,
                             "(:[1-9][0-9]{0,3})?(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})*)*",
                             "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*)?",
                             "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-F]{2})*)?")},
    });
  }();
  return formats;
}

}  // namespace

absl::string_view FormatRegex(absl::string_view format) {
  for (const Format& known : Formats()) {
    if (format == known.name) return known.regex;
  }
  return {};
}

std::string FormatNames() {
  std::string names;
  for (const Format& format : Formats()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", format.name);
  }
  return names;
}

}  // namespace lm

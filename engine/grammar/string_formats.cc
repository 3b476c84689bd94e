#include "engine/grammar/string_formats.h"

#include <algorithm>
#include <iterator>
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
    const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,60}[A-Za-z0-9])?";
    const std::string hostname = absl::StrCat(label, "(\\.", label, "){0,3}");
    const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    // RFC 5321 has 64 characters before the @ and 255 behind it.
    const std::string atom = "[A-Za-z0-9_+-]",
                      short_label = "[A-Za-z0-9]([A-Za-z0-9-]{0,48}[A-Za-z0-9])?";
    const std::string email =
        absl::StrCat("(", atom, "{1,30}(\\.", atom, "{1,30})?|", atom, "{1,15}(\\.", atom,
                     "{1,15}){2,3})@", short_label, "(\\.", short_label, "){0,3}\\.[A-Za-z]{2,24}");
    // RFC 4291 without an IPv4 address at its end: "::" for one run of zeros.
    const std::string h = "[0-9A-Fa-f]{1,4}";
    std::string ipv6 = absl::StrCat("((", h, ":){7}", h);
    for (int before = 0; before <= 7; ++before) {
      const std::string head = before == 0 ? "" : absl::StrCat(h, "(:", h, "){", before - 1, "}");
      const int most = 7 - before;  // groups behind
      absl::StrAppend(&ipv6, "|", head,
                      "::", most > 0 ? absl::StrCat("(", h, "(:", h, "){0,", most - 1, "})?") : "");
    }
    ipv6 += ")";
    // RFC 3986.
    const std::string sub = "[A-Za-z0-9._~!$&'()*+,;=-]";
    const std::string pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
    const std::string first = absl::StrCat("(", sub, "|@|%[0-9A-Fa-f]{2})");  // no colon
    const std::string tail = absl::StrCat("(\\?(", pchar, "|[/?])*)?(#(", pchar, "|[/?])*)?");
    const std::string authority =
        absl::StrCat("//((", sub, "|%[0-9A-Fa-f]{2}|:)+@)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
                     "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?(/", pchar, "*)*");
    const std::string absolute = absl::StrCat("/(", pchar, "+(/", pchar, "*)*)?");
    const std::string uri =
        absl::StrCat("(file://", absolute, "|[A-Za-z][A-Za-z0-9+.-]*:(", authority, "|", absolute,
                     "|", pchar, "+(/", pchar, "*)*))", tail);
    const std::string relative =
        absl::StrCat("(", authority, "|", absolute, "|", first, "+(/", pchar, "*)*)?", tail);
    auto* const formats = new std::vector<Format>({
        {"date", date},
        {"time", time},
        {"date-time", absl::StrCat(date, "T", time)},
        {"duration", duration},
        {"email", email},
        {"idn-email", email},
        {"hostname", hostname},
        {"idn-hostname", hostname},
        {"ipv4", absl::StrCat("(", octet, "\\.){3}", octet)},
        {"ipv6", ipv6},
        {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
        {"uri", uri},
        {"iri", uri},
        {"uri-reference", absl::StrCat("(", uri, "|", relative, ")")},
        {"iri-reference", absl::StrCat("(", uri, "|", relative, ")")},
        {"uri-template", absl::StrCat("([A-Za-z0-9._~:/?#@!$&()*+,;=-]|%[0-9A-F]{2}|",
                                      "\\{[+#./;?&]?[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*\\})*")},
        {"json-pointer", "(/([^~/]|~[01])*)*"},
        {"relative-json-pointer", "(0|[1-9][0-9]{0,5})(#|(/([^~/]|~[01])*)*)"},
        // Expressions that every reader understands alike.
        {"regex",
         absl::StrCat("\\^?(([A-Za-z0-9 _/,:;=@#%&~!<>\"'-]|\\\\[dDwWsS.*+?/()\\[\\]{}^$|-]|",
                      "\\.|\\[\\^?([A-Za-z0-9_]|a-z|A-Z|0-9)+-?\\]|",
                      "\\([A-Za-z0-9_ .-]+(\\|[A-Za-z0-9_ .-]+)*\\))",
                      "([*+?]|\\{[1-9][0-9]?\\})?)*\\$?")},
    });
    // RFC 9562, of one version: pydantic's UUID4 and its like.
    for (const char* version : {"1", "3", "4", "5", "6", "7", "8"}) {
      formats->push_back({absl::StrCat("uuid", version),
                          absl::StrCat("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-", version,
                                       "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}")});
    }
    return formats;
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

bool IsFormat(absl::string_view format) {
  constexpr absl::string_view kOfNumbers[] = {"float", "double", "int32", "int64"};
  return !FormatRegex(format).empty() ||
         std::find(std::begin(kOfNumbers), std::end(kOfNumbers), format) != std::end(kOfNumbers);
}

std::string FormatNames() {
  std::string names;
  for (const Format& format : Formats()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", format.name);
  }
  return names;
}

}  // namespace lm

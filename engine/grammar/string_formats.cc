#include "engine/grammar/string_formats.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

struct Format {
  std::string name;
  std::string regex;
  // What stands instead in a set of texts of up to `most` characters, which counts them, so that
  // fewer states are left for what they are.
  std::string of_set = {};
  int64_t most = -1;
  bool is_endless = false;  // of_set has longer texts too, which may not be of the format
};
constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

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
    // Of RFC 1123's names with 63 characters a label and 253 in all: up to four long labels, or
    // eight of which the first, which a machine may have made, is long.
    auto label = [](int most) {
      return absl::StrCat("[A-Za-z0-9]([A-Za-z0-9-]{0,", most - 2, "}[A-Za-z0-9])?");
    };
    auto labels = [&label](int most, absl::string_view more) {
      return absl::StrCat(label(most), "(\\.", label(most), ")", more);
    };
    const std::string hostname =
        absl::StrCat("(", labels(62, "{0,3}"), "|", label(62), "(\\.", label(26), "){4,7})");
    const Format hostnames = {"", hostname, labels(62, "*"), 250, true};
    const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    const std::string ipv4 = absl::StrCat("(", octet, "\\.){3}", octet);
    // RFC 5321 has 64 characters before the @, and 254 in all: few long atoms and labels, or many
    // short ones.
    const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]", top = "\\.[A-Za-z]{2,24}";
    auto atoms = [&atom](int most, absl::string_view more) {
      const std::string one = absl::StrCat(atom, "{1,", most, "}");
      return absl::StrCat(one, "(\\.", one, ")", more);
    };
    const std::string email = absl::StrCat("(", atoms(30, "?"), "|", atoms(15, "{2,3}"), "|",
                                           atoms(12, "{4}"), "|", atoms(7, "{5,7}"), ")@(",
                                           labels(40, "{0,3}"), "|", labels(22, "{4,6}"), ")", top);
    const Format emails = {
        "", email,
        absl::StrCat("^(?=[^@]{1,64}@)", atom, "+(\\.", atom, "+)*@", labels(62, "*"), top), 252,
        true};
    // RFC 4291: "::" for one run of zeros; an IPv4 address may be the last two groups.
    const std::string h = "[0-9A-Fa-f]{1,4}";
    std::string groups = absl::StrCat("(", h, ":){7}", h);
    std::string mixed = absl::StrCat("(", h, ":){6}", ipv4);
    for (int before = 0; before <= 7; ++before) {
      const std::string head = before == 0 ? "" : absl::StrCat(h, "(:", h, "){", before - 1, "}");
      const int most = 7 - before;  // groups behind
      absl::StrAppend(&groups, "|", head,
                      "::", most > 0 ? absl::StrCat("(", h, "(:", h, "){0,", most - 1, "})?") : "");
      if (most >= 2) absl::StrAppend(&mixed, "|", head, "::(", h, ":){0,", most - 2, "}", ipv4);
    }
    // RFC 3986.
    const std::string sub = "[A-Za-z0-9._~!$&'()*+,;=-]";
    const std::string pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
    const std::string first = absl::StrCat("(", sub, "|@|%[0-9A-Fa-f]{2})");  // no colon
    const std::string tail = absl::StrCat("(\\?(", pchar, "|[/?])*)?(#(", pchar, "|[/?])*)?");
    const std::string path = absl::StrCat("(/", pchar, "*)*");
    auto port = [](absl::string_view more) {
      return absl::StrCat("(:([1-9][0-9]{0,3}|[1-5][0-9]{4}", more, "))?");
    };
    const std::string high_ports = "|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5])))|";
    const std::string host =
        absl::StrCat("((", sub, "|%[0-9A-Fa-f]{2}|:)+@)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?");
    const std::string absolute = absl::StrCat("/(", pchar, "+(/", pchar, "*)*)?");
    auto uri_with = [&](const std::string& authority) {
      return absl::StrCat("(file://", absolute, "|[A-Za-z][A-Za-z0-9+.-]*:(", authority, "|",
                          absolute, "|", pchar, "+(/", pchar, "*)*))", tail);
    };
    auto relative_with = [&](const std::string& authority) {
      return absl::StrCat("(", authority, "|", absolute, "|", first, "+(/", pchar, "*)*)?", tail);
    };
    const std::string authority =
        absl::StrCat("//(", host, "|\\[(", groups, ")\\])", port(high_ports), path);
    const std::string of_name = absl::StrCat("//", host, port(""), path);
    const Format uris = {"", uri_with(authority), uri_with(of_name), kAnyLength};
    const Format references = {
        "", absl::StrCat("(", uris.regex, "|", relative_with(authority), ")"),
        absl::StrCat("(", uris.of_set, "|", relative_with(of_name), ")"), kAnyLength};
    auto named = [](absl::string_view name, Format format) {
      format.name = std::string(name);
      return format;
    };
    auto* const formats = new std::vector<Format>({
        {"date", date},
        {"time", time},
        {"date-time", absl::StrCat(date, "T", time)},
        {"duration", duration},
        named("email", emails),
        named("idn-email", emails),
        named("hostname", hostnames),
        named("idn-hostname", hostnames),
        {"ipv4", ipv4},
        {"ipv6", absl::StrCat("(", groups, "|", mixed, ")"), groups, 44},
        {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
        named("uri", uris),
        named("iri", uris),
        named("uri-reference", references),
        named("iri-reference", references),
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

const Format* FindFormat(absl::string_view format) {
  for (const Format& known : Formats()) {
    if (format == known.name) return &known;
  }
  return nullptr;
}

}  // namespace

absl::string_view FormatRegex(absl::string_view format) {
  const Format* known = FindFormat(format);
  return known == nullptr ? absl::string_view() : known->regex;
}

FormatOfSet FormatRegexOfSet(absl::string_view format, std::optional<int64_t> max_length) {
  const Format* known = FindFormat(format);
  if (known == nullptr) return {};
  if (known->is_endless) return {known->of_set, known->most};
  const bool is_short = max_length.value_or(kAnyLength) <= known->most;
  return {is_short ? known->of_set : known->regex, std::nullopt};
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

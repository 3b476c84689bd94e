#include "tests/engine/grammar/json_schema_checker.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

using nlohmann::json;

size_t CountChars(const std::string& text) {
  size_t count = 0;
  for (char c : text) count += (c & 0xc0) != 0x80;
  return count;
}

bool IsDate(const std::string& text) {
  int year, month, day, read = 0;
  if (text.size() != 10 || sscanf(text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &read) != 3 ||
      read != 10) {
    return false;
  }
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}

bool IsTime(const std::string& text) {
  int hour, minute, second, read = 0;
  if (sscanf(text.c_str(), "%2d:%2d:%2d%n", &hour, &minute, &second, &read) != 3 || read != 8) {
    return false;
  }
  return hour < 24 && minute < 60 && second < 60 &&
         std::regex_match(text.substr(8), std::regex("(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)"));
}

bool HasFormat(const std::string& format, const std::string& text) {
  if (format == "date") return IsDate(text);
  if (format == "time") return IsTime(text);
  if (format == "date-time") {
    return text.size() > 11 && IsDate(text.substr(0, 10)) && text[10] == 'T' &&
           IsTime(text.substr(11));
  }
  if (format == "uuid") {
    return std::regex_match(
        text, std::regex("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", std::regex::icase));
  }
  if (format.starts_with("uuid")) {
    const std::string regex = absl::StrCat("[0-9a-f]{8}-[0-9a-f]{4}-", format.substr(4),
                                           "[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
    return std::regex_match(text, std::regex(regex, std::regex::icase));
  }
  if (format == "ipv4") {
    int a, b, c, d, read = 0;
    return sscanf(text.c_str(), "%d.%d.%d.%d%n", &a, &b, &c, &d, &read) == 4 &&
           read == static_cast<int>(text.size()) && std::max({a, b, c, d}) < 256;
  }
  if (format == "email") return std::regex_match(text, std::regex("[^@ ]+@[^@ ]+\\.[A-Za-z]+"));
  if (format == "duration") {
    return std::regex_match(text, std::regex("P(?=.)(\\d+W|(\\d+Y)?(\\d+M)?(\\d+D)?"
                                             "(T(?=.)(\\d+H)?(\\d+M)?(\\d+S)?)?)"));
  }
  if (format == "ipv6") {
    in6_addr address;
    return inet_pton(AF_INET6, text.c_str(), &address) == 1;
  }
  if (format == "hostname") return std::regex_match(text, std::regex("[A-Za-z0-9.-]+"));
  if (format == "uri") return std::regex_match(text, std::regex("[A-Za-z][A-Za-z0-9+.-]*:[!-~]+"));
  return format == "int32" || format == "int64";
}

class Checker {
 public:
  explicit Checker(const json& root) : root_(root) {}

  std::string Check(const json& schema, const json& value) {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : "false allows nothing";
    for (const auto& [keyword, argument] : schema.items()) {
      if (!Holds(keyword, argument, schema, value)) {
        return value.dump() + " breaks " + keyword + " " + argument.dump();
      }
    }
    return "";
  }

 private:
  bool Fits(const json& schema, const json& value) { return Check(schema, value).empty(); }

  static bool HasType(const std::string& type, const json& value) {
    if (type == "integer") {
      return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
    }
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  bool Holds(const std::string& keyword, const json& argument, const json& schema,
             const json& value) {
    if (keyword == "type") {
      if (schema.value("nullable", false) && value.is_null()) return true;
      if (argument.is_string()) return HasType(argument, value);
      for (const json& type : argument) {
        if (HasType(type, value)) return true;
      }
      return false;
    }
    if (keyword == "$ref" || keyword == "$dynamicRef" || keyword == "$recursiveRef") {
      const std::string pointer =
          std::regex_replace(argument.get<std::string>().substr(1), std::regex("%20"), " ");
      if (pointer.empty() || pointer[0] == '/') {
        return Fits(root_.at(json::json_pointer(pointer)), value);
      }
      // An anchor: of the root or of one of its definitions.
      auto is_it = [&](const json& schema) {
        return schema.value("$anchor", "") == pointer ||
               schema.value("$dynamicAnchor", "") == pointer;
      };
      if (is_it(root_)) return Fits(root_, value);
      const json& definitions = root_.at("$defs");
      const auto at = std::find_if(definitions.begin(), definitions.end(), is_it);
      return at != definitions.end() && Fits(*at, value);
    }
    if (keyword == "enum")
      return std::find(argument.begin(), argument.end(), value) != argument.end();
    if (keyword == "const") return argument == value;
    if (keyword == "anyOf" || keyword == "oneOf") {
      const auto matches = std::count_if(argument.begin(), argument.end(),
                                         [&](const json& branch) { return Fits(branch, value); });
      return keyword == "oneOf" ? matches == 1 : matches > 0;
    }
    if (keyword == "not") return !Fits(argument, value);
    if (keyword == "if") {
      const char* branch = Fits(argument, value) ? "then" : "else";
      return !schema.contains(branch) || Fits(schema[branch], value);
    }
    if (keyword == "allOf") {
      for (const json& branch : argument) {
        if (!Fits(branch, value)) return false;
      }
      return true;
    }
    if (value.is_number()) return NumberHolds(keyword, argument, value);
    if (value.is_string()) return StringHolds(keyword, argument, value);
    if (value.is_array()) return ArrayHolds(keyword, argument, schema, value);
    if (value.is_object()) return ObjectHolds(keyword, argument, schema, value);
    return true;
  }

  static bool NumberHolds(const std::string& keyword, const json& argument, const json& value) {
    if (keyword == "minimum") return value >= argument;
    if (keyword == "maximum") return value <= argument;
    if (keyword == "exclusiveMinimum") return value > argument;
    if (keyword == "exclusiveMaximum") return value < argument;
    if (keyword == "multipleOf") {
      if (argument.is_number_integer() && value.is_number_integer()) {
        return value.get<int64_t>() % argument.get<int64_t>() == 0;
      }
      const double times = value.get<double>() / argument.get<double>();
      return std::abs(times - std::round(times)) <= 1e-6 * std::max(1.0, std::abs(times));
    }
    return true;
  }

  static bool StringHolds(const std::string& keyword, const json& argument,
                          const std::string& value) {
    if (keyword == "minLength") return CountChars(value) >= argument.get<size_t>();
    if (keyword == "maxLength") return CountChars(value) <= argument.get<size_t>();
    if (keyword == "pattern")
      return std::regex_search(value, std::regex(argument.get<std::string>()));
    if (keyword == "format") return HasFormat(argument, value);
    return value.find('\0') == std::string::npos;
  }

  bool ArrayHolds(const std::string& keyword, const json& argument, const json& schema,
                  const json& value) {
    if (keyword == "minItems") return value.size() >= argument.get<size_t>();
    if (keyword == "maxItems") return value.size() <= argument.get<size_t>();
    if (keyword == "uniqueItems" && argument == true) {
      for (size_t i = 0; i < value.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (value[i] == value[j]) return false;
        }
      }
    }
    if (keyword == "contains") {
      const auto count = std::count_if(value.begin(), value.end(),
                                       [&](const json& item) { return Fits(argument, item); });
      return count >= schema.value("minContains", 1) && count <= schema.value("maxContains", 9999);
    }
    if (keyword == "prefixItems") {
      for (size_t i = 0; i < std::min(argument.size(), value.size()); ++i) {
        if (!Fits(argument[i], value[i])) return false;
      }
    }
    if (keyword == "items") {
      const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
      for (size_t i = first; i < value.size(); ++i) {
        if (!Fits(argument, value[i])) return false;
      }
    }
    return true;
  }

  bool ObjectHolds(const std::string& keyword, const json& argument, const json& schema,
                   const json& value) {
    if (keyword == "minProperties") return value.size() >= argument.get<size_t>();
    if (keyword == "maxProperties") return value.size() <= argument.get<size_t>();
    if (keyword == "required") {
      for (const json& name : argument) {
        if (!value.contains(name.get<std::string>())) return false;
      }
    }
    if (keyword == "properties") {
      for (const auto& [name, property] : argument.items()) {
        if (value.contains(name) && !Fits(property, value[name])) return false;
      }
    }
    if (keyword == "patternProperties") {
      for (const auto& [pattern, property] : argument.items()) {
        for (const auto& [name, member] : value.items()) {
          if (std::regex_search(name, std::regex(pattern)) && !Fits(property, member)) return false;
        }
      }
    }
    if (keyword == "propertyNames") {
      for (const auto& [name, member] : value.items()) {
        if (!Fits(argument, json(name))) return false;
      }
    }
    if (keyword == "dependentRequired" || keyword == "dependentSchemas" ||
        keyword == "dependencies") {
      for (const auto& [name, asked] : argument.items()) {
        if (!value.contains(name)) continue;
        if (!asked.is_array() && !Fits(asked, value)) return false;
        for (size_t i = 0; asked.is_array() && i < asked.size(); ++i) {
          if (!value.contains(asked[i].get<std::string>())) return false;
        }
      }
    }
    if (keyword == "additionalProperties") {
      for (const auto& [name, member] : value.items()) {
        if (schema.contains("properties") && schema["properties"].contains(name)) continue;
        if (MatchesSome(schema, name)) continue;
        if (!Fits(argument, member)) return false;
      }
    }
    return true;
  }

  static bool MatchesSome(const json& schema, const std::string& name) {
    const json patterns = schema.value("patternProperties", json::object());
    for (const auto& [pattern, property] : patterns.items()) {
      if (std::regex_search(name, std::regex(pattern))) return true;
    }
    return false;
  }

  const json& root_;
};

}  // namespace

std::string CheckAgainstSchema(const json& schema, const std::string& text) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return "not JSON: " + text;
  return Checker(schema).Check(schema, value);
}

}  // namespace lm

#include "tests/engine/grammar/canonical_json.h"

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

namespace lm {
namespace {

using nlohmann::json;

// The number d.ddd * 10^exponent of `text`, written anew.
std::string CanonicalNumber(const std::string& text) {
  std::string digits;
  int64_t exponent = 0, behind_point = 0;
  bool negative = false, in_fraction = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-') negative = true;
    if (c == '.') in_fraction = true;
    if (c >= '0' && c <= '9') {
      digits.push_back(c);
      behind_point += in_fraction;
    }
    if (c == 'e' || c == 'E') {
      exponent = std::strtoll(text.c_str() + i + 1, nullptr, 10);
      break;
    }
  }
  exponent -= behind_point;  // digits * 10^exponent
  while (!digits.empty() && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return "0";
  const int64_t size = static_cast<int64_t>(digits.size());
  const std::string sign = negative ? "-" : "";
  const int64_t before = size + exponent;  // digits before the point
  if (before > 21 || -exponent > 14) {
    std::string written = sign + digits.substr(0, 1);
    if (size > 1) written.append(".").append(digits, 1);
    return written + "e" + std::to_string(before - 1);
  }
  if (exponent >= 0) return sign + digits + std::string(exponent, '0');
  if (before <= 0) return sign + "0." + std::string(-before, '0') + digits;
  return sign + digits.substr(0, before) + "." + digits.substr(before);
}

class Writer {
 public:
  std::string text;

  bool Value(const std::string& value) {
    Separate();
    text += value;
    return true;
  }
  bool Open(char bracket) {
    Separate();
    text += bracket;
    first_.push_back(true);
    return true;
  }
  bool Close(char bracket) {
    first_.pop_back();
    text += bracket;
    return true;
  }
  bool Key(const std::string& name) {
    Separate();
    text += json(name).dump() + ":";
    behind_key_ = true;
    return true;
  }

 private:
  void Separate() {
    if (!behind_key_ && !first_.empty() && !first_.back()) text += ",";
    behind_key_ = false;
    if (!first_.empty()) first_.back() = false;
  }

  std::vector<bool> first_;  // of each open bracket: nothing is in it yet
  bool behind_key_ = false;
};

// nlohmann's reader finds the numbers' ends; what they say is read off the text itself.
class Reader : public json::json_sax_t {
 public:
  explicit Reader(const std::string& text) : text_(text) {}
  Writer out;

  bool null() override { return out.Value("null"); }
  bool boolean(bool value) override { return out.Value(value ? "true" : "false"); }
  bool number_integer(int64_t) override { return Number(); }
  bool number_unsigned(uint64_t) override { return Number(); }
  bool number_float(double, const std::string&) override { return Number(); }
  bool string(std::string& value) override {
    Skip('"');
    SkipString();
    return out.Value(json(value).dump());
  }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Skip('{') && out.Open('{'); }
  bool end_object() override { return Skip('}') && out.Close('}'); }
  bool start_array(size_t) override { return Skip('[') && out.Open('['); }
  bool end_array() override { return Skip(']') && out.Close(']'); }
  bool key(std::string& name) override {
    Skip('"');
    SkipString();
    return out.Key(name);
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Skip(char sign) {
    at_ = text_.find(sign, at_) + 1;
    return true;
  }
  void SkipString() {
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
  }
  bool Number() {
    at_ = text_.find_first_of("-0123456789", at_);
    const size_t end = std::min(text_.find_first_not_of("+-0123456789.eE", at_), text_.size());
    const std::string number = text_.substr(at_, end - at_);
    at_ = end;
    return out.Value(CanonicalNumber(number));
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

std::string CanonicalJson(const std::string& text) {
  Reader reader(text);
  return json::sax_parse(text, &reader) ? reader.out.text : "";
}

}  // namespace lm

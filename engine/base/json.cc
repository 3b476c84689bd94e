#include "engine/base/json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

// Values that are no containers take no memory to destroy: nlohmann writes them.
template <typename T>
std::string DumpScalar(T value) {
  return nlohmann::json(std::move(value))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A place in a text. What is behind the next checkpoint is not seen before that is passed.
class CheckedPlace {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CheckedPlace(const char* at, const char* end) : at_(at), next_(at), end_(end) {}

  reference operator*() const { return *at_; }
  CheckedPlace& operator++() {
    ++at_;
    return *this;
  }
  // REQUIRES: the other is the text's end.
  bool operator==(const CheckedPlace&) const { return at_ == next_ && Ends(); }

 private:
  static constexpr std::ptrdiff_t kCheckedBytes = 1 << 14;

  bool Ends() const {
    if (at_ == end_ || Interrupted()) return true;
    next_ = at_ + std::min(kCheckedBytes, end_ - at_);
    return false;
  }

  const char* at_;
  mutable const char* next_;  // moved by the question whether the text ends here
  const char* end_;
};

// nlohmann's events as ours.
class Adapter : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Adapter(JsonEvents* events) : events_(*events) {}

  bool null() override { return events_.Null(); }
  bool boolean(bool value) override { return events_.Bool(value); }
  bool number_integer(number_integer_t value) override { return events_.Integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return events_.Unsigned(value); }
  // The text has the decimal point of the host's locale, and the value is rounded as the host's
  // thread does.
  bool number_float(number_float_t, const string_t& text) override {
    std::string as_json = text;
    std::replace_if(
        as_json.begin(), as_json.end(),
        [](char c) { return !absl::ascii_isdigit(c) && !absl::StrContains("+-eE", c); }, '.');
    double value = 0;
    (void)absl::SimpleAtod(as_json, &value);
    return events_.Real(value, as_json);
  }
  bool string(string_t& value) override { return events_.String(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // no JSON text has it
  bool start_object(std::size_t) override { return events_.BeginObject(); }
  bool start_array(std::size_t) override { return events_.BeginArray(); }
  bool end_object() override { return events_.EndObject(); }
  bool end_array() override { return events_.EndArray(); }
  bool key(string_t& name) override { return events_.Key(std::move(name)); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    events_.SyntaxError(position, error.what());
    return false;
  }

 private:
  JsonEvents& events_;
};

// Makes a value of the events.
class Builder : public JsonEvents {
 public:
  bool Null() override { return Take(nullptr); }
  bool Bool(bool value) override { return Take(value); }
  bool Integer(int64_t value) override { return Take(value); }
  bool Unsigned(uint64_t value) override { return Take(value); }
  bool Real(double value, const std::string& text) override {
    const bool is_integer = text.find_first_of(".eE") == text.npos;
    return Take(is_integer ? Json::LongInteger(text) : Json(value));
  }
  bool String(std::string value) override { return Take(std::move(value)); }
  bool BeginArray() override { return Open(Json::MakeArray()); }
  bool EndArray() override { return Close(); }
  bool BeginObject() override { return Open(Json::MakeObject()); }
  bool Key(std::string name) override {
    if (depth_ <= Json::kDeepest) open_.back().name = std::move(name);
    return true;
  }
  bool EndObject() override { return Close(); }
  void SyntaxError(size_t, absl::string_view) override {}

  int deepest() const { return deepest_; }
  Json TakeResult() { return std::move(result_); }

 private:
  struct Level {
    Json value;
    std::string name;  // of the member that comes
  };

  bool Open(Json container) {
    deepest_ = std::max(deepest_, ++depth_);
    if (depth_ <= Json::kDeepest) open_.push_back({std::move(container), {}});
    return true;
  }
  bool Close() {
    if (--depth_ >= Json::kDeepest) return true;
    Json closed = std::move(open_.back().value);
    open_.pop_back();
    return Put(std::move(closed));
  }
  bool Take(Json value) { return depth_ > Json::kDeepest || Put(std::move(value)); }
  bool Put(Json value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.Append(std::move(value));
    } else {
      open_.back().value.Add(std::move(open_.back().name), std::move(value));
    }
    return true;
  }

  int depth_ = 0, deepest_ = 0;
  std::vector<Level> open_;
  Json result_;
};

}  // namespace

std::optional<Json> Json::Parse(absl::string_view text, int* depth) {
  Builder builder;
  const bool valid = ReadJson(text, &builder);
  if (depth != nullptr) *depth = builder.deepest();
  if (!valid || builder.deepest() > kDeepest) return std::nullopt;
  return builder.TakeResult();
}

// Here, not in everyone who has one: each of them is a switch over all types.
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

double Json::number() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  if (const Digits* digits = std::get_if<Digits>(&value_)) {
    double nearest = 0;
    (void)absl::SimpleAtod(digits->text, &nearest);
    return nearest;
  }
  return std::get<double>(value_);
}

int64_t Json::integer() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  return static_cast<int64_t>(std::get<uint64_t>(value_));
}

size_t Json::size() const {
  if (is_array()) return array().size();
  return is_object() ? members().size() : 0;
}

const Json* Json::Find(absl::string_view name) const {
  const Object* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  for (auto member = members->rbegin(); member != members->rend(); ++member) {
    if (member->first == name) return &member->second;
  }
  return nullptr;
}

std::string Json::TextAt(absl::string_view name) const {
  const Json* member = Find(name);
  return member != nullptr && member->is_string() ? member->string() : std::string();
}

Json& Json::Append(Json element) {
  std::get<Array>(value_).push_back(std::move(element));
  return *this;
}

Json& Json::Add(std::string name, Json value) {
  std::get<Object>(value_).emplace_back(std::move(name), std::move(value));
  return *this;
}

std::string Json::Dump() const {
  std::string text;
  DumpTo(&text);
  return text;
}

void Json::DumpTo(std::string* text) const {
  if (is_null()) {
    text->append("null");
  } else if (is_boolean()) {
    text->append(boolean() ? "true" : "false");
  } else if (is_unsigned()) {
    absl::StrAppend(text, unsigned_integer());
  } else if (is_integer()) {
    absl::StrAppend(text, integer());
  } else if (is_long_integer()) {
    text->append(std::get<Digits>(value_).text);
  } else if (is_float()) {
    text->append(DumpScalar(number()));
  } else if (is_string()) {
    text->append(JsonString(string()));
  } else if (is_array()) {
    char separator = '[';
    for (const Json& element : array()) {
      text->push_back(std::exchange(separator, ','));
      element.DumpTo(text);
    }
    text->append(separator == '[' ? "[]" : "]");
  } else {
    char separator = '{';
    for (const auto& [name, value] : members()) {
      text->push_back(std::exchange(separator, ','));
      text->append(JsonString(name));
      text->push_back(':');
      value.DumpTo(text);
    }
    text->append(separator == '{' ? "{}" : "}");
  }
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number() && a.value_.index() != b.value_.index()) {
    // A negative integer and one that is not differ, and so do one of 64 bits and a longer one.
    return (a.Is<double>() || b.Is<double>()) && a.number() == b.number();
  }
  return a.value_ == b.value_;
}

bool ReadJson(absl::string_view text, JsonEvents* events) {
  Adapter adapter(events);
  const char* const end = text.data() + text.size();
  return nlohmann::json::sax_parse(CheckedPlace(text.data(), end), CheckedPlace(end, end),
                                   &adapter);
}

std::string JsonString(absl::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  return plain ? absl::StrCat("\"", text, "\"") : DumpScalar(std::string(text));
}

}  // namespace lm

#include "engine/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/read_json.h"

namespace lm {
namespace {

// Values that are no containers take no memory to destroy: nlohmann writes them.
template <typename T>
std::string DumpScalar(T value) {
  return nlohmann::json(std::move(value))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Makes a value of the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Take(nullptr); }
  bool boolean(bool value) override { return Take(value); }
  bool number_integer(number_integer_t value) override { return Take(value); }
  bool number_unsigned(number_unsigned_t value) override { return Take(value); }
  bool number_float(number_float_t value, const string_t&) override { return Take(value); }
  bool string(string_t& value) override { return Take(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::MakeObject()); }
  bool start_array(std::size_t) override { return Open(Json::MakeArray()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (depth_ <= Json::kDeepest) open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

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

double Json::number() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
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
    // A negative integer and one that is not differ.
    return (a.is_float() || b.is_float()) && a.number() == b.number();
  }
  return a.value_ == b.value_;
}

std::string JsonString(absl::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  return plain ? absl::StrCat("\"", text, "\"") : DumpScalar(std::string(text));
}

}  // namespace lm

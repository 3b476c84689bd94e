#include "engine/text/json_value.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/read_json.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Value = TemplateValue;

// Makes the values while the text is read.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  absl::StatusOr<Value> Finish() {
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

  bool null() override { return Add(Value::None().FromInput()); }
  bool boolean(bool value) override { return Add(Value::Bool(value).FromInput()); }
  bool number_integer(number_integer_t value) override {
    return Add(Value::Integer(value).FromInput());
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > uint64_t{INT64_MAX}) return Fail("a number beyond 64 bits");
    return Add(Value::Integer(static_cast<int64_t>(value)).FromInput());
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == string_t::npos) return Fail("a number beyond 64 bits");
    return Add(Value::Float(value).FromInput());
  }
  bool string(string_t& value) override { return Add(Value::Input(value)); }
  bool binary(binary_t&) override { return Fail("it is not JSON"); }
  bool start_object(std::size_t) override { return Open(/*object=*/true); }
  bool start_array(std::size_t) override { return Open(/*object=*/false); }
  bool key(string_t& name) override {
    if (!open_.back().names.insert(name).second) {
      return Fail(absl::StrCat("the key ", QuoteName(name), " is there twice"));
    }
    open_.back().entries.emplace_back(Value::Input(name), Value());
    return true;
  }
  bool end_object() override {
    Value value = Value::Dict(std::move(open_.back().entries));
    open_.pop_back();
    return Add(std::move(value));
  }
  bool end_array() override {
    Value value = Value::Sequence(Value::Kind::kList, std::move(open_.back().list));
    open_.pop_back();
    return Add(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("it is not valid JSON: the error is at byte ", position));
  }

 private:
  struct Container {
    bool object;
    Value::List list;
    Value::Entries entries;
    HashSet<std::string> names;
  };

  bool Open(bool object) {
    if (open_.size() + 1 >= Value::kMaxDepth) {
      return Fail(absl::StrCat("nested too deep: more than ", Value::kMaxDepth - 1, " levels"));
    }
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool Add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().entries.back().second = std::move(value);
    } else {
      open_.back().list.push_back(std::move(value));
    }
    return true;
  }
  bool Fail(absl::string_view message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
    return false;
  }

  std::vector<Container> open_;
  Value result_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<TemplateValue> ParseJsonValue(absl::string_view json) {
  Builder builder;
  ReadJson(json, &builder);
  return builder.Finish();
}

}  // namespace lm

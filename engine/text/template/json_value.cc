#include "engine/text/template/json_value.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Value = TemplateValue;

// Makes the values while the text is read.
class Builder : public JsonEvents {
 public:
  absl::StatusOr<Value> Finish() {
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

  bool Null() override { return Add(Value::None().FromInput()); }
  bool Bool(bool value) override { return Add(Value::Bool(value).FromInput()); }
  bool Integer(int64_t value) override { return Add(Value::Integer(value).FromInput()); }
  bool Unsigned(uint64_t value) override {
    if (value > uint64_t{INT64_MAX}) return Real(static_cast<double>(value), absl::StrCat(value));
    return Add(Value::Integer(static_cast<int64_t>(value)).FromInput());
  }
  bool Real(double value, const std::string& text) override {
    const bool whole = text.find_first_of(".eE") == std::string::npos;
    return Add((whole ? Value::LargeInteger(value, text) : Value::Float(value)).FromInput());
  }
  bool String(std::string value) override { return Add(Value::Input(value)); }
  bool BeginObject() override { return Open(/*object=*/true); }
  bool BeginArray() override { return Open(/*object=*/false); }
  bool Key(std::string name) override {
    if (!open_.back().names.insert(name).second) {
      return Fail(absl::StrCat("the key ", QuoteName(name), " is there twice"));
    }
    open_.back().entries.emplace_back(Value::Input(name), Value());
    return true;
  }
  bool EndObject() override {
    Value value = Value::Dict(std::move(open_.back().entries));
    open_.pop_back();
    return Add(std::move(value));
  }
  bool EndArray() override {
    Value value = Value::Sequence(Value::Kind::kList, std::move(open_.back().list));
    open_.pop_back();
    return Add(std::move(value));
  }
  void SyntaxError(size_t position, absl::string_view) override {
    Fail(absl::StrCat("it is not valid JSON: the error is at byte ", position));
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

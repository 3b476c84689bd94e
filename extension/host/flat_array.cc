#include "extension/host/flat_array.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/read_json.h"

namespace lm {
namespace {

using nlohmann::json;

// The parser's events. Each returns whether to go on.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(absl::string_view what, absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take)
      : what_(what), take_(take) {}

  absl::Status status() const { return status_; }

  bool null() override { return Take({}); }
  bool boolean(bool value) override {
    return Take({ArrayElement::Kind::kBool, 0, value ? "true" : "false"});
  }
  bool number_integer(int64_t value) override {
    return Take({ArrayElement::Kind::kInteger, value, absl::StrCat(value)});
  }
  bool number_unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return number_integer(static_cast<int64_t>(value));
    }
    return Take({ArrayElement::Kind::kReal, 0, absl::StrCat(value)});
  }
  bool number_float(double, const std::string& text) override {
    return Take({ArrayElement::Kind::kReal, 0, text});
  }
  bool string(std::string& value) override {
    return Take({ArrayElement::Kind::kString, 0, std::move(value)});
  }
  bool binary(json::binary_t&) override { return Refuse("binary data"); }
  bool start_array(size_t) override {
    if (inside_) return Refuse("an array");
    inside_ = true;
    return true;
  }
  bool end_array() override { return true; }
  bool start_object(size_t) override { return Refuse("an object"); }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  // `position` counts the bytes read, the offending one included.
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(what_, " is not a JSON array: a syntax error at byte ", position - 1));
    return false;
  }

 private:
  bool Take(ArrayElement element) {
    if (!inside_) return Refuse("a single value");
    status_ = take_(index_++, std::move(element));
    return status_.ok();
  }

  bool Refuse(absl::string_view found) {
    status_ = absl::InvalidArgumentError(
        inside_ ? absl::StrCat(what_, "[", index_, "] must be a string or null, got ", found)
                : absl::StrCat(what_, " must be a JSON array, got ", found));
    return false;
  }

  const absl::string_view what_;
  const absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take_;
  bool inside_ = false;
  int64_t index_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status ReadFlatArray(absl::string_view text, absl::string_view what,
                           absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take) {
  Reader reader(what, take);
  ReadJson(text, &reader);
  return reader.status();
}

}  // namespace lm

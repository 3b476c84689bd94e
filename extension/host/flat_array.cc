#include "extension/host/flat_array.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"

namespace lm {
namespace {

constexpr size_t kMostShown = 40;  // bytes of a number

// The number at the end of `read` where no double holds it; else empty. JSON has such numbers, but
// what reads it here refuses them.
absl::string_view NumberBeyondDouble(absl::string_view read) {
  const absl::string_view number = read.substr(read.find_last_not_of("0123456789+-.eE") + 1);
  double value = 0;
  return absl::SimpleAtod(number, &value) && std::isinf(value) ? number : absl::string_view();
}

class Reader : public JsonEvents {
 public:
  Reader(absl::string_view text, absl::string_view what, absl::string_view wanted,
         absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take)
      : text_(text), what_(what), wanted_(wanted), take_(take) {}

  absl::Status status() const { return status_; }

  bool Null() override { return Take({}); }
  bool Bool(bool value) override {
    return Take({ArrayElement::Kind::kBool, 0, value ? "true" : "false"});
  }
  bool Integer(int64_t value) override {
    return Take({ArrayElement::Kind::kInteger, value, absl::StrCat(value)});
  }
  bool Unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Integer(static_cast<int64_t>(value));
    }
    return Take({ArrayElement::Kind::kReal, 0, absl::StrCat(value)});
  }
  bool Real(double, const std::string& text) override {
    return Take({ArrayElement::Kind::kReal, 0, text});
  }
  bool String(std::string value) override {
    return Take({ArrayElement::Kind::kString, 0, std::move(value)});
  }
  bool BeginArray() override {
    if (inside_) return Refuse("an array");
    inside_ = true;
    return true;
  }
  bool EndArray() override { return true; }
  bool BeginObject() override { return Refuse("an object"); }
  bool Key(std::string) override { return true; }
  bool EndObject() override { return true; }
  void SyntaxError(size_t position, absl::string_view) override {
    const absl::string_view number = NumberBeyondDouble(text_.substr(0, position));
    status_ = absl::InvalidArgumentError(
        number.empty()
            ? absl::StrCat(what_, " is not a JSON array: a syntax error at byte ", position - 1)
            : absl::StrCat(what_, "[", index_, "] is a number that is too large: ",
                           number.substr(0, kMostShown), number.size() > kMostShown ? "..." : ""));
  }

 private:
  bool Take(ArrayElement element) {
    if (!inside_) return Refuse("a single value");
    status_ = take_(index_++, std::move(element));
    return status_.ok();
  }

  bool Refuse(absl::string_view found) {
    status_ = absl::InvalidArgumentError(
        inside_ ? absl::StrCat(what_, "[", index_, "] must be ", wanted_, ", got ", found)
                : absl::StrCat(what_, " must be a JSON array, got ", found));
    return false;
  }

  const absl::string_view text_, what_, wanted_;
  const absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take_;
  bool inside_ = false;
  int64_t index_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status ReadFlatArray(absl::string_view text, absl::string_view what, absl::string_view wanted,
                           absl::FunctionRef<absl::Status(int64_t, ArrayElement)> take) {
  Reader reader(text, what, wanted, take);
  ReadJson(text, &reader);
  return reader.status();
}

}  // namespace lm

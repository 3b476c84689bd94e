// Json: a JSON value, of a bounded depth, that keeps to the rules of hash_map.h where memory runs
// out. (nlohmann's own values allocate when they are destroyed; its parser, which is under this
// one, is known to json.cc alone.)
//
//   const std::optional<Json> options = Json::Parse(R"({"seed":1})");
//   if (options && options->is_object()) const Json* seed = options->Find("seed");
//
//   Json answer = Json::MakeObject();
//   answer.Add("value", text);
//   answer.Add("tokens", Json::MakeArray().Append(1).Append(2));
//   std::string line = answer.Dump();           // {"value":"...","tokens":[1,2]}
#ifndef LM_ENGINE_BASE_JSON_H_
#define LM_ENGINE_BASE_JSON_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/variant.h"

namespace lm {

// A value type.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text

  // Objects and arrays within each other: more are not read.
  static constexpr int kDeepest = 200;

  Json() = default;  // null
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(std::nullptr_t) {}
  Json(double value) : value_(value) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(absl::string_view text) : value_(std::string(text)) {}
  Json(std::string text) : value_(std::move(text)) {}
  template <typename T>
  requires std::same_as<T, bool> Json(T value) : value_(value) {}
  // Integers that are not negative are unsigned, as they are read.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) {
    if (value < T{0}) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<uint64_t>(value);
    }
  }
  // An integer beyond 64 bits, by its digits as JSON has them.
  static Json LongInteger(std::string digits) { return Json(Digits{std::move(digits)}); }
  static Json MakeArray() { return Json(Array()); }
  static Json MakeObject() { return Json(Object()); }

  // nullopt where the text is no JSON, or one deeper than kDeepest; *depth is its depth in any case
  // (as far as it is JSON).
  static std::optional<Json> Parse(absl::string_view text, int* depth = nullptr);

  bool is_null() const { return Is<std::monostate>(); }
  bool is_boolean() const { return Is<bool>(); }
  bool is_number() const { return is_integer() || is_float(); }
  bool is_integer() const { return Is<int64_t>() || is_unsigned(); }
  bool is_unsigned() const { return Is<uint64_t>(); }
  // Long integers, too: number() is the nearest double to one, Dump() has all its digits.
  bool is_float() const { return Is<double>() || is_long_integer(); }
  bool is_long_integer() const { return Is<Digits>(); }
  bool is_string() const { return Is<std::string>(); }
  bool is_array() const { return Is<Array>(); }
  bool is_object() const { return Is<Object>(); }
  bool is_structured() const { return is_array() || is_object(); }

  // REQUIRES: the value is of that type.
  bool boolean() const { return std::get<bool>(value_); }
  double number() const;                                                    // is_number()
  uint64_t unsigned_integer() const { return std::get<uint64_t>(value_); }  // is_unsigned()
  int64_t integer() const;  // is_integer(), and it fits
  const std::string& string() const { return std::get<std::string>(value_); }
  const Array& array() const { return std::get<Array>(value_); }
  const Object& members() const { return std::get<Object>(value_); }

  // Elements or members; 0 for other values.
  size_t size() const;
  // The object's last member of that name; null where there is none, or no object.
  const Json* Find(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }
  // The string of that name, or "".
  std::string TextAt(absl::string_view name) const;

  // Adds an element, or a member, at the end. REQUIRES: is_array(), is_object().
  Json& Append(Json element);
  Json& Add(std::string name, Json value);

  // As one line without spaces; what is not UTF-8 is replaced.
  std::string Dump() const;

  // Numbers of different types are equal where their values are; members have an order.
  friend bool operator==(const Json& a, const Json& b);

 private:
  struct Digits {
    std::string text;

    friend bool operator==(const Digits&, const Digits&) = default;
  };

  explicit Json(Digits digits) : value_(std::move(digits)) {}
  explicit Json(Array elements) : value_(std::move(elements)) {}
  explicit Json(Object members) : value_(std::move(members)) {}
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(value_);
  }
  void DumpTo(std::string* text) const;

  Variant<std::monostate, bool, int64_t, uint64_t, double, Digits, std::string, Array, Object>
      value_;
};

// `text` in quotes, as JSON writes it.
std::string JsonString(absl::string_view text);

// What a text says, event by event, for those who want no tree of it, or to look it over first.
// Each returns whether to go on.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual bool Null() = 0;
  virtual bool Bool(bool value) = 0;
  virtual bool Integer(int64_t value) = 0;  // negative
  virtual bool Unsigned(uint64_t value) = 0;
  // What has a fraction or an exponent, or is beyond 64 bits; `text` is how it is written.
  virtual bool Real(double value, const std::string& text) = 0;
  virtual bool String(std::string value) = 0;
  virtual bool BeginArray() = 0;
  virtual bool EndArray() = 0;
  virtual bool BeginObject() = 0;
  virtual bool Key(std::string name) = 0;
  virtual bool EndObject() = 0;
  // `position` counts the bytes read, the offending one included; `what` says more.
  virtual void SyntaxError(size_t position, absl::string_view what) = 0;
};

// False where the text is no JSON, or where an event did not want to go on. With checkpoints
// (checkpoint.h): where the thread's scope is interrupted the text ends, in a syntax error.
bool ReadJson(absl::string_view text, JsonEvents* events);

}  // namespace lm

#endif  // LM_ENGINE_BASE_JSON_H_

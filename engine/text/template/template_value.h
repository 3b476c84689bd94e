// The values of a chat template: those of Python, as far as templates see them.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_VALUE_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/template_budget.h"
#include "engine/text/template/template_memory.h"
#include "engine/text/template/template_text.h"

namespace lm {

struct TemplateMethod;

// Cheap to copy: what is large is shared and does not change. Thread-safe as far as the copies are
// each used by one thread.
class TemplateValue {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,
    kList,
    kTuple,
    kView,       // of a dict: keys, values or items
    kGenerator,  // what map, select, items and their like give
    kDict,
    kNamespace,
    kLoop,
    kMacro,
    kFunction,
    kMethod,  // a method and what it belongs to
  };
  using List = std::vector<TemplateValue, CountedAllocator<TemplateValue>>;
  using Entry = std::pair<TemplateValue, TemplateValue>;
  using Entries = std::vector<Entry, CountedAllocator<Entry>>;

  // Lists in lists in lists: what holds more levels is refused by those who make or take values.
  static constexpr int kMaxDepth = 100;

  TemplateValue() = default;  // kUndefined, for no known reason
  static TemplateValue None();
  static TemplateValue Bool(bool value);
  static TemplateValue Integer(int64_t value);
  static TemplateValue Float(double value);
  // A kFloat that is written as its digits: Python's integers have no bound, those here have 64
  // bits.
  static TemplateValue LargeInteger(double value, absl::string_view digits);
  static TemplateValue String(TemplateText text);
  static TemplateValue Template(absl::string_view text);  // the template's own words
  static TemplateValue Input(absl::string_view text);
  // REQUIRES: kind is kList, kTuple, kView or kGenerator.
  static TemplateValue Sequence(Kind kind, List elements);
  static TemplateValue Dict(Entries entries);  // REQUIRES: no key twice
  // Of the renderer's own: `index` says which one, and of kUndefined why.
  static TemplateValue Of(Kind kind, int64_t index);
  static TemplateValue Method(const TemplateMethod* method, TemplateValue receiver);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool is_sequence() const { return kind_ >= Kind::kList && kind_ <= Kind::kGenerator; }
  bool is_number() const { return kind_ >= Kind::kBool && kind_ <= Kind::kFloat; }
  bool is_integer() const { return kind_ == Kind::kBool || kind_ == Kind::kInteger; }

  int64_t integer() const { return integer_; }  // all but kFloat
  double number() const;                        // REQUIRES: is_number()
  std::string FloatText() const;                // its repr(); REQUIRES: kFloat
  const TemplateText& text() const;             // REQUIRES: kString
  const List& list() const;                     // REQUIRES: is_sequence()
  const Entries& entries() const;               // REQUIRES: kDict
  const TemplateMethod* method() const;         // REQUIRES: kMethod
  const TemplateValue& receiver() const;        // REQUIRES: kMethod
  // The value of `key`, or nullptr; what the search costs is the budget's. REQUIRES: kDict.
  absl::StatusOr<const TemplateValue*> Find(absl::string_view key, TemplateBudget* budget) const;
  // REQUIRES: ... and that IsHashable(key).
  absl::StatusOr<const TemplateValue*> Find(const TemplateValue& key, TemplateBudget* budget) const;
  // Digits of a number of the input stay the input's, and so do those of what is computed from it.
  bool from_input() const { return from_input_; }
  TemplateValue FromInput(bool from_input = true) &&;
  // A string that went through the filter `safe`: added to another, it escapes that for HTML, as
  // Python's Markup does even where nothing else is escaped.
  bool is_safe() const { return is_safe_; }
  TemplateValue Safe() &&;
  int depth() const { return depth_; }

  bool Truth() const;
  const char* TypeName() const;  // as Python calls it

 private:
  Kind kind_ = Kind::kUndefined;
  bool from_input_ = false;
  bool is_safe_ = false;
  uint8_t depth_ = 0;
  union {
    int64_t integer_ = 0;
    double float_;
    const TemplateMethod* method_;
  };
  std::shared_ptr<const void> object_;
};

// a == b.
absl::StatusOr<bool> SameValue(const TemplateValue& a, const TemplateValue& b,
                               TemplateBudget* budget);
// -1, 0 or 1; InvalidArgument for what Python does not order.
absl::StatusOr<int> CompareValues(const TemplateValue& a, const TemplateValue& b,
                                  TemplateBudget* budget);

// Whether a dict can have it as a key.
bool IsHashable(const TemplateValue& value);
// (*entries)[key] = value.
absl::Status SetEntry(TemplateValue key, TemplateValue value, TemplateBudget* budget,
                      TemplateValue::Entries* entries);

// Appends str(value) or repr(value). InvalidArgument for what has no fixed form (a macro).
absl::Status AppendString(const TemplateValue& value, TemplateBudget* budget, TemplateText* out);
absl::Status AppendRepr(const TemplateValue& value, TemplateBudget* budget, TemplateText* out);
// str(value) without a copy if it is a string already.
absl::StatusOr<TemplateValue> ToString(const TemplateValue& value, TemplateBudget* budget);
// With & < > " ' written as HTML has it.
TemplateText EscapeHtml(const TemplateText& text);
// repr(number) as Python writes a float.
std::string FloatRepr(double number);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_VALUE_H_

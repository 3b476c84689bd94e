// What filters, tests, methods and functions of chat templates are called with.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_CALL_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_CALL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/template/template_budget.h"
#include "engine/text/template/template_value.h"

namespace lm {

// By position, then by name.
struct TemplateArguments {
  TemplateValue::List values;
  std::vector<std::pair<absl::string_view, TemplateValue>> keywords;

  // The argument of that place or name, or nullptr.
  const TemplateValue* Find(size_t place, absl::string_view name) const;
  // Whether it is there, and true.
  bool IsTrue(size_t place, absl::string_view name) const;
  // InvalidArgument, naming it, for a keyword that is not among `names` and for more than
  // names.size() by position; what `callee` is goes before the message.
  absl::Status Check(absl::string_view callee, absl::Span<const absl::string_view> names) const;
};

// Filters and methods: `value` is what stands before the bar or the dot.
using TemplateFilter = absl::StatusOr<TemplateValue>(const TemplateValue& value,
                                                     const TemplateArguments& arguments,
                                                     TemplateBudget* budget);
using TemplateTest = absl::StatusOr<bool>(const TemplateValue& value,
                                          const TemplateArguments& arguments,
                                          TemplateBudget* budget);

// Null where there is none of that name.
TemplateFilter* FindTemplateFilter(absl::string_view name);
TemplateTest* FindTemplateTest(absl::string_view name);

// A name that Python's str, list or dict has: as an attribute it comes before a member of that
// name.
struct TemplateMethod {
  absl::string_view name;
  TemplateFilter* of_string = nullptr;  // null where that type has none of the name
  TemplateFilter* of_list = nullptr;
  TemplateFilter* of_dict = nullptr;

  TemplateFilter* Of(const TemplateValue& value) const;
};
// Null where none of them has it.
const TemplateMethod* FindTemplateMethod(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_CALL_H_

// Operators and subscripts of chat templates, as Python has them.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_OPERATORS_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_OPERATORS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/text/template/template_tree.h"

namespace lm {

// + - * / // % **. InvalidArgument for types that have no such operator, division by zero, and
// integers beyond 64 bits, which Python would go on with.
absl::StatusOr<TemplateValue> Calculate(TemplateExpression::Operator op, const TemplateValue& a,
                                        const TemplateValue& b, TemplateBudget* budget);

// == != < <= > >= in, not in.
absl::StatusOr<bool> Holds(TemplateExpression::Operator op, const TemplateValue& a,
                           const TemplateValue& b, TemplateBudget* budget);

// sequence[index]; kUndefined where there is none.
// REQUIRES: sequence is a list, tuple or string.
absl::StatusOr<TemplateValue> ElementAt(const TemplateValue& sequence, int64_t index,
                                        TemplateBudget* budget);

// value[begin:end:step]; undefined or None where left out.
absl::StatusOr<TemplateValue> Slice(const TemplateValue& value, const TemplateValue& begin,
                                    const TemplateValue& end, const TemplateValue& step,
                                    TemplateBudget* budget);

// The elements that a loop over `value` sees. InvalidArgument where nothing can be looped over.
absl::StatusOr<TemplateValue::List> Elements(const TemplateValue& value, TemplateBudget* budget);

// len(value).
absl::StatusOr<int64_t> LengthOf(const TemplateValue& value, TemplateBudget* budget);

// format % value: %s %r %d %i %f %x %c and %%, with flags, width and precision.
absl::StatusOr<TemplateValue> FormatPercent(const TemplateText& format, const TemplateValue& value,
                                            TemplateBudget* budget);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_OPERATORS_H_

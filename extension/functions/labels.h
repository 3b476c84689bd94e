// The labels argument of lm_classify: a JSON array of them, or an object that describes each.
#ifndef LM_EXTENSION_FUNCTIONS_LABELS_H_
#define LM_EXTENSION_FUNCTIONS_LABELS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

struct Label {
  std::string name;
  std::string description;  // may be empty
};

// ["a", "b"] or {"a": "what a means", "b": null}, in that order. InvalidArgument for anything else,
// naming the label: one that is not text, that is empty or there twice; for none at all.
absl::StatusOr<std::vector<Label>> ParseLabels(absl::string_view json);

// As the option `choices` has them: ["a","b"].
std::string ChoicesOf(const std::vector<Label>& labels);

// "a, b, c".
std::string NamesOf(const std::vector<Label>& labels);

// A line for each label that has a description: "\n- a: what a means".
std::string DescriptionsOf(const std::vector<Label>& labels);

}  // namespace lm

#endif  // LM_EXTENSION_FUNCTIONS_LABELS_H_

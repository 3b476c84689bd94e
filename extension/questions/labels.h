// The labels of lm_classify and its kin, and what the model is told of them.
#ifndef LM_EXTENSION_QUESTIONS_LABELS_H_
#define LM_EXTENSION_QUESTIONS_LABELS_H_

#include <optional>
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
absl::StatusOr<std::vector<Label>> ParseLabels(absl::string_view text);

std::vector<std::string> NamesOf(const std::vector<Label>& labels);
// As the option `choices` has them: ["a","b"].
std::string ChoicesOf(const std::vector<Label>& labels);

// The system prompt that asks for one of them.
std::string ClassifyPrompt(const std::optional<std::string>& instruction,
                           const std::vector<Label>& labels);

// What of that the caller has written, for RowPrompt::asked.
std::string ClassifyWords(const std::optional<std::string>& instruction,
                          const std::vector<Label>& labels);

// The question behind a text whether this label applies. A description that ends with a question
// mark is the question.
std::string LabelQuestion(const std::optional<std::string>& instruction, const Label& label);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_LABELS_H_

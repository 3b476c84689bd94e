// Examples: questions with the answers that one would like to have, which go before each prompt.
//
//   options.examples = Examples(std::vector<Example>{{"It broke.", "complaint"}});
//   for (const Example& example : options.examples) ...
//
// To the model each is a question of the user's and its own answer, between the system prompt and
// the prompt: the same for all rows, and so computed once. Cheap to copy.
#ifndef LM_ENGINE_RUNTIME_EXAMPLES_H_
#define LM_ENGINE_RUNTIME_EXAMPLES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lm {

struct Example {
  std::string prompt;
  std::string answer;

  friend bool operator==(const Example&, const Example&) = default;
};

class Examples {
 public:
  Examples() = default;
  explicit Examples(std::vector<Example> examples)
      : examples_(std::make_shared<const std::vector<Example>>(std::move(examples))) {}
  // The examples of a set, by its name (lm_examples): they still have to be looked up.
  static Examples OfSet(std::string name) {
    Examples examples;
    examples.set_ = std::move(name);
    return examples;
  }

  bool empty() const { return examples_ == nullptr || examples_->empty(); }
  const Example* begin() const { return examples_ != nullptr ? examples_->data() : nullptr; }
  const Example* end() const { return empty() ? begin() : begin() + examples_->size(); }
  // The set that still has to be looked up; empty: none.
  const std::string& set() const { return set_; }

  friend bool operator==(const Examples& a, const Examples& b) {
    if (a.set_ != b.set_) return false;
    if (a.examples_ == b.examples_ || (a.empty() && b.empty())) return true;
    return !a.empty() && !b.empty() && *a.examples_ == *b.examples_;
  }

 private:
  std::string set_;
  std::shared_ptr<const std::vector<Example>> examples_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_EXAMPLES_H_

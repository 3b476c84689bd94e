// How well texts answer a query: by a yes or no that is asked about each, by which of two answers
// it better, or by a model that is made for that.
//
//   ASSIGN_OR_RETURN(Relevance relevance, Relevance::Create("maps of the stars", options));
//   queue.Push(relevance.Row(text));
//   ...
//   const double score = relevance.Score(queue.front().generation);
#ifndef LM_EXTENSION_QUESTIONS_RELEVANCE_H_
#define LM_EXTENSION_QUESTIONS_RELEVANCE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/batch/row_prompt.h"

namespace lm {

// A value type.
class Relevance {
 public:
  static absl::StatusOr<Relevance> Create(std::string query, CallOptions options);

  RowPrompt Row(absl::StatusOr<std::optional<std::string>> text) const;
  // From 0 to 1: the probability of a yes. REQUIRES: the answer to such a row, and no failure.
  double Score(const Generation& answer) const;

  OnError on_error() const { return options_->generation.on_error; }

 private:
  std::string query_;
  std::shared_ptr<const CallOptions> options_;
  bool ranks_ = false;  // the model is made for it, and for nothing else
};

// A value type.
class Comparison {
 public:
  static absl::StatusOr<Comparison> Create(std::string query, CallOptions options);

  RowPrompt Row(absl::string_view a, absl::string_view b) const;
  // How probable it is that `a` is the better one, by the logits. REQUIRES: as above.
  double Score(const Generation& answer) const;

 private:
  std::string query_;
  std::shared_ptr<const CallOptions> options_;
};

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_RELEVANCE_H_

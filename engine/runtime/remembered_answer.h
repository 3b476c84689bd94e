// RememberedAnswer: an answer as the memo keeps it, and what one from elsewhere is held to.
#ifndef LM_ENGINE_RUNTIME_REMEMBERED_ANSWER_H_
#define LM_ENGINE_RUNTIME_REMEMBERED_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/request.h"

namespace lm {

class Engine;

struct RememberedAnswer {
  std::string text = {};
  FinishReason finish = FinishReason::kStop;
  std::vector<int32_t> tokens = {};             // where the generator tells them
  std::vector<FirstChoice> first_choices = {};  // where it wanted them; of a vote
  int32_t tokens_in = 0;                        // of the prompt
  int32_t tokens_out = 0;
  std::vector<float> embedding = {};  // Generation's: of an answer none

  // Whether that is what was asked for.
  bool is_vector() const { return !embedding.empty(); }
  int64_t bytes() const;
};

// Whether the engine can have given `answer` to `spec`: its tokens are the vocabulary's, they spell
// its text, follow the constraint and end where `finish` says, and its first choices are those that
// the constraint allows, with probabilities. So a label is one of the labels and JSON fits its
// schema whoever wrote it down; which of the possible answers it is, the model alone could tell.
bool CanBeAnswer(const Engine& engine, const RequestSpec& spec, const RememberedAnswer& answer);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_REMEMBERED_ANSWER_H_

#include "extension/jobs/job_answer.h"

#include <utility>

#include "extension/batch/row_answer.h"

namespace lm {

JobAnswer JobAnswerOf(Generation generation, OnError on_error, JobAsked asked) {
  JobAnswer answer{.generation = std::move(generation), .asked = std::move(asked)};
  if (answer.generation.status.ok()) {
    answer.value = answer.generation.text;
  } else if (on_error == OnError::kJson) {
    answer.value = GenerationJson(answer.generation);
  } else {
    answer.store = false;
  }
  return answer;
}

}  // namespace lm

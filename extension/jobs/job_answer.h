// JobAnswer: what became of a job's row.
#ifndef LM_EXTENSION_JOBS_JOB_ANSWER_H_
#define LM_EXTENSION_JOBS_JOB_ANSWER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/runtime/generation_options.h"
#include "engine/runtime/request.h"

namespace lm {

// The question of an answer, as lm_job_rows keeps it (job_question.h). Empty: it is not known.
struct JobAsked {
  std::string version = {};  // prompt_version
  std::string model = {};

  friend bool operator==(const JobAsked& a, const JobAsked& b) {
    return a.version == b.version && a.model == b.model;
  }
};

struct JobAnswer {
  Generation generation = {};
  bool null_prompt = false;
  JobAsked asked = {};
  std::optional<std::string> value = {};  // for lm_job_rows and the target
  bool store = true;                      // the target takes it
  absl::Status refused = {};              // why it has not; then the answer is kept
};

// With OnError::kJson a failure is an answer, too, and has lm_try's object as its value.
JobAnswer JobAnswerOf(Generation generation, OnError on_error, JobAsked asked);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_ANSWER_H_

// JobQuestion: what a job asks about each of its rows, told apart by a digest, so that a later run
// knows which answers are to another question.
//
//   const JobQuestion question(job, options, settings_system, digest);
//   answer.asked = question.Of(row);
#ifndef LM_EXTENSION_JOBS_JOB_QUESTION_H_
#define LM_EXTENSION_JOBS_JOB_QUESTION_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/runtime/generation_options.h"
#include "extension/batch/read_in_parts.h"
#include "extension/jobs/job_answer.h"

namespace lm {

// A row as it is given to the model.
struct JobRow {
  int64_t number = 0;  // its place in the job
  // Errors are the row's: a prompt that is no text.
  absl::StatusOr<std::optional<std::string>> prompt = std::nullopt;
  absl::StatusOr<std::optional<std::string>> system = std::nullopt;  // nullopt: the job's
  // The model's answer that its target has refused. It is the row's where it is to what is asked.
  std::optional<JobAnswer> kept = {};
  std::string error = {};  // with which it has failed; empty: it has not

  size_t bytes() const;  // of its texts
};

// A value type.
class JobQuestion {
 public:
  // `system` is that of rows without one; `model` the digest of the one that is asked, empty where
  // it is not known. `parts` may be null.
  JobQuestion(const GenerationOptions& options, std::string system, std::string model,
              const ReadInParts* parts = nullptr);

  JobAsked Of(const JobRow& row) const;
  // The kept answer, where it is one to what the row asks now.
  std::optional<Generation> Kept(const JobRow& row) const;

 private:
  std::string options_;  // those that change an answer
  std::string system_;
  std::string model_;
};

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_QUESTION_H_

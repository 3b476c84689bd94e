// JobOptions: lm_jobs.options, which are generate()'s and, of jobs alone,
//
//   {"summarize":true}          its rows are answered as lm_summarize() answers: a text longer than
//                               the model's context is read in parts, the system prompt says what
//                               to do with each
//   {"combine":"...", "part_tokens":n}   beside it, as lm_summarize() has them
#ifndef LM_EXTENSION_JOBS_JOB_OPTIONS_H_
#define LM_EXTENSION_JOBS_JOB_OPTIONS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "extension/batch/read_in_parts.h"

namespace lm {

struct JobOptions {
  std::optional<std::string> of_calls = {};       // generate()'s, as JSON
  std::shared_ptr<const ReadInParts> parts = {};  // null: each row is one prompt
};

// InvalidArgument for what is wrong with the job's own. Options of generate() are checked where
// they are read.
absl::StatusOr<JobOptions> ReadJobOptions(const std::optional<std::string>& json);

}  // namespace lm

#endif  // LM_EXTENSION_JOBS_JOB_OPTIONS_H_

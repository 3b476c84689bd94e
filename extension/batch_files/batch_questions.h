// BatchQuestions: what a job's rows ask, as the lines of a file that is answered elsewhere, and
// what the lines of the answers say.
//
//   {"custom_id":"label:17:0f3a…","method":"POST","url":"/v1/chat/completions","body":{…}}
//   {"custom_id":"label:17:0f3a…","response":{"status_code":200,"body":{…}},"error":null}
//
// A line belongs to a row of lm_job_rows by the job's name and the row's number; the digest is that
// of what was asked: its messages, the options that go with them, and the dialect. So an answer
// tells which question it is to, and an answer to another question is none.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_QUESTIONS_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_QUESTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/grammar/grammar.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/remote_options.h"
#include "engine/runtime/memo.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/request.h"
#include "extension/connection/connection.h"
#include "extension/jobs/job_question.h"
#include "extension/jobs/job_store.h"

namespace lm {

// Which server is to answer.
struct BatchTarget {
  std::string reference = {};             // a name of lm_models; empty: the one that the job names
  std::optional<std::string> model = {};  // the server's name for it; else as lm_models has it
  std::optional<Dialect> dialect = {};    // else as lm_models has it
  Dialect spoken = Dialect::kOpenAi;      // where neither does
};

// A line of answers.
struct BatchLine {
  std::string job;
  int64_t number = 0;
  std::string digest;
  Json answer;           // of the chat API, where `failure` is OK
  absl::Status failure;  // what the server says instead; Unavailable: it has not begun with it
};
// InvalidArgument for what is no such line.
absl::StatusOr<BatchLine> ReadBatchLine(absl::string_view line);

// Not thread-safe: it remembers which dialect it met last.
class BatchQuestions {
 public:
  // Errors: those of the job's options; InvalidArgument for a dialect that is none.
  static absl::StatusOr<BatchQuestions> Of(Connection& connection, const Job& job,
                                           const BatchTarget& target);

  // What the server calls the model. FailedPrecondition where that was not said.
  absl::StatusOr<std::string> model() const;
  const GenerationOptions& options() const { return options_; }
  // What the rows' answers are to.
  JobQuestion question() const { return JobQuestion(options_, system_.value_or(""), identity_); }

  // REQUIRES: the row has a prompt.
  absl::StatusOr<RequestSpec> Ask(const JobRow& row) const;
  // The line of the row that asks `spec`, with its end. The errors of model() and ChatBody.
  absl::StatusOr<std::string> Line(int64_t number, const RequestSpec& spec) const;

  // Whether the line's digest is that of `spec`.
  bool Asked(const BatchLine& line, const RequestSpec& spec);
  // What the line says of it, held to the constraint; what is no answer is its status.
  // REQUIRES: Asked() has just returned true.
  Generation Answer(const BatchLine& line, const RequestSpec& spec) const;
  // Has the memo know it, where the model is one on the network, and the one that was asked.
  void Remember(const RequestSpec& spec, const Generation& generation) const;
  // Has what was remembered written down.
  void FlushMemo() const;

 private:
  BatchQuestions() = default;

  std::string job_;
  std::optional<std::string> system_;  // of rows without one
  GenerationOptions options_;
  std::shared_ptr<const Grammar> grammar_;  // may be null
  RemoteModel model_;
  RemoteOptions remote_;
  std::string
      identity_;  // Generator::identity; empty: the model that was asked is no generator here
  MemoAccess memo_;
  Dialect met_ = Dialect::kOpenAi;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_QUESTIONS_H_

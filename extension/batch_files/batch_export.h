// BatchExport: a job's rows as the lines of files of requests, which a server elsewhere answers.
//
//   ASSIGN_OR_RETURN(BatchExport lines, BatchExport::Begin(connection, "label", options));
//   for (std::string line;;) {
//     ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
//     if (!more) break;
//   }
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_EXPORT_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_EXPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/batch_files/batch_questions.h"
#include "extension/batch_files/batch_rows.h"
#include "extension/jobs/found_job.h"
#include "extension/jobs/submitted_rows.h"

namespace lm {

// The most that the Batch API takes in one file.
struct ShardLimits {
  int64_t lines = 50'000;
  int64_t bytes = 200'000'000;
};

// The questions of a range of a job's rows, in the order of their numbers. Rows that need no model
// (a NULL prompt, a prompt that is no text) are done on the way.
class BatchLines {
 public:
  // REQUIRES: all outlive it.
  BatchLines(FoundJob* job, BatchRows* rows, const BatchQuestions* questions,
             const BatchRange& range)
      : job_(*job),
        rows_(*rows),
        questions_(*questions),
        submitted_(job->database.get()),
        range_(range) {}

  // The next line, with its end; false where there is none.
  absl::StatusOr<bool> Next(std::string* line);
  // Of the row that asks it.
  int64_t number() const { return number_; }

 private:
  struct Question {
    int64_t number;
    RequestSpec spec;
  };

  // Asks the next rows into page_, of which none may be left; false where the range has none.
  absl::StatusOr<bool> ReadPage();

  FoundJob& job_;
  BatchRows& rows_;
  const BatchQuestions& questions_;
  SubmittedRows submitted_;
  BatchRange range_;  // of the rows that were not read yet
  std::vector<Question> page_;
  size_t next_ = 0;  // of page_
  int64_t number_ = 0;
};

struct BatchExportOptions {
  BatchTarget target = {};
  ShardLimits limits = {};
  std::optional<std::string> path = {};  // of files: path-00001.jsonl and so on
  bool retry = false;                    // failed rows, too
  std::optional<std::string> database = {};
};

// A line, or where `path` is given a file that is there.
struct ExportedLines {
  int64_t shard = 0;  // from 1 on
  int64_t lines = 0;
  int64_t bytes = 0;
  std::string text = {};  // the line, without its end; or the file's path
};

// Not thread-safe; used while one statement runs.
class BatchExport {
 public:
  // Asks the job's query, if that was not done yet. Errors: those of OpenJob and BatchQuestions.
  static absl::StatusOr<std::unique_ptr<BatchExport>> Begin(Connection& connection,
                                                            absl::string_view job,
                                                            const BatchExportOptions& options);
  // nullopt at the end.
  absl::StatusOr<std::optional<ExportedLines>> Advance();

 private:
  BatchExport(const BatchExportOptions& options, FoundJob job, BatchQuestions questions);

  absl::StatusOr<std::optional<ExportedLines>> NextFile();
  // Reads a line where none is held; false at the end.
  absl::StatusOr<bool> Hold();

  const BatchExportOptions options_;
  FoundJob job_;
  BatchQuestions questions_;
  BatchRows rows_;
  BatchLines lines_;
  std::string held_;       // a line that was read and not handed out; empty: none
  ExportedLines current_;  // the shard that is being filled
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_EXPORT_H_

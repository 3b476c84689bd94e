// BatchImport: a file of answers to what BatchExport wrote, put where they belong.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<BatchImport> import,
//                    BatchImport::Begin(connection, "label", std::nullopt));
//   RETURN_IF_ERROR(import->Open("answers.jsonl"));
//   for (;;) {
//     ASSIGN_OR_RETURN(const bool more, import->Advance());
//     if (!more) break;
//   }
//   import->counts();
//
// Lines come in any order, and as often as they like: a row takes the first answer that it is
// given, and a failure until an answer comes. A transaction has some hundred of them, with what the
// job's target does.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_IMPORT_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_IMPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/line_reader.h"
#include "extension/batch_files/batch_questions.h"
#include "extension/batch_files/batch_rows.h"
#include "extension/jobs/found_job.h"

namespace lm {

struct ImportCounts {
  int64_t lines = 0;
  int64_t done = 0;     // rows that got their answer
  int64_t failed = 0;   // rows that failed now
  int64_t again = 0;    // lines of rows that had their answer, or their failure
  int64_t unbegun = 0;  // requests that the server had no time for: their rows wait
  int64_t refused = 0;  // lines that no row can take

  ImportCounts& operator+=(const ImportCounts& other);
};

// Not thread-safe; used while one statement runs.
class BatchImport {
 public:
  static absl::StatusOr<std::unique_ptr<BatchImport>> Begin(
      Connection& connection, absl::string_view job, const std::optional<std::string>& database);
  // For a caller that has the job open already. REQUIRES: *job outlives it.
  BatchImport(FoundJob* job, BatchQuestions questions);

  // Begins with a file, in which a line that the import cannot take is not an error of it.
  absl::Status Open(const std::string& path);
  absl::Status Open(std::unique_ptr<RandomAccessFile> file);
  // Takes some hundred lines. False at the file's end.
  absl::StatusOr<bool> Advance();

  const ImportCounts& counts() const { return counts_; }
  // Why lines were refused, since this was last asked: "line 7: ...".
  std::vector<std::string> TakeRefusals() { return std::exchange(refusals_, {}); }

 private:
  struct Taken;
  using Lines = std::vector<std::pair<int64_t, std::string>>;  // with their numbers

  // The line of that number.
  absl::Status Apply(int64_t at, absl::string_view text, Taken* taken);
  // Applies those from *next on in one transaction, or as many as it is to have. `last`: the file
  // has no others.
  absl::Status Take(const Lines& lines, bool last, size_t* next);

  std::unique_ptr<FoundJob> own_job_;  // null: the caller's
  FoundJob& job_;
  BatchQuestions questions_;
  BatchRows rows_;
  std::unique_ptr<LineReader> lines_;
  ImportCounts counts_;
  std::vector<std::string> refusals_;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_IMPORT_H_

// EachBatch: the prompts of one lm_each() call, on their way through the engine together.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<EachBatch> batch, EachBatch::Create(json, system, ...));
//   for (; !batch->Done(); batch->Next()) {
//     RETURN_IF_ERROR(batch->AwaitCurrent(db));
//     Use(batch->index(), batch->current());
//   }
#ifndef LM_EXTENSION_EACH_BATCH_H_
#define LM_EXTENSION_EACH_BATCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/session.h"
#include "extension/sqlite_api.h"

namespace lm {

// The answer to one prompt, or why there is none.
struct EachResult {
  bool null_prompt = false;  // then nothing else says anything
  Generation generation;     // status: never Cancelled
};

// Not thread-safe. Destroying it cancels what is not answered yet.
class EachBatch {
 public:
  // Reads the array and submits all of it; where the engine's queue is full, the rest follows as
  // places fall free. Errors are the whole call's: an array that is none, or an element that is no
  // prompt.
  static absl::StatusOr<std::unique_ptr<EachBatch>> Create(absl::string_view json,
                                                           std::string system, Session session,
                                                           GenerationOptions options);
  ~EachBatch();
  EachBatch(const EachBatch&) = delete;
  EachBatch& operator=(const EachBatch&) = delete;

  bool Done() const { return index_ >= rows_.size(); }
  int64_t index() const { return static_cast<int64_t>(index_); }
  void Next() { ++index_; }

  // Waits for the answer to the current prompt. Cancelled on an interrupt of `db`'s statement.
  // REQUIRES: !Done().
  absl::Status AwaitCurrent(sqlite3* db);
  // REQUIRES: AwaitCurrent has returned OK for this prompt.
  const EachResult& current() const { return current_; }

  const GenerationOptions& options() const { return options_; }

 private:
  struct Row {
    std::optional<std::string> prompt;  // taken away when it is submitted
    std::shared_ptr<Request> request;   // null: not submitted, or refused
    absl::Status refused;
  };

  EachBatch(std::string system, Session session, GenerationOptions options);

  absl::Status Add(int64_t index, absl::string_view text);
  // Submits what the queue takes.
  void SubmitMore();

  const std::string system_;
  const Session session_;
  const GenerationOptions options_;
  const ForkGuard fork_guard_;
  std::vector<Row> rows_;
  size_t submitted_ = 0;  // rows [0, submitted_) are
  size_t index_ = 0;
  EachResult current_;
};

}  // namespace lm

#endif  // LM_EXTENSION_EACH_BATCH_H_

// EachBatch: the prompts of one lm_each() call, on their way through the engine together
// (AnswerQueue).
//
//   ASSIGN_OR_RETURN(std::unique_ptr<EachBatch> batch, EachBatch::Create(json, system, ...));
//   for (; !batch->Done(); batch->Next()) {
//     RETURN_IF_ERROR(batch->AwaitCurrent(db));
//     Use(batch->index(), batch->current());
//   }
#ifndef LM_EXTENSION_TABLES_EACH_BATCH_H_
#define LM_EXTENSION_TABLES_EACH_BATCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/batch/answer_queue.h"

namespace lm {

// Not thread-safe. Destroying it cancels what is not answered yet.
class EachBatch {
 public:
  // Reads the array and sets the first prompts on their way; the others follow as answers come.
  // Errors are the whole call's: an array that is none, or an element that is no prompt.
  static absl::StatusOr<std::unique_ptr<EachBatch>> Create(absl::string_view json,
                                                           std::string system, CallOptions options);
  EachBatch(const EachBatch&) = delete;
  EachBatch& operator=(const EachBatch&) = delete;

  bool Done() const { return index_ >= prompts_.size(); }
  int64_t index() const { return static_cast<int64_t>(index_); }
  void Next();

  // Waits for the answer to the current prompt. Cancelled on an interrupt of `db`'s statement.
  // REQUIRES: !Done().
  absl::Status AwaitCurrent(sqlite3* db) { return queue_.AwaitFront(db); }
  // REQUIRES: AwaitCurrent has returned OK for this prompt.
  const RowAnswer& current() const { return queue_.front(); }

  const GenerationOptions& options() const { return options_->generation; }

 private:
  EachBatch(std::string system, CallOptions options);

  void PushMore();

  const std::string system_;
  const std::shared_ptr<const CallOptions> options_;
  std::vector<std::optional<std::string>> prompts_;  // taken away when they are pushed
  size_t pushed_ = 0;                                // prompts_[0, pushed_) are
  size_t index_ = 0;
  AnswerQueue queue_;  // prompts_[index_, pushed_)
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_EACH_BATCH_H_

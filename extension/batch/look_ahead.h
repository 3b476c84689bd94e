// LookAhead: lets a plain statement that calls generate() row by row decode many rows together, and
// so for lm_classify(), lm_embed() and all others that ask the model one thing for each row.
//
//   UPDATE reviews SET label = generate(body, 'Label the review.') WHERE label IS NULL;
//
// While such a statement runs, its shadow (shadow_statement.h), a SELECT of the same rows on the
// same connection, is stepped ahead of it. generate(), called by the shadow, answers NULL and
// leaves its prompt as a hint; hints are submitted, and when the statement comes to a row whose
// prompt was foreseen, the answer is under way or there. A hint is only ever used for a call with
// exactly the same prompt, system prompt, options and model: a wrong guess costs time and changes
// nothing.
//
// What writes runs to its end, so all of its rows will be wanted: its shadow begins with the first
// row that has to wait, and runs as far ahead as a batch form would. A SELECT may be left after any
// row: it begins with the second one, and runs further ahead with each.
//
// One object belongs to one run of one statement: SQLite destroys it when that is reset, before
// locks are let go and a transaction is committed; the shadow, its cursors and its hints go with
// it.
#ifndef LM_EXTENSION_BATCH_LOOK_AHEAD_H_
#define LM_EXTENSION_BATCH_LOOK_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "extension/batch/pending_answer.h"
#include "extension/connection/scalar_function.h"
#include "extension/host/statement.h"

namespace lm {

// The answer to a call of a function that generates one row, foreseen or not. nullopt where the
// call was a shadow's: its result is NULL, and has been set. An error is the statement's.
absl::StatusOr<std::optional<PendingAnswer>> AwaitRow(const Call& call, RowPrompt row);

// The same, and the answer is the call's result, or what on_error wants of a row that failed.
absl::Status AnswerRow(const Call& call, RowPrompt row, AnswerType type = AnswerType::kText);

// Not thread-safe.
class LookAhead {
 public:
  // `function`: the one that the statement has called first.
  LookAhead(std::shared_ptr<Connection> connection, std::string function);
  ~LookAhead();
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  // The statement's own call: takes what was foreseen for the row, or submits it, and looks further
  // ahead.
  PendingAnswer Take(RowPrompt row);

  // A call by the shadow. An error where the shadow has gone far enough.
  absl::Status Foresee(RowPrompt row);

  // The statement that this object found itself to belong to; nullptr before it has looked.
  const sqlite3_stmt* statement() const { return statement_; }

 private:
  // What a row is told apart by.
  struct RowText {
    std::string prompt;
    std::string system;
    std::string question;
    std::optional<Pooling> embed;
    std::shared_ptr<const CallOptions> options;

    explicit RowText(const RowPrompt& row);
    bool operator==(const RowText& other) const;
  };
  struct Hint {
    RowText text;
    PendingAnswer pending;
  };

  bool IsTimeToBegin() const;
  absl::Status Begin(const RowText& now);
  bool FindPlace(const RowText& now, int64_t skipped);
  absl::StatusOr<sqlite3_stmt*> FindStatement() const;
  size_t Find(const RowText& text) const;  // among hints_; their number where it is not
  std::optional<PendingAnswer> TakeHint(const RowText& text);
  void StepShadow();
  void SubmitHints();
  void DropHints(size_t count);  // from the front
  void StepOnce();
  void Stop(absl::Status why);
  std::string Slowness() const;
  void Warn() const;  // that rows are answered one by one

  const std::shared_ptr<Connection> connection_;
  const std::string function_;
  const sqlite3_stmt* statement_ = nullptr;
  bool begun_ = false;
  absl::Status off_;        // why there is no looking ahead (any more); OK: it may be, or is
  Statement shadow_;        // not prepared: not begun, or over
  std::deque<Hint> hints_;  // of the rows to come, in the shadow's order
  size_t submitted_ = 0;    // hints_[0, submitted_) are
  size_t width_ = 0;        // so many are to be under way
  // Where one step of the shadow comes by more calls than are to be kept, it is ended, and begun
  // anew, without its first calls, when those that were kept are used up.
  bool full_ = false;
  size_t most_hints_;
  int64_t num_foreseen_ = 0;  // calls that the shadow has made since it began
  int64_t num_skipped_ = 0;   // of those, so many at first are known
  int64_t num_calls_ = 0;
  int64_t num_asked_ = 0;    // calls whose answers the model had to make
  int64_t num_serial_ = 0;   // of those, the ones that nobody had foreseen
  int64_t num_taken_ = 0;    // hints that were right
  int64_t num_wrong_ = 0;    // hints that were passed over
  int64_t num_missing_ = 0;  // calls that no hint was there for
  std::optional<RowText> last_;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_LOOK_AHEAD_H_

// LookAhead: lets a plain statement that calls generate() row by row decode many rows together, and
// so for lm_classify(), lm_embed() and all others that ask the model one thing for each row, be it
// a table-valued function in a join. The functions and tables come here by way of await_row.h.
//
//   UPDATE reviews SET label = generate(body, 'Label the review.') WHERE lm_if(body, 'Is it one?');
//
// While such a statement runs, its shadow (shadow_statement.h), a SELECT of the same rows on the
// same connection, is stepped ahead of it, also while the statement waits. Calls that the shadow
// makes are foreseen: they are submitted, and when the statement makes them, the answers are under
// way or there. What was foreseen is only ever used for a call with exactly the same text: a wrong
// guess costs time and changes nothing.
//
// WHAT DEPENDS ON AN ANSWER
// A call of the shadow whose answer is known has that answer as its result; one whose answer is not
// there yet is NULL, and the shadow goes on. So in the first walk over the rows above, lm_if() is
// NULL for all of them, and no generate() is seen behind it. The shadow walks its rows again from
// the first when it can know more: when the statement makes a call that was not foreseen, or little
// is under way any more, and answers that the shadow had to do without have come. All answers that
// the statement has had are remembered, so that the shadow comes exactly to where the statement is,
// and goes on from there with what is known by now. What it may spend so is earned by the calls
// that the model answers.
//
// A call that the shadow makes after it had to do without another one's answer, in the same row, is
// doubtful: in SELECT lm_if(a), lm_if(b) it is right, in CASE WHEN lm_if(a) THEN ... ELSE
// generate(b) END it need not be. Doubtful calls are foreseen all the same until one at their place
// was wrong; from then on none is, at that place.
//
// WHAT GUESSES MAY COST
// The call that the statement waits for is no guess: while guesses are under way it goes before
// them, with the priority of an interactive request. How many guesses are made is guess_width.h's.
// Looking ahead begins beside the first call of a statement that writes, and beside the second call
// of a SELECT. What is left when the statement ends is cancelled. Where looking ahead is of no use,
// the user is told why (look_ahead_hints.h).
//
// A LookAhead belongs to one run of one statement: SQLite destroys it when the statement is reset,
// before locks are let go and a transaction is committed; the shadow, its cursors and all that was
// foreseen go with it.
#ifndef LM_EXTENSION_BATCH_LOOK_AHEAD_H_
#define LM_EXTENSION_BATCH_LOOK_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "extension/batch/call_text.h"
#include "extension/batch/foreseen_calls.h"
#include "extension/batch/guess_width.h"
#include "extension/batch/known_answers.h"
#include "extension/batch/look_ahead_hints.h"
#include "extension/batch/pending_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/batch/shadow_statement.h"
#include "extension/connection/connection.h"

namespace lm {

// The calls of a shadow's row so far, by the places in its program where they were made. A place
// that comes again begins another row, or another turn of an inner loop.
class RowPath {
 public:
  // The place of the first call before it in the row that was not answered; or null.
  const void* Enter(const void* site);
  // The call that was entered last is not answered.
  void SetUnknown() { calls_.back().unknown = true; }
  void Clear() { calls_.clear(); }

 private:
  struct Visited {
    const void* site;
    bool unknown;
  };
  std::vector<Visited> calls_;
};

// Not thread-safe.
class LookAhead {
 public:
  // `function`: the one that the statement has called first. One of a cursor ends with that: where
  // it is opened anew for each row, as in a correlated subquery, nothing is foreseen.
  enum class Owner { kStatement, kCursor };
  LookAhead(std::shared_ptr<Connection> connection, std::string function,
            Owner owner = Owner::kStatement);
  ~LookAhead();
  LookAhead(const LookAhead&) = delete;
  LookAhead& operator=(const LookAhead&) = delete;

  // The statement's own call. Takes what was foreseen of it, or submits it; waits for its answer,
  // and looks further ahead meanwhile.
  absl::StatusOr<PendingAnswer> Await(RowPrompt row);

  // Whether a call, made while the shadow is stepped, is the shadow's. A callback of the host's,
  // one that traces, may run statements of its own then.
  bool IsShadowsCall(const void* site, bool is_table);

  // A call by the shadow, at a place of its program; nullopt where its answer is not known. An
  // error where the shadow has gone far enough.
  absl::StatusOr<std::optional<PendingAnswer>> Foresee(const void* site, RowPrompt row);

  // The look-ahead that makes the shadow of this statement: this one, or where several functions
  // and tables of the statement ask the model, the first.
  LookAhead* leader();

  // The statement that this object found itself to belong to; nullptr before it has looked.
  const sqlite3_stmt* statement() const { return statement_; }

 private:
  // Where the shadow is.
  enum class Walk {
    kNone,   // there is no shadow (any more)
    kAhead,  // at the end of a step
    kFull,   // nowhere: it was ended, having gone far enough in one step
    kOver,   // nowhere: it was at its end, or failed as the statement may yet do
  };

  PendingAnswer Take(const CallText& text, RowPrompt row);
  std::optional<PendingAnswer> TakeForeseen(const CallText& text);
  void PassOver(const ForeseenCall& call);
  void CountMiss(const CallText& text, bool asked);
  bool IsTimeToBegin() const;
  absl::Status Begin(const CallText& now);
  absl::StatusOr<sqlite3_stmt*> FindStatement() const;
  void FindLeader();
  absl::Status Advance(const CallText& now, bool missed);
  bool ShouldWalk(bool missed) const;
  bool CanAffordWalk() const;
  absl::Status WalkTo(const CallText& now);
  bool IsPlace(const CallText& text, int64_t number);
  bool WantsMore() const;
  absl::Status FarEnough();
  absl::Status StepOnce();
  std::optional<PendingAnswer> Known(const CallText& text);
  bool MayHaveAllRows(size_t unknown) const;
  void Learn(const CallText& text, const RowAnswer& answer);
  void Stop(absl::Status why);

  const std::shared_ptr<Connection> connection_;
  const Owner owner_;
  const sqlite3_stmt* statement_ = nullptr;
  LookAhead* leader_ = nullptr;  // of the same statement, another; may be gone
  std::shared_ptr<MemoScan> scan_;  // the statement's; null before its first call
  bool begun_ = false;
  Shadow shadow_;
  std::vector<const void*> sites_;           // functions of its program that have made calls
  std::vector<sqlite3_stmt*> busy_outside_;  // statements that ran when its step began
  Walk walk_ = Walk::kNone;
  GuessWidth width_;
  ForeseenCalls calls_;
  LookAheadHints hints_;

  // What the statement was answered, as long as its shadow may have to walk again.
  KnownAnswers known_;
  bool learning_ = true;
  bool dependent_ = false;  // it makes calls that depend on answers

  // Of the statement.
  int64_t num_calls_ = 0;
  int64_t num_asked_ = 0;         // of those, calls whose answers the model had to make
  std::optional<CallText> last_;  // its last call

  // Of this walk.
  RowPath path_;
  int64_t num_walked_ = 0;         // calls with prompts that the shadow has made
  size_t num_rows_walked_ = 0;     // rows that the shadow has returned
  int64_t num_in_step_ = 0;        // calls of any kind, in the step that it makes
  bool has_place_ = false;         // one of these is the statement's call
  SiteCounts unknown_ahead_;       // of those behind it by their places, how many have no answer
  const CallText* now_ = nullptr;  // the statement's call that is being looked for; null: found
  int64_t expected_ = 0;           // where it should be
  bool placed_ = false;            // it was found, perhaps not for the last time
  size_t most_kept_ = 0;           // foreseen calls with which all that is right was seen again
  int64_t place_ = 0;              // of the statement: the shadow's number of its last call
  int64_t num_unforeseen_ = 0;     // calls of the statement since then that the shadow did not make
  int64_t num_learned_ = 0;        // taken calls, since it began, whose answer it did without
  // Hashes of calls that the statement has made before the shadow.
  std::vector<size_t> taken_early_;

  // Of all walks.
  int64_t num_foreseen_ = 0;             // calls with prompts
  const void* last_site_ = nullptr;      // of the last foreseen call that was right
  std::vector<const void*> distrusted_;  // places whose doubtful calls were wrong
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_LOOK_AHEAD_H_

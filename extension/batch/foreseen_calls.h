// ForeseenCalls: the calls that a statement is expected to make, in the order in which its shadow
// has made them, with their answers under way.
//
//   calls.Add(row, text, site, number, behind);   // the shadow's
//   calls.Submit(width, most_of_a_place);
//   const ForeseenCall* call = calls.Find(text);   // the statement's
//   PendingAnswer pending = calls.Take(*call, last, [](const ForeseenCall& wrong) { ... });
//
// Where one step of the shadow makes all calls of the statement (ORDER BY, GROUP BY, sum()), there
// are tens of thousands. What is done for each call takes as long as if there were few: finding and
// taking go through those before it, submitting and looking through those that are under way.
//
// A shadow may have to walk its rows again (look_ahead.h): what was foreseen before is kept aside,
// and each call that is foreseen again gets what was under way for it.
#ifndef LM_EXTENSION_BATCH_FORESEEN_CALLS_H_
#define LM_EXTENSION_BATCH_FORESEEN_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include "absl/functional/function_ref.h"
#include "engine/base/hash_map.h"
#include "extension/batch/call_text.h"
#include "extension/batch/pending_answer.h"

namespace lm {

// By places in a shadow's program.
using SiteCounts = HashMap<const void*, size_t>;

struct ForeseenCall {
  CallText text;
  PendingAnswer pending;
  const void* site;  // the place in the shadow's program that makes it
  int64_t number;    // of the call among all that the shadow has made in this walk
  // Of a call that came, in its row, after one whose answer the shadow had to do without: the place
  // of that one. The call is then doubtful; else null.
  const void* behind;
  bool unknown = false;  // the shadow had to do without its answer

  // Of ForeseenCalls alone: the counts that it is in.
  bool under_way = false;
  bool ripe = false;
};

// Not thread-safe. Destroying it cancels what is under way.
class ForeseenCalls {
 public:
  ForeseenCalls() = default;
  ForeseenCalls(const ForeseenCalls&) = delete;
  ForeseenCalls& operator=(const ForeseenCalls&) = delete;

  // REQUIRES: the number is greater than those of the calls before it.
  ForeseenCall& Add(RowPrompt row, CallText text, const void* site, int64_t number,
                    const void* behind);

  size_t size() const { return calls_.size(); }
  size_t bytes() const { return bytes_; }  // of their texts
  const ForeseenCall& front() const { return calls_.front(); }

  // The first with this text; nullptr where there is none.
  const ForeseenCall* Find(const CallText& text) const;
  // Takes out one of them, and drops those before it, and before the number `last`, that the
  // statement has `passed_over`: of the same place, behind it, or long before.
  PendingAnswer Take(const ForeseenCall& taken, int64_t last,
                     absl::FunctionRef<void(const ForeseenCall&)> passed_over);
  // Takes a call that is kept aside and that the new walk has not made yet.
  std::optional<PendingAnswer> TakeKept(const CallText& text);
  // Drops all calls but those kept aside.
  void DropAll();
  void Clear();
  // Drops the doubtful calls of this place.
  void DropDoubtful(const void* site);

  // Keeps them all aside, for a walk that begins at the front.
  void KeepAside();
  size_t num_kept() const { return num_kept_; }
  // Drops those kept aside: they were not foreseen again.
  void DropKept(absl::FunctionRef<void(const ForeseenCall&)> passed_over);

  // Submits the first `of_place` of each place in their order, as long as fewer than `width` are
  // under way and the engine has room.
  void Submit(size_t width, size_t of_place);

  // Looks which answers have come, or at least most of them.
  void Look();
  // Those whose answers have not come, as far as Look() and Submit() have seen.
  size_t num_under_way() const { return num_under_way_; }
  // How many answers have come that the shadow had to do without.
  size_t num_ripe() const { return num_ripe_; }

 private:
  using Calls = std::list<ForeseenCall>;

  void Collect(ForeseenCall& call);
  void Leave(Calls::iterator call);
  Calls::iterator Erase(Calls::iterator call);

  Calls calls_;                                 // in the order of their numbers
  Calls::iterator unsubmitted_ = calls_.end();  // [begin, unsubmitted_) are submitted
  Calls::iterator unanswered_ = calls_.end();   // [begin, unanswered_) are answered
  SiteCounts num_submitted_of_;                 // by their places, of [begin, unsubmitted_)
  size_t bytes_ = 0;
  HashMap<size_t, Calls> kept_;  // by hash; none of the lists is empty
  size_t num_kept_ = 0;
  size_t num_under_way_ = 0;  // with those kept aside
  size_t num_ripe_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FORESEEN_CALLS_H_

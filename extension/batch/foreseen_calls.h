// ForeseenCalls: the calls that a statement is expected to make, in the order in which its shadow
// has made them, with their answers under way.
//
//   calls.Add(row, text, site, number, behind);   // the shadow's
//   calls.Submit(width, most_of_a_place);
//   std::optional<size_t> at = calls.Find(text);   // the statement's
//   PendingAnswer pending = calls.Take(*at, last, [](const ForeseenCall& wrong) { ... });
//
// A shadow may have to walk its rows again (look_ahead.h): what was foreseen before is kept aside,
// and each call that is foreseen again gets what was under way for it.
#ifndef LM_EXTENSION_BATCH_FORESEEN_CALLS_H_
#define LM_EXTENSION_BATCH_FORESEEN_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

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
  // Where it came, in its row, after one whose answer the shadow had to do without: that one's
  // place. Then it is doubtful.
  const void* behind;
  bool unknown = false;  // the shadow had to do without its answer
};

// Not thread-safe. Destroying it cancels what is under way.
class ForeseenCalls {
 public:
  ForeseenCall& Add(RowPrompt row, CallText text, const void* site, int64_t number,
                    const void* behind);

  size_t size() const { return calls_.size(); }
  size_t bytes() const { return bytes_; }  // of their texts
  const ForeseenCall& at(size_t i) const { return calls_[i]; }

  // The first with this text.
  std::optional<size_t> Find(const CallText& text) const;
  // Takes it out, and drops those before it, and before the number `last`, that the statement has
  // `passed_over`: of the same place, behind it, or long before.
  PendingAnswer Take(size_t i, int64_t last,
                     absl::FunctionRef<void(const ForeseenCall&)> passed_over);
  // One of those kept aside, of which another walk has not come by yet.
  std::optional<PendingAnswer> TakeKept(const CallText& text);
  // Drops all but those kept aside.
  void DropAll();
  void Clear();
  // Those of this place that are in doubt are none.
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
  size_t num_under_way() const { return num_under_way_; }  // when it was last looked, and since
  // Of those that the shadow had to do without, how many have come.
  size_t num_ripe() const { return num_ripe_; }

 private:
  void Drop(absl::FunctionRef<bool(const ForeseenCall&)> condition);

  std::deque<ForeseenCall> calls_;
  size_t submitted_ = 0;  // calls_[0, submitted_) are
  size_t bytes_ = 0;
  HashMap<size_t, std::vector<ForeseenCall>> kept_;  // by hash, the last first
  size_t num_kept_ = 0;
  size_t num_under_way_ = 0;
  size_t num_ripe_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FORESEEN_CALLS_H_

// LookAheadHints: what the user is told of a statement whose rows were answered one at a time: a
// warning in SQLite's log and the hint of lm_running while the statement runs, the hint of lm_stats
// afterwards.
//
//   hints.CountSerial(num_hits);        // the model has to answer a row that was not foreseen
//   hints.set_off(status);              // why there is no looking ahead any more
//   ...
//   hints.Leave(batch, num_asked, num_hits);   // the statement has ended
#ifndef LM_EXTENSION_BATCH_LOOK_AHEAD_HINTS_H_
#define LM_EXTENSION_BATCH_LOOK_AHEAD_HINTS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "extension/batch/batch_state.h"

namespace lm {

// Not thread-safe.
class LookAheadHints {
 public:
  // `function`: the one that the statement has called first. `of_cursor`: the look-ahead belongs to
  // a cursor, of which a statement may open many.
  LookAheadHints(std::string function, bool of_cursor);

  void set_off(absl::Status why) { off_ = std::move(why); }
  // A LIMIT of the statement says how many rows there are to be.
  void set_limited(bool limited) { limited_ = limited; }

  // A row that was not foreseen asks the model; `num_hits` rows were foreseen so far. Warns, once,
  // where looking ahead is off and rows are slow by now.
  void CountSerial(int64_t num_hits);

  // Leaves a hint for lm_stats, or takes back an earlier statement's. `num_asked`: calls whose
  // answers the model had to make.
  void Leave(BatchState& batch, int64_t num_asked, int64_t num_hits) const noexcept;

 private:
  void HintAtSingles(BatchState& batch, int64_t num_asked) const noexcept;
  bool IsSlow(int64_t num_hits) const;
  std::string Slowness() const;
  void Warn() const;

  const std::string function_;
  const bool of_cursor_;
  absl::Status off_;  // why there is no looking ahead (any more); OK: there may be
  bool limited_ = false;
  int64_t num_serial_ = 0;
  bool warned_ = false;
};

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_LOOK_AHEAD_HINTS_H_

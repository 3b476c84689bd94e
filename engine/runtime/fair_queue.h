// FairQueue: sequences that wait, first come first served within a salt, and in turn between salts,
// so that one database with a thousand rows does not keep another one's single row waiting. Of rows
// that came within a second, those that may give longer answers go first: what begins last should
// not be what takes longest.
#ifndef LM_ENGINE_RUNTIME_FAIR_QUEUE_H_
#define LM_ENGINE_RUNTIME_FAIR_QUEUE_H_

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "engine/base/hash_map.h"
#include "engine/runtime/sequence.h"

namespace lm {

// Not thread-safe.
class FairQueue {
 public:
  // How many sequences of one salt a scan looks at: beyond the ones that are held back, others may
  // overtake, but a scan of a long queue must stay cheap.
  static constexpr size_t kLookAhead = 256;
  // How much older a sequence may be that one with a longer answer overtakes.
  static constexpr absl::Duration kOvertaking = absl::Seconds(1);

  void PushBack(std::unique_ptr<Sequence> sequence);
  // The next one to be taken, of all salts: it was taken before.
  void PushFront(std::unique_ptr<Sequence> sequence);

  // A scan asks for each sequence at most once whether it may go. TakeNext continues it and returns
  // the next one that may, or null.
  void BeginScan();
  std::unique_ptr<Sequence> TakeNext(absl::FunctionRef<bool(const Sequence&)> may_go);

  // Takes out all for which `condition` holds.
  std::vector<std::unique_ptr<Sequence>> TakeIf(absl::FunctionRef<bool(const Sequence&)> condition);

  size_t size() const { return size_; }

 private:
  struct Lane {
    std::string salt;
    std::deque<std::unique_ptr<Sequence>> waiting;  // not empty
    size_t scanned = 0;                             // of this scan
  };
  Lane& LaneOf(const Sequence& sequence);

  std::list<Lane> lanes_;  // whose turn it is first
  HashMap<std::string, std::list<Lane>::iterator> by_salt_;
  size_t size_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_FAIR_QUEUE_H_

// The queue of SymbolMerger: pairs of symbols that may merge, the best first.
#ifndef LM_ENGINE_TEXT_MERGE_QUEUE_H_
#define LM_ENGINE_TEXT_MERGE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "engine/text/growing_array.h"

namespace lm {

// For a short text this is a heap. For a long one a heap misses the cache at every level of every
// operation; so candidates wait in one list for each priority, nearly always already in order, and
// the heap holds only those that are due at once. (10 MB of one letter: 6.4 s with a heap alone,
// 2.1 s with lists.)
class MergeQueue {
 public:
  struct Candidate {
    uint64_t order;  // priority << 32 | index of the left symbol; the lowest goes first
    uint32_t size;   // bytes of both symbols together
    int32_t id;      // of the merged token, or kUnknown where it waited in a list
  };
  static constexpr int32_t kUnknown = -1;

  void Clear(bool large);
  void Push(const Candidate& candidate);
  // False where there is none left.
  bool Pop(Candidate* candidate);

 private:
  // A candidate without what can be found again: 10 million of them are freed within an interrupt's
  // time.
  struct Waiting {
    uint32_t left;
    uint32_t size;
  };

  // Candidates up to this priority go into due_, others into waiting_.
  uint32_t due_priority_ = UINT32_MAX;
  GrowingArray<Candidate> due_;  // a heap
  GrowingArray<Waiting> list_;   // ascending from next_ on: those that waited for due_priority_
  size_t next_ = 0;
  std::map<uint32_t, GrowingArray<Waiting>> waiting_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_MERGE_QUEUE_H_

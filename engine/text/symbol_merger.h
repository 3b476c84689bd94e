// The merge loop that both tokenizer families share: of all pairs of neighbours that may merge,
// the best one does (the leftmost among equals), until none is left.
//
// Candidates wait in a queue; one that a later merge has made stale is recognised by its size and
// skipped when it comes up. O(n log n) time, no recursion. Stops, unfinished, where it is
// interrupted (base/checkpoint.h).
#ifndef LM_ENGINE_TEXT_SYMBOL_MERGER_H_
#define LM_ENGINE_TEXT_SYMBOL_MERGER_H_

#include <cstdint>

#include "engine/base/checkpoint.h"
#include "engine/text/growing_array.h"
#include "engine/text/merge_queue.h"

namespace lm {

// A stretch of the text: [begin, begin + size). Size 0: merged into its left neighbour.
struct Symbol {
  uint32_t begin;
  uint32_t size;
  int32_t previous;  // index of the neighbour, or -1
  int32_t next;
  int32_t id;  // the token it is, or -1
};

struct Merge {
  uint32_t priority;  // the lowest goes first
  int32_t id;         // of the merged token
};

class SymbolMerger {
 public:
  // The text's symbols in order: fill begin, size and id. The array keeps its memory between runs.
  GrowingArray<Symbol>& symbols() { return symbols_; }

  // Merges in place. find(left, right, &merge) tells whether two symbols may merge, and how. What
  // remains is the chain from symbols()[0] along `next`.
  template <typename FindMerge>
  void Run(FindMerge find) {
    const int32_t n = static_cast<int32_t>(symbols_.size());
    queue_.Clear(/*large=*/n > kLargeText);
    uint32_t steps = 0;
    auto stopped = [&steps] { return ++steps % kCheckedSteps == 0 && Interrupted(); };
    for (int32_t i = 0; i < n; ++i) {
      if (stopped()) return;
      symbols_[i].previous = i - 1;
      symbols_[i].next = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i + 1 < n && !stopped(); ++i) Push(i, find);
    MergeQueue::Candidate candidate;
    while (!stopped() && queue_.Pop(&candidate)) {
      const int32_t left = static_cast<int32_t>(candidate.order & 0xffffffffu);
      if (symbols_[left].size == 0 || symbols_[left].next < 0) continue;
      // A symbol only ever grows to the right, so while both live the border between them stays:
      // the pair is the one that was queued exactly if its size is.
      Symbol& right = symbols_[symbols_[left].next];
      if (symbols_[left].size + right.size != candidate.size) continue;
      if (candidate.id == MergeQueue::kUnknown) {
        Merge merge;
        if (!find(symbols_[left], right, &merge)) continue;
        candidate.id = merge.id;
      }
      symbols_[left].size = candidate.size;
      symbols_[left].id = candidate.id;
      symbols_[left].next = right.next;
      right.size = 0;
      if (right.next >= 0) symbols_[right.next].previous = left;
      if (symbols_[left].previous >= 0) Push(symbols_[left].previous, find);
      if (symbols_[left].next >= 0) Push(left, find);
    }
  }

 private:
  // Symbols from which on a queue of every candidate no longer fits a cache.
  static constexpr int32_t kLargeText = 4096;
  static constexpr uint32_t kCheckedSteps = 4096;

  template <typename FindMerge>
  void Push(int32_t left, FindMerge& find) {
    const Symbol& a = symbols_[left];
    const Symbol& b = symbols_[a.next];
    Merge merge;
    if (!find(a, b, &merge)) return;
    queue_.Push(
        {uint64_t{merge.priority} << 32 | static_cast<uint32_t>(left), a.size + b.size, merge.id});
  }

  GrowingArray<Symbol> symbols_;
  MergeQueue queue_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SYMBOL_MERGER_H_

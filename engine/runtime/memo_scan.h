// MemoScan: rows that are asked for together, as a statement's, where the memo has no room for all
// of them (memo_shelf.h).
#ifndef LM_ENGINE_RUNTIME_MEMO_SCAN_H_
#define LM_ENGINE_RUNTIME_MEMO_SCAN_H_

#include <atomic>
#include <cstdint>

namespace lm {

// Known by its address. Thread-safe.
struct MemoScan {
  // So many that came with this scan, or that it used last, are in memory no more: there was no
  // room for them.
  std::atomic<int64_t> num_forgotten{0};
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MEMO_SCAN_H_

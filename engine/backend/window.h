// Which positions of its context a token attends to.
#ifndef LM_ENGINE_BACKEND_WINDOW_H_
#define LM_ENGINE_BACKEND_WINDOW_H_

#include <cstdint>

namespace lm {

// Of a window of n positions, which ones a token at position p sees.
enum class WindowKind {
  kSliding,    // j > p - n: the n last, itself included
  kChunked,    // j >= p / n * n: of the n that it is among
  kSymmetric,  // |p - j| <= n / 2: to both sides, where attention is not causal
};

struct Window {
  bool causal = true;  // no later position is seen
  int32_t size = 0;    // n; 0: none
  WindowKind kind = WindowKind::kSliding;
};

// The positions [first, end) of a context of `context` positions that a token at `position` sees.
struct SeenRange {
  int64_t first;
  int64_t end;
};
constexpr SeenRange SeenBy(const Window& window, int64_t position, int64_t context) {
  int64_t first = 0, end = window.causal ? position + 1 : context;
  if (window.size == 0) return {first, end};
  switch (window.kind) {
    case WindowKind::kSliding:
      first = position + 1 - window.size;
      break;
    case WindowKind::kChunked:
      first = position / window.size * window.size;
      break;
    case WindowKind::kSymmetric:
      first = position - window.size / 2;
      if (end > position + window.size / 2 + 1) end = position + window.size / 2 + 1;
      break;
  }
  return {first > 0 ? first : 0, end};
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_WINDOW_H_

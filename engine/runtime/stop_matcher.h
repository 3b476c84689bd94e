// Finds stop strings in a text that arrives piece by piece, across the pieces' borders.
//
//   StopMatcher matcher(options.stop);
//   if (matcher.Append(piece, &answer)) ...   // a stop string came; `answer` ends before it
//   matcher.Flush(&answer);                   // the text ended without one
//
// What may be the beginning of a stop string is held back until it is clear that it is not.
#ifndef LM_ENGINE_RUNTIME_STOP_MATCHER_H_
#define LM_ENGINE_RUNTIME_STOP_MATCHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lm {

// Not thread-safe; one a sequence. Time is linear in the text, whatever it and the strings are.
class StopMatcher {
 public:
  // REQUIRES: no string is empty.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Appends to *out what of the text so far is certain to be answer. True when a stop string is
  // complete (the one that completes first; of several, the one that began first): *out then ends
  // where it begins, and nothing may be appended any more.
  bool Append(absl::string_view piece, std::string* out);

  // Releases what is held back.
  void Flush(std::string* out);

  // Whether Append has returned true.
  bool matched() const { return matched_; }

 private:
  // Knuth, Morris and Pratt's automaton of one string.
  struct Pattern {
    std::string text;
    std::vector<int32_t> border;  // border[n]: longest proper border of the first n + 1 bytes
    int32_t matched = 0;          // bytes of `text` that the input ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_STOP_MATCHER_H_

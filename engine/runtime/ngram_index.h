// NgramIndex: a text of tokens, and where in it others' ends occur.
//
//   NgramIndex index;
//   index.Append({1, 2, 3, 4, 1, 2});
//   const NgramIndex::Match match = index.Find({9, 1, 2});     // length 2, behind the 2 at place 1
//   index.Continuation(match, 3);                              // {3, 4, 1}
#ifndef LM_ENGINE_RUNTIME_NGRAM_INDEX_H_
#define LM_ENGINE_RUNTIME_NGRAM_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lm {

// Not thread-safe. Some 16 bytes a token.
class NgramIndex {
 public:
  static constexpr int32_t kLeast = 2;     // tokens of a match
  static constexpr int32_t kLongest = 16;  // at which a longer match is no better
  // Between texts that have nothing to do with each other: no match or continuation crosses it.
  static constexpr int32_t kBorder = -1;

  void Append(absl::Span<const int32_t> tokens);
  size_t size() const { return tokens_.size(); }

  struct Match {
    int32_t length = 0;  // tokens; 0: none
    int32_t end = 0;     // where in the text it ends
  };
  // The longest end of `context` that occurs in the text with something behind it, as far as the
  // last occurrences of its last two tokens tell; of equally long ones the last.
  Match Find(absl::Span<const int32_t> context) const;
  // At most `most` tokens behind a match. At the text's end it goes on as if the match came again
  // and again. REQUIRES: the match is one of this text, as long as it is now.
  std::vector<int32_t> Continuation(const Match& match, int32_t most) const;

  // Forgets the first `count` tokens.
  void DropFirst(size_t count);

 private:
  size_t Bucket(int32_t first, int32_t second) const;
  void Link(size_t end);
  void Rebuild(size_t buckets);

  std::vector<int32_t> tokens_;
  std::vector<int32_t> last_;    // of each bucket, where a pair of tokens of its ended last; -1
  std::vector<int32_t> before_;  // of each place, where the bucket's pair before it ended; -1
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_NGRAM_INDEX_H_

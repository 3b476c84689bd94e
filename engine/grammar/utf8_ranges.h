// Ranges of characters as sequences of byte ranges: U+0080..U+07FF is [C2-DF][80-BF]. An automaton
// made of such sequences accepts valid UTF-8 and nothing else.
#ifndef LM_ENGINE_GRAMMAR_UTF8_RANGES_H_
#define LM_ENGINE_GRAMMAR_UTF8_RANGES_H_

#include <array>
#include <cstdint>
#include <vector>

namespace lm {

struct ByteRange {
  uint8_t low;
  uint8_t high;  // inclusive
};

struct Utf8Sequence {
  int length;  // 1 to 4
  std::array<ByteRange, 4> bytes;
};

// Appends sequences that together match exactly the characters [low, high].
// REQUIRES: low <= high <= U+10FFFF; no surrogate in between.
void AppendUtf8Sequences(uint32_t low, uint32_t high, std::vector<Utf8Sequence>* out);

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_UTF8_RANGES_H_

// Joins the bytes of tokens, as they are produced, into text that is valid UTF-8 at every moment.
//
//   Detokenizer detokenizer(&tokenizer);
//   std::string piece = detokenizer.Append(id);   // whole characters only
//   std::string last = detokenizer.Finish();      // what was left, U+FFFD for a broken character
#ifndef LM_ENGINE_TEXT_DETOKENIZER_H_
#define LM_ENGINE_TEXT_DETOKENIZER_H_

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace lm {

// Not thread-safe; one a sequence.
class Detokenizer {
 public:
  // REQUIRES: *tokenizer outlives this.
  explicit Detokenizer(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // The characters that this token completes; bytes that can never be valid become U+FFFD.
  std::string Append(int32_t id);
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // the beginning of a character; at most 3 bytes
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_DETOKENIZER_H_

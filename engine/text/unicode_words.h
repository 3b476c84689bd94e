// What BERT's tokenizer knows of characters. Of Unicode 15.1, whatever PCRE2 knows.
#ifndef LM_ENGINE_TEXT_UNICODE_WORDS_H_
#define LM_ENGINE_TEXT_UNICODE_WORDS_H_

#include <cstdint>

namespace lm {

// What a character does to the words of its text.
enum class WordRole {
  kInner,    // it is a part of one
  kSpace,    // ends one
  kDropped,  // nothing: control and format characters
  kMark,     // nothing, where accents are stripped; else as kInner
  kAlone,    // it is one itself: punctuation, symbols of ASCII, Chinese characters
};
WordRole RoleInWords(uint32_t code_point);

// The first code point of its canonical decomposition: a letter without its accents. Of a syllable
// of Hangul the first consonant (as llama.cpp has it; the others are lost).
uint32_t BaseOf(uint32_t code_point);
uint32_t LowerOf(uint32_t code_point);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_UNICODE_WORDS_H_

// What every vocabulary must fulfil before a tokenizer is made of it.
#ifndef LM_ENGINE_TEXT_VOCABULARY_CHECK_H_
#define LM_ENGINE_TEXT_VOCABULARY_CHECK_H_

#include "absl/status/status.h"
#include "engine/text/vocabulary.h"

namespace lm {

// InvalidArgument, naming the key and the numbers: arrays of different lengths, special ids outside
// the vocabulary, names that are too long or not UTF-8, types out of range, scores that are not
// finite, malformed byte tokens, BOS or EOS wanted but not there.
absl::Status CheckVocabulary(const Vocabulary& vocabulary);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_VOCABULARY_CHECK_H_

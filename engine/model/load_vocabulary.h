// The vocabulary in a model file's metadata (tokenizer.* keys).
#ifndef LM_ENGINE_MODEL_LOAD_VOCABULARY_H_
#define LM_ENGINE_MODEL_LOAD_VOCABULARY_H_

#include "absl/status/statusor.h"
#include "engine/gguf/metadata.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Reads the keys and fills in what the "llama" and "gpt2" tokenizers mean where a key is absent.
// NotFound where there is no vocabulary; Unimplemented, naming it, for another tokenizer;
// InvalidArgument, naming the key, for a value of the wrong type, a token type out of range, or a
// token id that the vocabulary does not have. What the values must be to each other
// Tokenizer::Create checks.
absl::StatusOr<Vocabulary> LoadVocabulary(const Metadata& metadata);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LOAD_VOCABULARY_H_

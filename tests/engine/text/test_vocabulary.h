// The vocabularies under testdata/, and texts to try on them.
#ifndef LM_TESTS_ENGINE_TEXT_TEST_VOCABULARY_H_
#define LM_TESTS_ENGINE_TEXT_TEST_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

namespace lm {

// "gpt2" or "llama". Special ids: bos and eos are token 0 ("gpt2") or 1 and 2 ("llama").
Vocabulary TestVocabulary(absl::string_view model, absl::string_view pre = "gpt-2",
                          bool add_space_prefix = true);
std::unique_ptr<Tokenizer> TestTokenizer(absl::string_view model, absl::string_view pre = "gpt-2",
                                         bool add_space_prefix = true);

// The lines of a file under testdata/.
std::vector<std::string> TestDataLines(absl::string_view name);

// Up to `characters` random ones: words, spaces, digits, punctuation, and any scalar value.
std::string RandomText(std::mt19937& random, int characters);

// The names of all control, unknown and user-defined tokens.
std::vector<std::string> SpecialNames(const Vocabulary& vocabulary);

std::vector<int32_t> EncodeOrDie(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces);
std::vector<int32_t> EncodePlainOrDie(const Tokenizer& tokenizer, absl::string_view text);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_TEXT_TEST_VOCABULARY_H_

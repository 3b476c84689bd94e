// What the grammar tests share: a vocabulary, the brute-force answer to what a mask should be, and
// random texts of a grammar.
#ifndef LM_TESTS_ENGINE_GRAMMAR_GRAMMAR_TESTING_H_
#define LM_TESTS_ENGINE_GRAMMAR_GRAMMAR_TESTING_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/constraint.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/token_trie.h"

namespace lm {

// Ends the test program with the message where the status is not OK.
template <typename T>
T ValueOrDie(absl::StatusOr<T> value);

// Matches() that must not fail.
bool Accepts(const std::shared_ptr<const Grammar>& grammar, absl::string_view text);

// Token 0 and 1 end generation (1 has bytes all the same), 2 is a control token; then every byte,
// then `words`, then pieces of text, JSON, UTF-8 and long runs.
std::vector<std::string> SomeVocabulary(absl::Span<const std::string> words = {});
std::shared_ptr<const TokenTrie> TrieOf(const std::vector<std::string>& vocabulary);

// A vocabulary of `size` tokens like those of real models: bytes, then random words with and
// without a space before them, numbers, punctuation, characters of several scripts and halves of
// them, runs of spaces.
std::vector<std::string> LargeVocabulary(int size);

std::vector<bool> MaskOf(GrammarMatcher* matcher, const TokenTrie& trie);
// The same by trying every token.
std::vector<bool> BruteForceMask(const GrammarMatcher& matcher, const TokenTrie& trie);

// Takes random allowed tokens until the text is complete, or can end and the dice say so. Fewer
// long ones behind `soft_limit` tokens: then ends, or closes quotes and brackets, where it can.
// An error where no token is allowed or `hard_limit` is crossed.
absl::StatusOr<std::string> RandomText(std::shared_ptr<Constraint> constraint, std::mt19937* dice,
                                       int soft_limit, int hard_limit);

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    fprintf(stderr, "%s\n", value.status().ToString().c_str());
    abort();
  }
  return *std::move(value);
}

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GRAMMAR_GRAMMAR_TESTING_H_

// Tokens that a vocabulary has by convention, known by name: those that end an answer, and those of
// fill-in-the-middle models. Model files often give them the wrong type, or no role at all.
#ifndef LM_ENGINE_TEXT_ANSWER_ENDS_H_
#define LM_ENGINE_TEXT_ANSWER_ENDS_H_

#include <cstdint>
#include <vector>

#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Makes control tokens of all tokens with such a name, so that row text cannot spell them; but of
// "</s>" an ordinary one where it is HTML's.
// REQUIRES: index was built over *vocabulary.
void MarkConventionalControls(const TokenIndex& index, Vocabulary* vocabulary);

// The ids that end an answer: eos, more_eos, eot, eom and the conventional ones; ascending.
std::vector<int32_t> FindAnswerEnds(const TokenIndex& index, const Vocabulary& vocabulary);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_ANSWER_ENDS_H_

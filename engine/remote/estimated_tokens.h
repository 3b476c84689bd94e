// How many tokens texts have where neither a tokenizer of ours nor the server tells.
#ifndef LM_ENGINE_REMOTE_ESTIMATED_TOKENS_H_
#define LM_ENGINE_REMOTE_ESTIMATED_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "engine/runtime/request.h"

namespace lm {

// A guess.
int64_t GuessTokens(size_t bytes);
// Of a request's prompt: exact where spec.prompt is known, else a guess.
int64_t PromptTokens(const RequestSpec& spec);
// What a request may take, as servers count before they have answered it.
int64_t MostTokens(const RequestSpec& spec);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_ESTIMATED_TOKENS_H_

#include "engine/remote/estimated_tokens.h"

namespace lm {
namespace {

constexpr int64_t kBytesOfToken = 4;  // of English, in most vocabularies

}  // namespace

int64_t GuessTokens(size_t bytes) {
  return (static_cast<int64_t>(bytes) + kBytesOfToken - 1) / kBytesOfToken;
}

int64_t PromptTokens(const RequestSpec& spec) {
  return spec.prompt.empty() ? GuessTokens(spec.text.size())
                             : static_cast<int64_t>(spec.prompt.size());
}

int64_t MostTokens(const RequestSpec& spec) {
  const int64_t prompt = PromptTokens(spec);
  if (spec.embed.has_value()) return prompt;
  return prompt + (spec.wants_first_choices ? 1 : spec.options.max_tokens);
}

}  // namespace lm

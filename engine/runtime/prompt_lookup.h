// PromptLookup: a Drafter that knows no model. Where the last tokens of a text have occurred
// before, what followed them then may follow again: in the row's own prompt and answer (an extract
// or a summary repeats the text), or in answers to earlier rows (labels come again and again).
// Apoorv Saxena, Prompt Lookup Decoding,
// https://github.com/apoorvumang/prompt-lookup-decoding
#ifndef LM_ENGINE_RUNTIME_PROMPT_LOOKUP_H_
#define LM_ENGINE_RUNTIME_PROMPT_LOOKUP_H_

#include <list>
#include <string>

#include "engine/runtime/drafter.h"
#include "engine/runtime/ngram_index.h"

namespace lm {

// The kinds of its drafts are the lengths of the matches. Not thread-safe.
class PromptLookup final : public Drafter {
 public:
  // Tokens of earlier answers that are kept of one salt, and salts.
  static constexpr size_t kAnswerTokens = 1 << 15;
  static constexpr size_t kMostSalts = 16;

  void Propose(absl::Span<DraftRow> rows) override;
  void Learn(absl::string_view salt, absl::Span<const int32_t> tokens,
             int32_t prompt_tokens) override;

 private:
  struct Answers {
    std::string salt;
    NgramIndex index;
  };
  const NgramIndex* AnswersOf(absl::string_view salt) const;

  std::list<Answers> answers_;  // the last that learned first
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_PROMPT_LOOKUP_H_

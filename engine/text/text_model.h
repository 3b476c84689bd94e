// TextModel: how a tokenizer family turns text without special tokens into ids.
#ifndef LM_ENGINE_TEXT_TEXT_MODEL_H_
#define LM_ENGINE_TEXT_TEXT_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lm {

// Immutable; thread-safe. Implementations: ByteLevelBpe, SentencePieceBpe, WordPiece, Unigram,
// LongestToken, CheapestTokens.
class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the tokens of `text` to *ids. `begins` tells that nothing precedes it, or a special
  // token behind which the vocabulary begins anew (SpacePrefix). Never appends a control or
  // byte-less token, and the unknown one only where the model has it for texts: WordPiece, Unigram.
  // REQUIRES: text is valid UTF-8 and shorter than kMaxTextBytes.
  virtual absl::Status Encode(absl::string_view text, bool begins,
                              std::vector<int32_t>* ids) const = 0;

  // The bytes that an ordinary token of this name stands for.
  virtual std::string DecodeName(absl::string_view name) const = 0;
};

// Positions inside a text are 32 bits wide; SentencePiece's spaces take three bytes.
inline constexpr size_t kMaxTextBytes = size_t{1} << 29;

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_MODEL_H_

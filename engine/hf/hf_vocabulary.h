// The vocabulary of a tokenizer.json.
#ifndef LM_ENGINE_HF_HF_VOCABULARY_H_
#define LM_ENGINE_HF_HF_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/hf/hf_config.h"

namespace lm {

// With GGUF's numbers.
enum class HfTokenType : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct HfVocabulary {
  std::vector<std::string> tokens;  // as tokenizer.json spells them
  std::vector<HfTokenType> types;
  std::vector<double> scores;       // of Unigram; else empty
  std::vector<std::string> merges;  // "left right"
  // Added tokens that swallow the white space before them (lstrip) or behind (rstrip).
  std::vector<int64_t> strip_before, strip_after;
  HashMap<std::string, int64_t> ids;

  // -1 where there is none.
  int64_t Find(absl::string_view token) const {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  }
};

// `tokenizer` is the whole file, `size` the number of tokens that the model has: what has no name
// becomes "[PAD7]", unused, and added tokens beyond it, which the model cannot be fed, are left
// out.
absl::StatusOr<HfVocabulary> ReadHfVocabulary(const HfObject& tokenizer, const HfObject& model,
                                              int64_t size);

// A name for how the texts of a byte-level vocabulary are split. Unimplemented, with the
// expressions, where they are not known.
absl::StatusOr<std::string> SplitNameOf(const HfObject& tokenizer, const HfObject& model);

}  // namespace lm

#endif  // LM_ENGINE_HF_HF_VOCABULARY_H_

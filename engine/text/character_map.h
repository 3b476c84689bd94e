// CharacterMap: how a Unigram vocabulary's text is normalised before it is encoded: by rules that
// replace a run of bytes by another, the longest that fits first
// (tokenizer.ggml.precompiled_charsmap).
//
// The rules lie in a double array (Kanda, "Space- and time-efficient string dictionaries", 2018):
//   u32 bytes of units; units; replacements, each ended by a NUL
//   a unit's child by byte b is the unit at its own place XOR base XOR b, if that unit's label is
//   b; a unit with `leaf` ends a run, and the unit at its place XOR base holds the replacement's
//   place
#ifndef LM_ENGINE_TEXT_CHARACTER_MAP_H_
#define LM_ENGINE_TEXT_CHARACTER_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// Immutable; thread-safe.
class CharacterMap {
 public:
  CharacterMap() = default;  // without rules
  // InvalidArgument where the sizes do not fit each other or the last replacement has no end.
  static absl::StatusOr<CharacterMap> Create(absl::string_view data);

  // What the beginning of `text` becomes: `size` of its bytes, 0 where no rule fits.
  struct Replacement {
    size_t size = 0;
    absl::string_view by;
  };
  Replacement Find(absl::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHARACTER_MAP_H_

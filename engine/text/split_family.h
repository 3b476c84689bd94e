// The splits that byte-level BPE vocabularies were trained with, by the name that a model file
// gives (tokenizer.ggml.pre).
#ifndef LM_ENGINE_TEXT_SPLIT_FAMILY_H_
#define LM_ENGINE_TEXT_SPLIT_FAMILY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

struct SplitFamily {
  // PCRE2 patterns, applied one after the other: each splits the pieces that the one before left.
  absl::Span<const char* const> patterns;
  // A piece that is a token as it stands is that token, whatever its merges would make; of raw
  // text, a run of line breaks.
  bool whole_pieces_first = false;
  // What a model file of this family means where it does not say whether to begin with BOS.
  bool adds_bos = false;
  // The text is not spelled in the byte alphabet, nor cut by patterns: see SentencePieceBpe.
  bool raw = false;
  // Raw text, of which white space is left out, and nothing merges across it.
  bool drops_spaces = false;
  // As adds_bos, of a separator between two texts.
  bool adds_separator = false;
};

// Unimplemented, naming it, where `name` is not known. The empty name is "default".
absl::StatusOr<SplitFamily> FindSplitFamily(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SPLIT_FAMILY_H_

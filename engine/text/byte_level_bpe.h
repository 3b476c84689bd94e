// Byte-level BPE (tokenizer.ggml.model "gpt2"): the text is cut into pieces by its family's
// patterns, and in each piece pairs of neighbours merge by rank, beginning with single bytes.
//
// Sennrich et al., https://arxiv.org/abs/1508.07909; the byte alphabet is GPT-2's.
#ifndef LM_ENGINE_TEXT_BYTE_LEVEL_BPE_H_
#define LM_ENGINE_TEXT_BYTE_LEVEL_BPE_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/merge_table.h"
#include "engine/text/symbol_merger.h"
#include "engine/text/text_model.h"
#include "engine/text/text_splitter.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

// A byte that has no token is left out, as the tools that made such vocabularies do (they are a few
// control characters and leads of unassigned planes); printable ASCII, line breaks and the
// continuation bytes of UTF-8 always have one.
class ByteLevelBpe : public TextModel {
 public:
  // InvalidArgument for a merge that names a token that does not exist, and for a missing byte.
  // REQUIRES: index was built over vocabulary and outlives this.
  static absl::StatusOr<std::unique_ptr<ByteLevelBpe>> Create(const Vocabulary& vocabulary,
                                                              const TokenIndex& index);

  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  std::string DecodeName(absl::string_view name) const override;

 private:
  explicit ByteLevelBpe(const TokenIndex& index) : index_(index) {}

  void EncodePiece(absl::string_view piece, SymbolMerger* merger, std::vector<int32_t>* ids) const;

  const TokenIndex& index_;
  std::unique_ptr<TextSplitter> splitter_;
  bool whole_pieces_first_ = false;
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_BYTE_LEVEL_BPE_H_

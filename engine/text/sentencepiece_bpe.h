// SentencePiece-style BPE (tokenizer.ggml.model "llama"): spaces become U+2581, and of all pairs of
// neighbours that together are a token the one with the highest score merges, beginning with single
// characters. A character without a token becomes byte tokens.
//
// Where the vocabulary has merges ("gemma4", and byte-level ones whose text is not spelled in the
// byte alphabet) these say what merges, and in which order; line breaks never merge with anything
// else, and a run of them that is a token is that token. Of some ("whitespace") spaces and line
// breaks are left out.
//
// Kudo and Richardson, https://arxiv.org/abs/1808.06226.
#ifndef LM_ENGINE_TEXT_SENTENCEPIECE_BPE_H_
#define LM_ENGINE_TEXT_SENTENCEPIECE_BPE_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/integer_map.h"
#include "engine/text/merge_table.h"
#include "engine/text/symbol_merger.h"
#include "engine/text/text_model.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class SentencePieceBpe : public TextModel {
 public:
  // InvalidArgument for a vocabulary without a token for each byte that UTF-8 can have.
  // REQUIRES: vocabulary and index (which was built over it) outlive this.
  static absl::StatusOr<std::unique_ptr<SentencePieceBpe>> Create(const Vocabulary& vocabulary,
                                                                  const TokenIndex& index);

  // Where the vocabulary adds a space prefix, a text that `begins` gets one.
  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  std::string DecodeName(absl::string_view name) const override;

 private:
  struct Chunk;

  SentencePieceBpe(const Vocabulary& vocabulary, const TokenIndex& index)
      : vocabulary_(vocabulary), index_(index) {}

  absl::Status ReadByteIds();
  void FindJoints();
  void EncodeChunk(Chunk* chunk, std::vector<int32_t>* ids) const;
  void MergeChunk(Chunk* chunk, std::vector<int32_t>* ids) const;

  const Vocabulary& vocabulary_;
  const TokenIndex& index_;
  std::array<int32_t, 256> byte_ids_;
  bool by_rank_ = false;       // by merges_, and not by scores
  bool whole_breaks_ = false;  // a run of line breaks that is a token is that token
  bool drops_spaces_ = false;  // and what has no token
  MergeTable merges_;
  size_t longest_ = 0;  // bytes of the longest token's name
  // The pairs of code points (first << 32 | second) that stand side by side in some token. No merge
  // can ever cross another pair, so the text falls apart there into chunks that are merged alone.
  IntegerSet joints_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SENTENCEPIECE_BPE_H_

// RWKV's tokenizer (tokenizer.ggml.model "rwkv"): the longest token that begins the text, then the
// longest that goes on, and so forth. Names spell bytes as Python's literals do: "\n", "\x8f".
//
// https://github.com/BlinkDL/ChatRWKV/tree/main/tokenizer
#ifndef LM_ENGINE_TEXT_LONGEST_TOKEN_H_
#define LM_ENGINE_TEXT_LONGEST_TOKEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/text/name_trie.h"
#include "engine/text/text_model.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class LongestToken : public TextModel {
 public:
  // InvalidArgument for a vocabulary without a token for each byte that UTF-8 can have.
  static absl::StatusOr<std::unique_ptr<LongestToken>> Create(const Vocabulary& vocabulary,
                                                              const TokenIndex& index);

  absl::Status Encode(absl::string_view text, bool begins,
                      std::vector<int32_t>* ids) const override;
  std::string DecodeName(absl::string_view name) const override;

 private:
  LongestToken() = default;

  NameTrie names_;  // unescaped
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_LONGEST_TOKEN_H_

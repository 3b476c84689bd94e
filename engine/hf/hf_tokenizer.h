// tokenizer.json and what stands beside it (tokenizer_config.json, generation_config.json, chat
// templates) as the tokenizer.* keys of the GGUF that a directory stands for.
//
// Read are byte-level BPE, SentencePiece as BPE with byte fallback, Unigram and WordPiece. How a
// byte-level vocabulary's texts are split is one of the kinds that tokenizer.ggml.pre names; it is
// known by the text of its expressions, as tokenizer.json writes them, and an unknown one is an
// error that has it. As in GGUF files, NFC is not applied.
#ifndef LM_ENGINE_HF_HF_TOKENIZER_H_
#define LM_ENGINE_HF_HF_TOKENIZER_H_

#include <string>

#include "absl/status/status.h"
#include "engine/gguf/metadata.h"
#include "engine/hf/hf_config.h"

namespace lm {

// `vocab` is the number of tokens that the model has, which may be more than tokenizer.json names.
// `embeds`: the model is one for embeddings. With checkpoints (checkpoint.h).
absl::Status AddHfTokenizer(const std::string& folder, const HfObject& config, int64_t vocab,
                            bool embeds, Metadata* metadata);

}  // namespace lm

#endif  // LM_ENGINE_HF_HF_TOKENIZER_H_

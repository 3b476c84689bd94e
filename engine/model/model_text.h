// What of a model file turns text into tokens; its weights are not looked at.
//
//   ASSIGN_OR_RETURN(const ModelText text, ModelText::Load("/models/qwen3.gguf"));
//   text.tokenizer->EncodePlain("Hello");
#ifndef LM_ENGINE_MODEL_MODEL_TEXT_H_
#define LM_ENGINE_MODEL_MODEL_TEXT_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/gguf/metadata.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/tokenizer.h"

namespace lm {

struct ModelText {
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat_template;

  // Of a GGUF file or a directory. OpenModelFile's, LoadVocabulary's and Create's errors.
  static absl::StatusOr<ModelText> Load(const std::string& path,
                                        const std::atomic<bool>* cancel = nullptr);
  // Of a file that is open; `chat_template`, where not empty, is in the place of its own. One that
  // is not understood is an error of who renders a chat.
  static absl::StatusOr<ModelText> Load(const Metadata& metadata,
                                        const std::string& chat_template = "");
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_TEXT_H_

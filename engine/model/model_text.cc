#include "engine/model/model_text.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/load_vocabulary.h"

namespace lm {

absl::StatusOr<ModelText> ModelText::Load(const std::string& path,
                                          const std::atomic<bool>* cancel) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, OpenModelFile(path, cancel));
  return Load(gguf->metadata());
}

absl::StatusOr<ModelText> ModelText::Load(const Metadata& metadata) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(metadata));
  ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Create(vocabulary));
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(std::move(vocabulary)));
  return ModelText{std::move(tokenizer), std::move(chat_template)};
}

}  // namespace lm

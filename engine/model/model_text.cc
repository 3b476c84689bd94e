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

absl::StatusOr<ModelText> ModelText::Load(const Metadata& metadata,
                                          const std::string& chat_template) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(metadata));
  if (!chat_template.empty()) vocabulary.chat_template = chat_template;
  ChatTemplate chat = ChatTemplate::CreateOrRefuse(vocabulary);
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Create(std::move(vocabulary)));
  return ModelText{std::move(tokenizer), std::move(chat)};
}

}  // namespace lm

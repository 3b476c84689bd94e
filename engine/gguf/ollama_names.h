// What Ollama's converters call other than llama.cpp's do, and leave out: the models that
// `ollama pull` brings are GGUF files of such names, with the parts that read images and sounds in
// the same file.
//
//   UseLlamaCppNames(&metadata, &tensors);   // "gptoss.block_count" is "gpt-oss.block_count"
//
// Facts: https://github.com/ollama/ollama, convert/ and llama/compat/.
#ifndef LM_ENGINE_GGUF_OLLAMA_NAMES_H_
#define LM_ENGINE_GGUF_OLLAMA_NAMES_H_

#include <vector>

#include "engine/gguf/metadata.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {

// Gives keys and tensors the names that llama.cpp's converters write, adds what follows from the
// others, and takes away what they say already. What is there under both names is left, for readers to refuse.
void UseLlamaCppNames(Metadata* metadata, std::vector<TensorInfo>* tensors);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_OLLAMA_NAMES_H_

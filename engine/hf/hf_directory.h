// Hugging Face directories: config.json, tokenizer.json and safetensors, as the GGUF file that
// llama.cpp's converter makes of them, so that nothing above knows the difference.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf, OpenModelFile("/models/Qwen3-0.6B"));
//
// Keys and names are mapped by hf_config.cc's tables, one a family. Of the tensors, vectors become
// F32; "llama" has rows of W_q and W_k in another order, Gemma's norms have 1 added, LongRoPE's and
// Llama 3's factors are tensors, and what GPTQ and AWQ have packed becomes blocks (packed_rows.h).
// All else is as stored.
#ifndef LM_ENGINE_HF_HF_DIRECTORY_H_
#define LM_ENGINE_HF_HF_DIRECTORY_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/gguf/gguf_file.h"

namespace lm {

// The GGUF that a directory stands for. Errors name the file, what was wanted and what is there.
// Cancelled where the thread's CheckpointScope is interrupted.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenHfDirectory(const std::string& path);

// A model of any kind: a GGUF file, or a directory. As GgufFile::Open.
absl::StatusOr<std::unique_ptr<GgufFile>> OpenModelFile(const std::string& path,
                                                        const std::atomic<bool>* cancel = nullptr);

}  // namespace lm

#endif  // LM_ENGINE_HF_HF_DIRECTORY_H_

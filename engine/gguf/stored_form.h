// Tensors whose bytes in a file are of no type that we compute with: they are read as one that we
// do, with the same values.
#ifndef LM_ENGINE_GGUF_STORED_FORM_H_
#define LM_ENGINE_GGUF_STORED_FORM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/tensor/dtype.h"

namespace lm {

enum class StoredForm {
  kPlain,  // it is of its type
  // MXFP4 with values 2i and 2i + 1 in byte i of a block, OpenAI's order, where ggml has i and
  // i + 16: Ollama's first files of gpt-oss. Its number is that of a type that was given up before
  // there were GGUF files.
  kNeighbours,
  // ggml's Q8_K, which llama.cpp only makes of activations, read as F32.
  kQ8K,
};

// ggml's number of a type: what it is read as, and how it is stored. False where there is no such
// number, or it is of a type of kPlain.
bool FindStoredForm(uint32_t ggml_number, DType* dtype, StoredForm* form);

// What a tensor of `bytes` takes in the file. REQUIRES: whole blocks.
uint64_t StoredBytes(StoredForm form, uint64_t bytes);

// The values per block; rows are of whole ones.
int StoredBlock(StoredForm form, DType dtype);

// Fills `out` with what `stored` is read as; for kNeighbours they may be the same bytes.
// REQUIRES: stored.size() == StoredBytes(form, out.size()), and form is not kPlain.
void ReadStored(StoredForm form, absl::Span<const char> stored, absl::Span<char> out);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_STORED_FORM_H_

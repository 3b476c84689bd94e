// A GGUF file that is nowhere: its header is in memory, its tensors are made by RowSources when
// they are read. What reads GGUF files reads it like any other, and what copies it writes one.
#ifndef LM_ENGINE_HF_ROW_FILE_H_
#define LM_ENGINE_HF_ROW_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/gguf/metadata.h"
#include "engine/hf/row_source.h"

namespace lm {

struct RowTensor {
  std::string name;
  std::vector<uint64_t> dims;  // as GGUF has them; their product is that of the source's
  std::unique_ptr<RowSource> rows;
};

// `path` is what its errors say.
std::unique_ptr<RandomAccessFile> MakeRowFile(std::string path, const Metadata& metadata,
                                              std::vector<RowTensor> tensors);

}  // namespace lm

#endif  // LM_ENGINE_HF_ROW_FILE_H_

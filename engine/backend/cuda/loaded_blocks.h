// The blocks of a matrix as weight_block.cuh reads them. Plain C++, for the host's tests too.
#ifndef LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_
#define LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

// Whether they are others than the file's: only MXFP4's and those of the types of
// gguf/coded_blocks.h are.
bool ChangesOnDevice(DType dtype);
// Bytes of a row of them.
int64_t RowBytesOnDevice(DType dtype, int64_t cols);
// Makes them of whole rows of the file's. REQUIRES: ChangesOnDevice(dtype); there is room at `to`.
void WriteBlocksOnDevice(DType dtype, absl::Span<const char> blocks, char* to);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_

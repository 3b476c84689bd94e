// The blocks of a quantised matrix as weight_block.cuh reads them. Plain C++, for the host's tests
// too.
#ifndef LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_
#define LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_

#include "absl/status/statusor.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

// Takes a matrix as the file has it. Only MXFP4 and the types of gguf/coded_blocks.h change.
absl::StatusOr<Buffer> BlocksOnDevice(DType dtype, Buffer blocks);
// Bytes of a row of it then.
int64_t RowBytesOnDevice(DType dtype, int64_t cols);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_LOADED_BLOCKS_H_

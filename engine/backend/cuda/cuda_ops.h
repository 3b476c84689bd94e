// CudaBackend: backend.h's ops on one GPU. What its numbers are is said in cuda_backend.h; the
// kernels are in kernels.h, the arithmetic of each in a .cuh beside it.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_

#include <memory>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/library_product.h"

namespace lm {

// The blocks as the file has them, in the device's memory.
class CudaMatrix : public WeightMatrix {
 public:
  CudaMatrix(DType dtype, int64_t rows, int64_t cols, Buffer blocks)
      : WeightMatrix(dtype, rows, cols), blocks_(std::move(blocks)) {}

  size_t bytes() const override { return blocks_.bytes(); }
  cuda::Weights weights() const { return {blocks_.data(), dtype(), rows(), cols()}; }

 private:
  Buffer blocks_;
};

class CudaBackend : public Backend {
 public:
  // FailedPrecondition, saying why, where GPU number `device` is not to be had.
  // REQUIRES: `api` outlives the backend, its buffers and its matrices.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const CudaApi& api, int device,
                                                         bool exact_products);

  absl::string_view name() const override { return device_->name(); }

  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  absl::Status Upload(const void* from, void* to, size_t bytes) override;
  absl::Status Download(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;

  absl::Status Embed(const WeightMatrix& w, absl::Span<const int32_t> ids, Tensor out) override;
  absl::Status RmsNorm(Tensor x, Tensor weight, float eps, Tensor out) override;
  absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) override;
  absl::Status RopeAndStoreKv(Tensor q, Tensor k, Tensor v, Tensor rope, RopePairing pairing,
                              absl::Span<const int64_t> slots, const KvLayer& layer) override;
  absl::Status Attention(Tensor q, absl::Span<const SequenceSpan> sequences, const KvLayer& layer,
                         float scale, Tensor out) override;
  absl::Status SwiGlu(Tensor gate, Tensor up, Tensor out) override;
  absl::Status Add(Tensor x, Tensor y) override;
  absl::Status GatherRows(Tensor x, absl::Span<const int32_t> rows, Tensor out) override;
  absl::Status CopyKvBlock(const KvLayer& layer, int32_t from, int32_t to, int32_t tokens) override;
  absl::Status ZeroKvBlock(const KvLayer& layer, int32_t block) override;

 private:
  CudaBackend(std::unique_ptr<CudaDevice> device, bool exact_products)
      : device_(std::move(device)), exact_products_(exact_products), library_(device_.get()) {}

  std::unique_ptr<CudaDevice> device_;  // first: the rest lies in its memory
  const bool exact_products_;
  LibraryProduct library_;
  CudaScratch activations_;  // int8 blocks
  CudaArray ids_;            // of Embed and GatherRows
  CudaArray slots_;
  CudaArray attention_rows_;
  CudaArray attention_blocks_;
};

inline cuda::Matrix ToMatrix(Tensor tensor) {
  return {static_cast<float*>(tensor.data), tensor.rows, tensor.cols,
          tensor.row_bytes / static_cast<int64_t>(sizeof(float))};
}

inline cuda::KvCacheLayer ToCacheLayer(const KvLayer& layer) {
  return {layer.keys, layer.values, layer.dtype, layer.kv_heads, layer.head_dim};
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_

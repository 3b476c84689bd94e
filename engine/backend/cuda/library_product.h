// Products of many rows by cuBLASLt, in 16 bits with F32 sums: quantised weights are dequantised to
// F16, F16 and BF16 weights are taken as they are, activations are rounded to the weights' type.
//
//   for each slab of W's rows:                          at most kSlabValues values
//     dequantise the slab
//     for each panel of kPanelRows tokens:              the last one padded with zeros
//       product = panel slab^T;  out = product / row factors + bias
//
// Every product of a matrix has the same shapes and the same algorithm whatever T is, so a row's
// result does not depend on the rows beside it.
#ifndef LM_ENGINE_BACKEND_CUDA_LIBRARY_PRODUCT_H_
#define LM_ENGINE_BACKEND_CUDA_LIBRARY_PRODUCT_H_

#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend/cuda/cublas_lt.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kernels.h"

namespace lm {

class LibraryProduct {
 public:
  explicit LibraryProduct(CudaDevice* device) : device_(device) {}
  ~LibraryProduct();
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  // Whether the library is there and products with `w` are for it. Opens it at the first call.
  // REQUIRES: the device is current (CudaDevice::Begin), here and below.
  bool Takes(const cuda::Weights& w);

  // out = W x^T + bias (or null).  REQUIRES: Takes(w).
  absl::Status Multiply(const cuda::Weights& w, cuda::Matrix x, const float* bias,
                        cuda::Matrix out);

 private:
  // Of one panel and one slab; filled by Describe.
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t slab = nullptr;
    cublasLtMatrixLayout_t panel = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulHeuristicResult_t algorithm = {};
  };
  struct Scratch {
    CudaScratch panels, factors, slab, product, workspace;
  };

  void Open();
  absl::StatusOr<const Plan*> FindPlan(int64_t slab_rows, int64_t cols, bool bf16);
  absl::Status Describe(int64_t slab_rows, int64_t cols, bool bf16, Plan* plan);
  void Destroy(Plan* plan);
  absl::Status Check(cublasStatus_t status, absl::string_view call);

  CudaDevice* const device_;
  bool tried_ = false;
  std::optional<CublasLt> lt_;  // empty where there is none
  cublasLtHandle_t handle_ = nullptr;
  std::map<std::tuple<int64_t, int64_t, bool>, Plan> plans_;
  Scratch scratch_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_LIBRARY_PRODUCT_H_

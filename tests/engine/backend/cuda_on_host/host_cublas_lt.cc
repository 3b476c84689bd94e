// The part of cuBLASLt that is used, as loops: in the place of cublas_lt.cc. Matrices are stored by
// columns, `ld` values apart, as the library's are.
#include <algorithm>
#include <vector>

#include "engine/backend/cuda/cublas_lt.h"
#include "engine/base/float16.h"

namespace lm {
namespace {

struct Product {
  bool transpose_a = false;
};

struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
};

float Load(const Layout& layout, const void* data, uint64_t row, uint64_t col) {
  uint16_t bits = static_cast<const uint16_t*>(data)[col * layout.ld + row];
  return layout.type == CUDA_R_16BF ? Bf16ToFloat(bits) : HalfToFloat(bits);
}

// The library leaves no more than a status: anything that it might not take is one.
cublasStatus_t Multiply(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void*,
                        const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                        cublasLtMatrixLayout_t b_layout, const void*, const void* c,
                        cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                        const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  const Product& product = *reinterpret_cast<const Product*>(description);
  const Layout& la = *reinterpret_cast<const Layout*>(a_layout);
  const Layout& lb = *reinterpret_cast<const Layout*>(b_layout);
  const Layout& ld = *reinterpret_cast<const Layout*>(d_layout);
  const bool aligned = reinterpret_cast<uintptr_t>(a) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(b) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(d) % 16 == 0 && la.ld % 8 == 0 &&
                       lb.ld % 8 == 0 && ld.ld % 4 == 0;
  const bool fits = product.transpose_a && la.cols == ld.rows && lb.cols == ld.cols &&
                    la.rows == lb.rows && la.type == lb.type && ld.type == CUDA_R_32F && c == d;
  if (!aligned || !fits) return CUBLAS_STATUS_INVALID_VALUE;
  std::vector<float> column(la.rows);
  std::vector<float> weights(la.rows);
  for (uint64_t row = 0; row < ld.rows; ++row) {
    for (uint64_t k = 0; k < la.rows; ++k) weights[k] = Load(la, a, k, row);
    for (uint64_t col = 0; col < ld.cols; ++col) {
      float sum = 0;
      for (uint64_t k = 0; k < lb.rows; ++k) sum += weights[k] * Load(lb, b, k, col);
      static_cast<float*>(d)[col * ld.ld + row] = sum;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

absl::Span<const char* const> CublasLt::Names() { return {}; }

absl::StatusOr<CublasLt> CublasLt::Open(absl::Span<const char* const>) {
  return CublasLt{
      .Create = [](cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; },
      .Destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; },
      .Matmul = Multiply,
      .MatmulAlgoGetHeuristic =
          [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
             cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
             cublasLtMatmulHeuristicResult_t*, int* found) {
            *found = 1;
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatmulDescCreate =
          [](cublasLtMatmulDesc_t* description, cublasComputeType_t, cudaDataType_t) {
            *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatmulDescSetAttribute =
          [](cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
             const void* value, size_t) {
            if (attribute != CUBLASLT_MATMUL_DESC_TRANSA) return CUBLAS_STATUS_NOT_SUPPORTED;
            reinterpret_cast<Product*>(description)->transpose_a =
                *static_cast<const cublasOperation_t*>(value) == CUBLAS_OP_T;
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatmulDescDestroy =
          [](cublasLtMatmulDesc_t description) {
            delete reinterpret_cast<Product*>(description);
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatrixLayoutCreate =
          [](cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols,
             int64_t ld) {
            *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld});
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatrixLayoutDestroy =
          [](cublasLtMatrixLayout_t layout) {
            delete reinterpret_cast<Layout*>(layout);
            return CUBLAS_STATUS_SUCCESS;
          },
      .MatmulPreferenceCreate = [](cublasLtMatmulPreference_t*) { return CUBLAS_STATUS_SUCCESS; },
      .MatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t,
                                         cublasLtMatmulPreferenceAttributes_t, const void*,
                                         size_t) { return CUBLAS_STATUS_SUCCESS; },
      .MatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; },
  };
}

}  // namespace lm

// cuBLASLt, looked for when it is first needed: it is half a gigabyte, and takes half a second to
// open. Versions 13 and 12 have the same interface for what is used here.
#ifndef LM_ENGINE_BACKEND_CUDA_CUBLAS_LT_H_
#define LM_ENGINE_BACKEND_CUDA_CUBLAS_LT_H_

#include <cublasLt.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lm {

struct CublasLt {
  // The first of `names` that can be opened and has everything; NotFound, saying why each was not
  // taken. It stays open as long as the process.
  static absl::StatusOr<CublasLt> Open(absl::Span<const char* const> names);
  // The libraries' usual names.
  static absl::Span<const char* const> Names();

  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUBLAS_LT_H_

#include "engine/backend/cuda/library_product.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/exit_guard.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// A panel and a slab of 4096 columns make 4 x 64 tiles of 128 x 128: enough for every
// multiprocessor of a large GPU.
constexpr int64_t kPanelRows = 512;
constexpr int64_t kSlabRows = 16384;
constexpr int64_t kSlabValues = int64_t{32} << 20;  // 64 MiB
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t SlabRows(int64_t cols) {
  return std::max<int64_t>(std::min(kSlabRows, kSlabValues / cols) / 64 * 64, 64);
}

// Columns of a slab's product in memory: rows begin at multiples of 32 bytes.
int64_t ProductStride(int64_t slab_rows) { return RoundUp(slab_rows, 8); }

}  // namespace

LibraryProduct::~LibraryProduct() {
  if (!lt_.has_value()) return;
  for (auto& [shape, plan] : plans_) Destroy(&plan);
  if (handle_ != nullptr) lt_->Destroy(handle_);
}

bool LibraryProduct::Takes(const cuda::Weights& w) {
  // Rows of 16-bit values must begin at multiples of 16 bytes. F32 weights would lose their bits.
  if (w.dtype == DType::kF32 || w.cols % 8 != 0) return false;
  if (!tried_) Open();
  return lt_.has_value();
}

void LibraryProduct::Open() {
  tried_ = true;
  absl::StatusOr<CublasLt> lt = CublasLt::Open(CublasLt::Names());
  if (!lt.ok() || lt->Create(&handle_) != CUBLAS_STATUS_SUCCESS) return;
  ExitGuard::StayAheadOf(ExitGuard::Library::kCublasLt);
  lt_ = *lt;
}

absl::Status LibraryProduct::Multiply(const cuda::Weights& w, cuda::Matrix x, const float* bias,
                                      cuda::Matrix out) {
  const bool bf16 = w.dtype == DType::kBF16;
  const bool quantised = Traits(w.dtype).quantised;
  const int64_t padded_rows = RoundUp(x.rows, kPanelRows);
  const int64_t slab_rows = std::min(SlabRows(w.cols), w.rows);
  auto reserve = [&](CudaScratch* scratch, size_t bytes) {
    return scratch->Reserve(device_, bytes);
  };
  ASSIGN_OR_RETURN(void* panels, reserve(&scratch_.panels, padded_rows * w.cols * 2));
  ASSIGN_OR_RETURN(void* factors, reserve(&scratch_.factors, padded_rows * sizeof(float)));
  ASSIGN_OR_RETURN(void* slab, reserve(&scratch_.slab, quantised ? slab_rows * w.cols * 2 : 0));
  ASSIGN_OR_RETURN(void* product, reserve(&scratch_.product,
                                          kPanelRows * ProductStride(slab_rows) * sizeof(float)));
  ASSIGN_OR_RETURN(void* workspace, reserve(&scratch_.workspace, kWorkspaceBytes));

  const cuda::Queue& queue = device_->queue();
  auto* packed = static_cast<uint16_t*>(panels);
  auto* row_factors = static_cast<float*>(factors);
  RETURN_IF_ERROR(device_->Check(
      cuda::PackActivations(queue, x, bf16, padded_rows, packed, row_factors), "MatMul"));
  for (int64_t first = 0; first < w.rows; first += slab_rows) {
    const int64_t rows = std::min(slab_rows, w.rows - first);
    ASSIGN_OR_RETURN(const Plan* plan, FindPlan(rows, w.cols, bf16));
    const uint16_t* weights = static_cast<const uint16_t*>(w.data) + first * w.cols;
    if (quantised) {
      weights = static_cast<const uint16_t*>(slab);
      RETURN_IF_ERROR(device_->Check(
          cuda::DequantizeToF16(queue, w, first, rows, static_cast<uint16_t*>(slab)), "MatMul"));
    }
    for (int64_t t = 0; t < x.rows; t += kPanelRows) {
      const float one = 1.0f;
      const float zero = 0.0f;
      RETURN_IF_ERROR(
          Check(lt_->Matmul(handle_, plan->product, &one, weights, plan->slab, packed + t * w.cols,
                            plan->panel, &zero, product, plan->out, product, plan->out,
                            &plan->algorithm.algo, workspace, kWorkspaceBytes, queue.stream),
                "cublasLtMatmul"));
      cuda::Matrix part = {out.data + t * out.stride + first, std::min(kPanelRows, x.rows - t),
                           rows, out.stride};
      RETURN_IF_ERROR(device_->Check(
          cuda::StoreProduct(queue, static_cast<const float*>(product), ProductStride(rows),
                             row_factors + t,
                             w.row_scales != nullptr ? w.row_scales + first : nullptr,
                             bias != nullptr ? bias + first : nullptr, part),
          "MatMul"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const LibraryProduct::Plan*> LibraryProduct::FindPlan(int64_t slab_rows,
                                                                     int64_t cols, bool bf16) {
  auto key = std::make_tuple(slab_rows, cols, bf16);
  if (auto found = plans_.find(key); found != plans_.end()) return &found->second;
  Plan plan;
  absl::Status status = Describe(slab_rows, cols, bf16, &plan);
  if (!status.ok()) {
    Destroy(&plan);
    return status;
  }
  return &plans_.emplace(key, plan).first->second;
}

// The library's matrices are stored by columns. So it is told: out^T (rows, tokens) = W^T^T (cols,
// rows, transposed) x^T (cols, tokens), and all four lie in memory as ours do.
absl::Status LibraryProduct::Describe(int64_t slab_rows, int64_t cols, bool bf16, Plan* plan) {
  const cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_16F;
  RETURN_IF_ERROR(Check(lt_->MatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                        "cublasLtMatmulDescCreate"));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  RETURN_IF_ERROR(Check(lt_->MatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &transpose, sizeof(transpose)),
                        "cublasLtMatmulDescSetAttribute"));
  RETURN_IF_ERROR(Check(lt_->MatrixLayoutCreate(&plan->slab, type, cols, slab_rows, cols),
                        "cublasLtMatrixLayoutCreate"));
  RETURN_IF_ERROR(Check(lt_->MatrixLayoutCreate(&plan->panel, type, cols, kPanelRows, cols),
                        "cublasLtMatrixLayoutCreate"));
  RETURN_IF_ERROR(Check(lt_->MatrixLayoutCreate(&plan->out, CUDA_R_32F, slab_rows, kPanelRows,
                                                ProductStride(slab_rows)),
                        "cublasLtMatrixLayoutCreate"));

  cublasLtMatmulPreference_t preference = nullptr;
  RETURN_IF_ERROR(
      Check(lt_->MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  const size_t workspace = kWorkspaceBytes;
  cublasStatus_t status = lt_->MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = lt_->MatmulAlgoGetHeuristic(handle_, plan->product, plan->slab, plan->panel, plan->out,
                                         plan->out, preference, 1, &plan->algorithm, &found);
  }
  lt_->MatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_SUCCESS && found == 0) status = CUBLAS_STATUS_NOT_SUPPORTED;
  return Check(status, "cublasLtMatmulAlgoGetHeuristic");
}

void LibraryProduct::Destroy(Plan* plan) {
  if (plan->product != nullptr) lt_->MatmulDescDestroy(plan->product);
  for (cublasLtMatrixLayout_t layout : {plan->slab, plan->panel, plan->out}) {
    if (layout != nullptr) lt_->MatrixLayoutDestroy(layout);
  }
}

absl::Status LibraryProduct::Check(cublasStatus_t status, absl::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  RETURN_IF_ERROR(device_->Synchronize());  // says so where the device is lost
  std::string message = absl::StrCat(device_->name(), ": MatMul: ", call, " returned status ",
                                     static_cast<int>(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

}  // namespace lm

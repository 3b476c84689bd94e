// The door to the CUDA backend. CMake chooses what is behind it: no_cuda_backend.cc where the build
// has no CUDA.
//
// Its numbers (numeric_contract.h: kRowInvariant).
//
// RopeAndStoreKv, Add, ScaleRows by plain factors, Route, GatherRows, GatherSlots, CombineSlots,
// Embed and the copies give the reference's bits, and so do all
// products whose x has fewer than kLibraryRows rows, with quantised and with float weights: their
// sums are kExactBlocks'. The other ops have the reference's orders for all shapes, and differ from
// it only by the device's functions: GatedActivation and CausalConv by expf, ScaleAndCap by tanhf,
// DeltaRule by log1pf too, Attention by tanhf where scores are capped. Normalize has an order of
// its own for its sums, in F64 (normalize.cu).
//
// Products of kLibraryRows rows or more go to cuBLASLt, if it is installed: in F16 (BF16 where the
// weights are) with F32 sums, and without int8 activations. They are closer to the exact product
// than kExactBlocks is, but not the same bits. So backend.h's promise that nothing depends on T is
// kept on a GPU only below kLibraryRows: whether a prompt is prefilled in one long step or in short
// ones, or beside others, changes low bits, and a near tie between two tokens can fall the other
// way. Among themselves the library's products do not depend on T: they are made in panels of a
// fixed number of rows by one algorithm a matrix. With `exact_products` the backend's own kernels
// make all products, several times slower in prefill, and the promise holds. F32 weights never go
// to the library.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"

namespace lm {

// More than a step of decoding has; a panel of the library's products is twice this.
inline constexpr int kLibraryRows = 256;

// FailedPrecondition, saying why, where GPU number `device` is not to be had.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int device, bool exact_products = false);

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int64_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  std::string unusable;  // why, or empty
};

// The GPUs that CUDA sees, in its order; FailedPrecondition, saying why, where it sees none.
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_

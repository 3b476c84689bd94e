// The door to the CUDA backend. CMake chooses what is behind it: no_cuda_backend.cc where the build
// has no CUDA.
//
// Its numbers (numeric_contract.h: kRowInvariant).
//
// RopeAndStoreKv, Add, ScaleGroups by plain factors, GatherRows, GatherSlots, CombineSlots, Embed,
// the copies and products of F32 weights give the reference's bits; so does Route, but for exp,
// which it rounds to the nearest float where a C library's expf may not. Products of quantised
// weights have kExactBlocks' terms, each exact, and an order of their own for the sums
// (unit_product.cuh); those of F16 and BF16 weights round the activations to 11 or 16 bits and add
// on tensor cores. The other ops have the reference's orders for all shapes, and differ from it by
// the device's functions: GatedActivation and CausalConv by expf, ScaleAndCap by tanhf, DeltaRule
// by log1pf too, Attention by tanhf where scores are capped. Normalize has an order of its own for
// its sums, in F64 (row_norm.cuh).
//
// Which kernel makes a product or an attention depends on the shape; its bits do not. Those of
// experts have the bits of a product by itself.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/backend/collectives.h"

namespace lm {

// FailedPrecondition, saying why, where GPU number `device` is not to be had.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int device);

// GPUs that compute together, each of which reads the others' memory. The collectives are to go
// before the members.
struct CudaGroup {
  std::vector<std::unique_ptr<Backend>> members;
  std::unique_ptr<Collectives> collectives;
};

// FailedPrecondition, saying why, where one of them is not to be had, is of another kind, or cannot
// read another's memory; CUDA's error where it does not say whether it can.
absl::StatusOr<CudaGroup> CreateCudaGroup(absl::Span<const int> devices);

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H200"
  int64_t memory_bytes = 0;
  int64_t multiprocessor_bytes = 0;  // of shared memory
  int compute_major = 0;
  int compute_minor = 0;
  std::string unusable;  // why, or empty
};

// The GPUs that CUDA sees, in its order; FailedPrecondition, saying why, where it sees none.
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices();

// Whether CUDA's driver, of whatever version, can be opened here.
bool FindsCudaDriver();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_BACKEND_H_

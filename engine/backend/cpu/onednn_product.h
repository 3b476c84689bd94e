// The seam to oneDNN: products of many tokens with float weights. The only file (with its .cc) that
// knows the library; its exceptions and its OpenMP end here.
//
// MatMul specifies every bit of a product, and oneDNN promises none. What it computes for one size
// on one machine is the same each time though, so a size is used only where a trial against our own
// kernels gave equal bits; elsewhere those do the work. The choice is data, not code.
#ifndef LM_ENGINE_BACKEND_CPU_ONEDNN_PRODUCT_H_
#define LM_ENGINE_BACKEND_CPU_ONEDNN_PRODUCT_H_

#include <cstdint>
#include <memory>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/cpu_kernels.h"

namespace lm {

// Products of one size: (kTokens, k) times (k, kColumns), k <= kFloatChunk.
class OneDnnProduct {
 public:
  static constexpr int kTokens = 128;
  static constexpr int kColumns = 64;
  // Floats from row to row of x; not a power of two, which would crowd few sets of the caches.
  static constexpr int kXStride = kFloatChunk + 16;

  // nullptr where the library fails, or where its bits are not those of our kernels of `isa`. With
  // kAvx2 and kAvxVnni the library uses AVX2, too, unless the process has made a product before.
  static std::unique_ptr<OneDnnProduct> Create(int64_t k, int workers, Isa isa);
  virtual ~OneDnnProduct() = default;

  // acc (kTokens, kColumns) = x w, or += x w. x (kTokens, k), its rows kXStride apart;
  // w (k, kColumns). One call at a time for each worker in [0, workers). Runs on the calling thread
  // alone. False where the library failed.
  virtual bool Multiply(int worker, bool add, const float* x, const float* w, float* acc) = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_ONEDNN_PRODUCT_H_

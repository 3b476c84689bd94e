#include "engine/backend/cpu/onednn_product.h"

#include <omp.h>

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "engine/base/exit_guard.h"
#include "engine/base/random.h"

namespace lm {
namespace {

// oneDNN splits its loops over OpenMP's threads, which would be threads beside our own. A team of
// one is the calling thread; the setting is the thread's own, and its former value comes back.
class TeamOfOne {
 public:
  TeamOfOne() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~TeamOfOne() { omp_set_num_threads(before_); }
  TeamOfOne(const TeamOfOne&) = delete;
  TeamOfOne& operator=(const TeamOfOne&) = delete;

 private:
  int before_;
};

// Calls f, which calls the library; false where that threw.
template <typename F>
bool Succeeds(F f) {
  TeamOfOne team;
  try {
    f();
    return true;
  } catch (const dnnl::error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

class Product : public OneDnnProduct {
 public:
  // Throws.
  Product(int64_t k, int workers) : engine_(dnnl::engine::kind::cpu, 0) {
    for (bool add : {false, true}) {
      dnnl::matmul::primitive_desc desc = Describe(k, add);
      primitives_[add] = dnnl::matmul(desc);
      for (int i = 0; i < workers; ++i) calls_[add].emplace_back(engine_, desc);
    }
  }

  bool Multiply(int worker, bool add, const float* x, const float* w, float* acc) override {
    return Succeeds([&] {
      Call& call = calls_[add][worker];
      call.x.set_data_handle(const_cast<float*>(x), call.stream);
      call.w.set_data_handle(const_cast<float*>(w), call.stream);
      call.acc.set_data_handle(acc, call.stream);
      primitives_[add].execute(call.stream, call.arguments);
      call.stream.wait();
    });
  }

 private:
  // What one worker's calls pass; made once, for making them costs as much as a small product.
  struct Call {
    Call(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& desc)
        : stream(engine),
          x(desc.src_desc(), engine, nullptr),
          w(desc.weights_desc(), engine, nullptr),
          acc(desc.dst_desc(), engine, nullptr),
          arguments({{DNNL_ARG_SRC, x},
                     {DNNL_ARG_WEIGHTS, w},
                     {DNNL_ARG_DST, acc},
                     {DNNL_ARG_SCRATCHPAD, dnnl::memory(desc.scratchpad_desc(), engine)}}) {}
    dnnl::stream stream;
    dnnl::memory x, w, acc;  // handles: the arguments are the same objects
    std::unordered_map<int, dnnl::memory> arguments;
  };

  dnnl::matmul::primitive_desc Describe(int64_t k, bool add) {
    constexpr auto kF32 = dnnl::memory::data_type::f32;
    dnnl::memory::desc x({kTokens, k}, kF32, dnnl::memory::dims{kXStride, 1});
    dnnl::memory::desc w({k, kColumns}, kF32, dnnl::memory::dims{kColumns, 1});
    dnnl::memory::desc acc({kTokens, kColumns}, kF32, dnnl::memory::dims{kColumns, 1});
    dnnl::primitive_attr attributes;
    // Scratch of the library's own would be shared between threads.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, w, acc), attributes, engine_);
  }

  dnnl::engine engine_;
  dnnl::matmul primitives_[2];  // by `add`
  std::vector<Call> calls_[2];
};

// Holds the library to AVX2 where that is what our kernels use. What it has below AVX2 knows no
// fma, so its bits are never ours: the portable kernels stand beside whatever it likes.
void LimitTo(Isa isa) {
  if (isa != Isa::kAvx2 && isa != Isa::kAvxVnni) return;
  // An error where the library has chosen its set already.
  (void)dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
}

// Whether a call gives the bits of our own kernels.
bool SameBits(OneDnnProduct* product, const CpuKernels& kernels, int64_t k, bool add) {
  constexpr int kTokens = OneDnnProduct::kTokens;
  constexpr int kColumns = OneDnnProduct::kColumns;
  constexpr int kXStride = OneDnnProduct::kXStride;
  std::vector<float> x(kTokens * kXStride), w(k * kColumns), ours(kTokens * kColumns);
  // Of many magnitudes, so that every change of order shows.
  auto fill = [](uint64_t seed, std::vector<float>* values) {
    for (size_t i = 0; i < values->size(); ++i) {
      double size = 1 << (RandomBits(seed + 1, i) % 8);
      (*values)[i] = static_cast<float>((RandomUniform(seed, i) - 0.5) * size);
    }
  };
  fill(1, &x);
  fill(3, &w);
  fill(5, &ours);
  std::vector<float> theirs = ours;
  for (int t = 0; t < kTokens; ++t) {
    for (int column = 0; column < kColumns; column += kPanelRows) {
      kernels.float_product({.type = DType::kF32,
                             .w = w.data() + column,
                             .k_stride = kColumns,
                             .panel_stride = kPanelRows,
                             .panels = 1,
                             .x = x.data() + t * kXStride,
                             .packed = true,
                             .tokens = 1,
                             .k = k,
                             .acc = ours.data() + t * kColumns + column,
                             .acc_stride = kColumns,
                             .accumulate = add ? Accumulate::kAdd : Accumulate::kReplace});
    }
  }
  return product->Multiply(0, add, x.data(), w.data(), theirs.data()) &&
         std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) == 0;
}

}  // namespace

std::unique_ptr<OneDnnProduct> OneDnnProduct::Create(int64_t k, int workers, Isa isa) {
  LimitTo(isa);
  const CpuKernels& kernels = GetCpuKernels(isa);
  std::unique_ptr<OneDnnProduct> product;
  if (!Succeeds([&] { product = std::make_unique<Product>(k, workers); })) return nullptr;
  for (bool add : {false, true}) {
    if (!SameBits(product.get(), kernels, k, add)) return nullptr;
  }
  ExitGuard::StayAheadOf(ExitGuard::Library::kOneDnn);
  return product;
}

}  // namespace lm

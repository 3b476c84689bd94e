// kernels_avx_vnni.cc, but for avx_vnni_products.h.
#include "engine/backend/cpu/simd_avx2.h"

namespace lm {
namespace {

constexpr bool kBiasedBytes = true;

// vpdpbusd: each lane's four products of unsigned w and signed x, added without saturation. Even
// and odd bytes as 16 bits each, whose products vpmaddwd adds in 32.
inline __m256i AddProducts(__m256i acc, __m256i w, __m256i x) {
  const __m256i low = _mm256_set1_epi16(0xff);
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}

template <bool kSignedBytes>
inline void DotAdd(I32x16* acc, Bytes64 w, Bytes64 x) {
  acc->a = AddProducts(acc->a, w.a, x.a);
  acc->b = AddProducts(acc->b, w.b, x.b);
}

// vpdpwssd: each lane's two products of signed words.
inline void DotPairs(I32x16* acc, Pairs16 w, PairInAll x) {
  acc->a = _mm256_add_epi32(acc->a, _mm256_madd_epi16(w.a, x.half));
  acc->b = _mm256_add_epi32(acc->b, _mm256_madd_epi16(w.b, x.half));
}

}  // namespace
}  // namespace lm

#include "engine/backend/cpu/dot_groups.h"

#include "engine/backend/cpu/isa_kernels.h"

namespace lm {

const CpuKernels kAvxVnniKernels = kIsaKernels;

}  // namespace lm

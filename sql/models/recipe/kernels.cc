// The training's inner loops for a CPU with AMX: matrix products in bfloat16 with float32 sums, and
// what stands between them, each in one pass. kernels.py compiles this file and calls it; where
// there is no AMX, torch does the same work.
//
// Everything is row-major. T, the number of tokens, and every width are multiples of 32. A
// product's right side is repacked into panels of 32 columns in which a 32-bit word holds two rows
// of a column, as the tile instructions want it. One thread; the worker processes are what uses
// several cores.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using Bf16 = uint16_t;
constexpr long kSquare = 32 * 32;
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

const TileConfig kTiles;  // loaded by every function that multiplies: torch has a shape of its own

// Scratch memory that keeps its size; index tells the buffers of one call apart.
template <class T>
T* Scratch(int index, size_t size) {
  static thread_local std::vector<uint8_t> buffers[16];
  if (buffers[index].size() < size * sizeof(T) + 64) buffers[index].resize(size * sizeof(T) + 64);
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(buffers[index].data()) + 63) &
                              ~uintptr_t{63});
}

float Float(Bf16 x) {
  uint32_t bits = uint32_t{x} << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}

__m512 Load16(const Bf16* x) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)x)), 16));
}
void Store16(Bf16* out, __m512 x) {
  _mm256_storeu_si256((__m256i*)out, (__m256i)_mm512_cvtneps_pbh(x));
}
void Store32(Bf16* out, __m512 low, __m512 high) {
  _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

__m512 Exp(__m512 x) {
  const __m512 t =
      _mm512_mul_ps(_mm512_max_ps(x, _mm512_set1_ps(-80)), _mm512_set1_ps(1.44269504f));
  const __m512 whole = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(t, whole);
  __m512 p = _mm512_set1_ps(0.00133336f);
  for (float c : {0.00961813f, 0.05550411f, 0.24022651f, 0.69314718f, 1.0f})
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, whole);
}

// --- packing
// ---------------------------------------------------------------------------------------------------------

void ToBf16(const float* x, Bf16* out, size_t size) {
  for (size_t i = 0; i < size; i += 32)
    Store32(out + i, _mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16));
}

// out[c][r] = in[r][c] of 16 x 16 words.
void Transpose16(const uint32_t* in, long ld_in, uint32_t* out, long ld_out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(in + i * ld_in);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
    b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
    b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
    b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_storeu_si512(out + i * ld_out, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_si512(out + (i + 8) * ld_out, _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd));
  }
}

// Two rows of 32 as one of 32 words, each with a column's two values.
void Interleave(const Bf16* even, const Bf16* odd, uint32_t* out) {
  const __m512i low = _mm512_loadu_si512(even), high = _mm512_loadu_si512(odd);
  const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  _mm512_storeu_si512(out, _mm512_permutex2var_epi16(low, first, high));
  _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(low, second, high));
}

// The right side X (K, N).
void PackRight(const Bf16* x, long ld, long K, long N, uint32_t* out) {
  for (long n = 0; n < N; n += 32, out += K * 16)
    for (long k = 0; k < K; k += 2) Interleave(x + k * ld + n, x + (k + 1) * ld + n, out + k * 16);
}

// The right side W^T, from W (N, K).
void PackRightTransposed(const Bf16* w, long ld, long K, long N, uint32_t* out) {
  for (long n = 0; n < N; n += 32, out += K * 16)
    for (long half = 0; half < 32; half += 16)
      for (long k = 0; k < K; k += 32)
        Transpose16((const uint32_t*)(w + (n + half) * ld + k), ld / 2, out + k * 16 + half, 32);
}

// The left side X^T, from X (K, M), as squares [M / 32][K / 32][32][32]: lines that lie apart are
// slow to store.
void PackLeftTransposed(const Bf16* x, long ld, long K, long M, Bf16* out) {
  alignas(64) uint32_t words[16 * 32];
  for (long m = 0; m < M; m += 32)
    for (long k = 0; k < K; k += 32, out += kSquare) {
      for (long i = 0; i < 16; ++i)
        Interleave(x + (k + 2 * i) * ld + m, x + (k + 2 * i + 1) * ld + m, words + i * 32);
      for (long half = 0; half < 32; half += 16)
        Transpose16(words + half, 32, (uint32_t*)(out + half * 32), 16);
    }
}

// --- products
// --------------------------------------------------------------------------------------------------------

// out (32, 32) = A (32, K) · panel, or += if `add`; `step` leads from 32 columns of A to the next.
void Block(const Bf16* a, long lda, const uint32_t* panel, long K, float* out, long ld_out,
           bool add, long step = 32) {
  if (add) {
    _tile_loadd(0, out, ld_out * 4);
    _tile_loadd(1, out + 16, ld_out * 4);
    _tile_loadd(2, out + 16 * ld_out, ld_out * 4);
    _tile_loadd(3, out + 16 * ld_out + 16, ld_out * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (long k = 0; k < K; k += 32, a += step, panel += 512) {
    _tile_loadd(4, a, lda * 2);
    _tile_loadd(6, panel, 128);
    _tile_loadd(7, panel + 16, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 16 * lda, lda * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, ld_out * 4);
  _tile_stored(1, out + 16, ld_out * 4);
  _tile_stored(2, out + 16 * ld_out, ld_out * 4);
  _tile_stored(3, out + 16 * ld_out + 16, ld_out * 4);
}

void BlockToBf16(const float* block, Bf16* out, long ld) {
  for (int r = 0; r < 32; ++r)
    Store32(out + r * ld, _mm512_load_ps(block + r * 32), _mm512_load_ps(block + r * 32 + 16));
}

// Y (M, N) = A (M, K) · packed, in bfloat16. Stores that miss the cache cost more than the product:
// they are announced.
void Multiply(const Bf16* a, long lda, const uint32_t* packed, long M, long N, long K, Bf16* y,
              long ldy) {
  alignas(64) float block[32 * 32];
  for (long m = 0; m < M; m += 32)
    for (long n = 0; n < N; n += 32) {
      for (long r = 0; r < 32; ++r) __builtin_prefetch(y + (m + r) * ldy + n, 1);
      Block(a + m * lda, lda, packed + n / 32 * K * 16, K, block, 32, false);
      BlockToBf16(block, y + m * ldy + n, ldy);
    }
}

// Y (M, N) += A (M, K) · packed, in float32.
void MultiplyAdd(const Bf16* a, long lda, const uint32_t* packed, long M, long N, long K, float* y,
                 long ldy) {
  for (long n = 0; n < N; n += 32)
    for (long m = 0; m < M; m += 32)
      Block(a + m * lda, lda, packed + n / 32 * K * 16, K, y + m * ldy + n, ldy, true);
}

// Y (M, N) += X^T · Z with X (T, M) and Z (T, N), in pieces of T that the caches hold.
void AddOuter(const Bf16* x, long ldx, const Bf16* z, long ldz, long T, long M, long N, float* y) {
  constexpr long kTokens = 512;
  Bf16* left = Scratch<Bf16>(0, M * kTokens);
  uint32_t* right = Scratch<uint32_t>(1, kTokens * N / 2);
  for (long t = 0; t < T; t += kTokens) {
    const long count = std::min(kTokens, T - t);
    PackLeftTransposed(x + t * ldx, ldx, count, M, left);
    PackRight(z + t * ldz, ldz, count, N, right);
    for (long m = 0; m < M; m += 32)
      for (long n = 0; n < N; n += 32)
        Block(left + m * count, 32, right + n / 32 * count * 16, count, y + m * N + n, N, true,
              kSquare);
  }
}

// --- attention
// -------------------------------------------------------------------------------------------------------

// Turns the pairs (i, i + half) of a head by its position's angles; `sign` -1 turns back.
void Rotate(const Bf16* in, const float* cosine, const float* sine, float sign, float scale,
            long size, Bf16* out) {
  const long half = size / 2;
  for (long i = 0; i < half; i += 16) {
    const __m512 a = _mm512_mul_ps(Load16(in + i), _mm512_set1_ps(scale)),
                 b = _mm512_mul_ps(Load16(in + half + i), _mm512_set1_ps(scale));
    const __m512 c = _mm512_loadu_ps(cosine + i),
                 s = _mm512_mul_ps(_mm512_loadu_ps(sine + i), _mm512_set1_ps(sign));
    Store16(out + i, _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
    Store16(out + half + i, _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
  }
}

long Padded(long n) { return (n + 31) / 32 * 32; }

struct Attention {
  long heads, kv_heads, size;
  const float *cosine, *sine;           // (context, size / 2)
  const int32_t *positions, *branches;  // (T)

  long Width() const { return (heads + 2 * kv_heads) * size; }
  float Scale() const { return 1 / std::sqrt(float(size)); }

  // One head's rows of a sample, rotated unless it is a value, with zeros below.
  void Gather(const Bf16* qkv, long first, long length, long head, float scale, Bf16* out) const {
    for (long t = 0; t < length; ++t) {
      const Bf16* in = qkv + (first + t) * Width() + head * size;
      const long at = positions[first + t] * (size / 2);
      if (head < heads + kv_heads) {
        Rotate(in, cosine + at, sine + at, 1, scale, size, out + t * size);
      } else {
        memcpy(out + t * size, in, size * 2);
      }
    }
    memset(out + length * size, 0, (Padded(length) - length) * size * 2);
  }

  // The opposite: the gradient of a head's rows (float32) back to where they came from.
  void Scatter(const float* gradient, long first, long length, long head, float scale,
               Bf16* dqkv) const {
    for (long t = 0; t < length; ++t) {
      Bf16* out = dqkv + (first + t) * Width() + head * size;
      ToBf16(gradient + t * size, out, size);
      const long at = positions[first + t] * (size / 2);
      if (head < heads + kv_heads) Rotate(out, cosine + at, sine + at, -1, scale, size, out);
    }
  }

  // The softmax of 32 rows of scores whose token `row` is the first; a token sees the trunk and its
  // own branch.
  void Softmax(float* scores, long ld, long first, long length, long row, Bf16* out) const {
    const int32_t* branch = branches + first;
    const long columns = row + 32;
    for (long r = 0; r < 32; ++r) {
      float* line = scores + r * ld;
      Bf16* weights = out + (row + r) * ld;
      if (row + r >= length) {
        memset(weights, 0, ld * 2);
        continue;
      }
      const __m512i own = _mm512_set1_epi32(branch[row + r]), at = _mm512_set1_epi32(row + r);
      __m512 highest = _mm512_set1_ps(-1e30f), sum = _mm512_setzero_ps();
      for (long c = 0; c < columns; c += 16) {
        const __m512i column = _mm512_add_epi32(
            _mm512_set1_epi32(c),
            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
        const __mmask16 before = _mm512_cmple_epi32_mask(column, at);
        const __m512i theirs = _mm512_maskz_loadu_epi32(before, branch + c);
        const __mmask16 seen = before & (_mm512_cmpeq_epi32_mask(theirs, own) |
                                         _mm512_testn_epi32_mask(theirs, theirs));
        const __m512 x =
            _mm512_mask_mov_ps(_mm512_set1_ps(-1e30f), seen, _mm512_loadu_ps(line + c));
        _mm512_storeu_ps(line + c, x);
        highest = _mm512_max_ps(highest, x);
      }
      const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(highest));
      for (long c = 0; c < columns; c += 16) {
        const __m512 x = _mm512_loadu_ps(line + c);
        const __m512 e = _mm512_maskz_mov_ps(
            _mm512_cmp_ps_mask(x, _mm512_set1_ps(-1e29f), _CMP_GT_OQ), Exp(_mm512_sub_ps(x, top)));
        _mm512_storeu_ps(line + c, e);
        sum = _mm512_add_ps(sum, e);
      }
      const __m512 scale = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sum));
      for (long c = 0; c < columns; c += 16)
        Store16(weights + c, _mm512_mul_ps(_mm512_loadu_ps(line + c), scale));
      memset(weights + columns, 0, (ld - columns) * 2);
    }
  }

  // `saved` receives the weights of every head, (padded length)^2 each.
  void Forward(const Bf16* qkv, long first, long length, Bf16* out, Bf16* saved) const {
    const long padded = Padded(length), group = heads / kv_heads, width = heads * size;
    Bf16 *q = Scratch<Bf16>(2, padded * size), *k = Scratch<Bf16>(3, padded * size);
    uint32_t *keys = Scratch<uint32_t>(4, padded * size / 2),
             *values = Scratch<uint32_t>(5, padded * size / 2);
    float* scores = Scratch<float>(6, 32 * padded);
    alignas(64) float block[32 * 32];
    alignas(64) Bf16 small[32 * 32];
    for (long g = 0; g < kv_heads; ++g) {
      Gather(qkv, first, length, heads + g, 1, k);
      PackRightTransposed(k, size, size, padded, keys);
      Gather(qkv, first, length, heads + kv_heads + g, 1, k);
      PackRight(k, size, padded, size, values);
      for (long h = g * group; h < (g + 1) * group; ++h, saved += padded * padded) {
        Gather(qkv, first, length, h, Scale(), q);
        for (long row = 0; row < padded; row += 32) {
          for (long c = 0; c <= row; c += 32)
            Block(q + row * size, size, keys + c / 32 * size * 16, size, scores + c, padded, false);
          Softmax(scores, padded, first, length, row, saved);
          for (long n = 0; n < size; n += 32) {
            Block(saved + row * padded, padded, values + n / 32 * padded * 16, row + 32, block, 32,
                  false);
            BlockToBf16(block, small, 32);
            for (long t = row; t < std::min(length, row + 32); ++t)
              memcpy(out + (first + t) * width + h * size + n, small + (t - row) * 32, 64);
          }
        }
      }
    }
  }

  void Backward(const Bf16* qkv, const Bf16* dout, long first, long length, const Bf16* saved,
                Bf16* dqkv) const {
    const long padded = Padded(length), group = heads / kv_heads, width = heads * size,
               area = padded * size;
    Bf16 *q = Scratch<Bf16>(2, area), *k = Scratch<Bf16>(3, area), *v = Scratch<Bf16>(7, area),
         *dy = Scratch<Bf16>(8, area);
    uint32_t *keys = Scratch<uint32_t>(4, area / 2), *values = Scratch<uint32_t>(5, area / 2),
             *other = Scratch<uint32_t>(9, area / 2);
    float *slope = Scratch<float>(6, 32 * padded), *dq = Scratch<float>(10, area),
          *dk = Scratch<float>(11, area), *dv = Scratch<float>(12, area);
    Bf16 *dscores = Scratch<Bf16>(13, padded * padded), *left = Scratch<Bf16>(14, padded * padded);
    // Y (padded, size) += X^T · packed, X (padded, padded) lower triangular.
    auto add_transposed = [&](const Bf16* x, const uint32_t* packed, float* y) {
      PackLeftTransposed(x, padded, padded, padded, left);
      for (long row = 0; row < padded; row += 32)
        for (long n = 0; n < size; n += 32)
          Block(left + row * padded + row * 32, 32, packed + (n / 32 * padded + row) * 16,
                padded - row, y + row * size + n, size, true, kSquare);
    };
    for (long g = 0; g < kv_heads; ++g) {
      Gather(qkv, first, length, heads + g, 1, k);
      PackRight(k, size, padded, size, keys);
      Gather(qkv, first, length, heads + kv_heads + g, 1, v);
      PackRightTransposed(v, size, size, padded, values);
      std::fill(dk, dk + area, 0.0f);
      std::fill(dv, dv + area, 0.0f);
      for (long h = g * group; h < (g + 1) * group; ++h, saved += padded * padded) {
        for (long t = 0; t < length; ++t)
          memcpy(dy + t * size, dout + (first + t) * width + h * size, size * 2);
        memset(dy + length * size, 0, (padded - length) * size * 2);
        PackRight(dy, size, padded, size, other);
        add_transposed(saved, other, dv);
        for (long row = 0; row < padded; row += 32) {
          for (long c = 0; c <= row; c += 32)
            Block(dy + row * size, size, values + c / 32 * size * 16, size, slope + c, padded,
                  false);
          for (long r = 0; r < 32; ++r) {
            const Bf16* weights = saved + (row + r) * padded;
            Bf16* ds = dscores + (row + r) * padded;
            __m512 sum = _mm512_setzero_ps();
            for (long c = 0; c < row + 32; c += 16)
              sum = _mm512_fmadd_ps(Load16(weights + c), _mm512_loadu_ps(slope + r * padded + c),
                                    sum);
            const __m512 along = _mm512_set1_ps(_mm512_reduce_add_ps(sum));
            for (long c = 0; c < row + 32; c += 16)
              Store16(ds + c,
                      _mm512_mul_ps(Load16(weights + c),
                                    _mm512_sub_ps(_mm512_loadu_ps(slope + r * padded + c), along)));
            memset(ds + row + 32, 0, (padded - row - 32) * 2);
          }
          for (long n = 0; n < size; n += 32)
            Block(dscores + row * padded, padded, keys + n / 32 * padded * 16, row + 32,
                  dq + row * size + n, size, false);
        }
        Scatter(dq, first, length, h, Scale(), dqkv);
        Gather(qkv, first, length, h, Scale(), q);
        PackRight(q, size, padded, size, other);
        add_transposed(dscores, other, dk);
      }
      Scatter(dk, first, length, heads + g, 1, dqkv);
      Scatter(dv, first, length, heads + kv_heads + g, 1, dqkv);
    }
  }
};

}  // namespace

extern "C" {

// Asks the kernel for the tiles, once a process; 0 if they may be used.
int Begin() {
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData);
}

// y (T, N) = x (T, K) · w^T, w (N, K).
void LinearForward(const Bf16* x, const float* w, Bf16* y, long T, long N, long K) {
  _tile_loadconfig(&kTiles);
  Bf16* rounded = Scratch<Bf16>(0, N * K);
  uint32_t* packed = Scratch<uint32_t>(1, N * K / 2);
  ToBf16(w, rounded, N * K);
  PackRightTransposed(rounded, K, K, N, packed);
  Multiply(x, K, packed, T, N, K, y, N);
}

// dx (T, K) = dy (T, N) · w and dw (N, K) = dy^T · x.
void LinearBackward(const Bf16* dy, const Bf16* x, const float* w, Bf16* dx, float* dw, long T,
                    long N, long K) {
  _tile_loadconfig(&kTiles);
  Bf16* rounded = Scratch<Bf16>(0, N * K);
  uint32_t* packed = Scratch<uint32_t>(1, N * K / 2);
  ToBf16(w, rounded, N * K);
  PackRight(rounded, K, N, K, packed);
  Multiply(dy, N, packed, T, K, N, dx, K);
  std::fill(dw, dw + N * K, 0.0f);
  AddOuter(dy, N, x, K, T, N, K, dw);
}

// The loss of R rows of hidden states h (R, K) with the tied head e (V, K), and its gradients:
// losses[r] = -log softmax(h[r] · e^T)[targets[r]]; dh (R, K) and de (V, K) are those of the sum of
// shares[r] losses[r]. The logits are far below 80 (normed states, small embeddings), so no maximum
// is taken off.
void Head(const Bf16* h, const float* e, const int64_t* targets, const float* shares, float* losses,
          Bf16* dh, float* de, long R, long V, long K) {
  _tile_loadconfig(&kTiles);
  constexpr long kRows = 512, kColumns = 512;  // what the second cache holds of exp(logits)
  Bf16 *rounded = Scratch<Bf16>(2, V * K), *scaled = Scratch<Bf16>(4, kRows * K);
  Bf16* p = Scratch<Bf16>(3, kRows * kColumns);  // exp(logits) in squares [column][row][32][32] ...
  Bf16* turned = Scratch<Bf16>(8, kRows * V);    // ... and transposed, of all columns
  uint32_t *forward = Scratch<uint32_t>(5, V * K / 2), *backward = Scratch<uint32_t>(6, V * K / 2),
           *right = Scratch<uint32_t>(9, kRows * K / 2);
  float* product = Scratch<float>(7, kRows * K);
  ToBf16(e, rounded, V * K);
  PackRightTransposed(rounded, K, K, V, forward);
  PackRight(rounded, K, V, K, backward);
  std::fill(de, de + V * K, 0.0f);
  alignas(64) float block[kSquare];
  for (long first = 0; first < R; first += kRows) {
    const long rows = std::min(kRows, R - first),
               line = rows * 32;  // a line: 32 columns of every row
    float sums[kRows] = {};
    std::fill(product, product + rows * K, 0.0f);
    for (long from = 0; from < V; from += kColumns) {
      const long columns = std::min(kColumns, V - from);
      for (long n = 0; n < columns; n += 32)
        for (long m = 0; m < rows; m += 32) {
          Bf16* square = p + n / 32 * line + m * 32;
          Block(h + (first + m) * K, K, forward + (from + n) / 32 * K * 16, K, block, 32, false);
          for (long r = 0; r < 32; ++r) {
            const __m512 a = Exp(_mm512_load_ps(block + r * 32)),
                         b = Exp(_mm512_load_ps(block + r * 32 + 16));
            Store32(square + r * 32, a, b);
            sums[m + r] += _mm512_reduce_add_ps(_mm512_add_ps(a, b));
          }
          PackLeftTransposed(square, 32, 32, 32, turned + (from + n) / 32 * line + m * 32);
        }
      for (long n = 0; n < K; n += 32)
        for (long m = 0; m < rows; m += 32)
          Block(p + m * 32, 32, backward + (n / 32 * V + from) * 16, columns, product + m * K + n,
                K, true, line);
    }
    for (long r = 0; r < rows; ++r) {
      const long t = first + r;
      const Bf16 *row = h + t * K, *target = rounded + targets[t] * K;
      const float share = shares[t], scale = share / sums[r];
      float* slope = de + targets[t] * K;
      float logit = 0;
      for (long i = 0; i < K; i += 16) {
        const __m512 x = Load16(row + i), y = Load16(target + i),
                     slope_of_x =
                         _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_loadu_ps(product + r * K + i));
        logit += _mm512_reduce_add_ps(_mm512_mul_ps(x, y));
        Store16(dh + t * K + i, _mm512_fnmadd_ps(_mm512_set1_ps(share), y, slope_of_x));
        _mm512_storeu_ps(slope + i,
                         _mm512_fnmadd_ps(_mm512_set1_ps(share), x, _mm512_loadu_ps(slope + i)));
        Store16(scaled + r * K + i, _mm512_mul_ps(_mm512_set1_ps(scale), x));
      }
      losses[t] = std::log(sums[r]) - logit;
    }
    PackRight(scaled, K, rows, K, right);
    for (long n = 0; n < V; n += 32)
      for (long k = 0; k < K; k += 32)
        Block(turned + n / 32 * line, 32, right + k / 32 * rows * 16, rows, de + n * K + k, K, true,
              kSquare);
  }
}

// y = x / sqrt(mean(x^2) + epsilon), row by row; `scales` (T) keeps the factor.
void NormForward(const Bf16* x, Bf16* y, float* scales, long T, long width, float epsilon) {
  for (long t = 0; t < T; ++t, x += width, y += width) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < width; i += 16) sum = _mm512_fmadd_ps(Load16(x + i), Load16(x + i), sum);
    scales[t] = 1 / std::sqrt(_mm512_reduce_add_ps(sum) / width + epsilon);
    for (long i = 0; i < width; i += 16)
      Store16(y + i, _mm512_mul_ps(Load16(x + i), _mm512_set1_ps(scales[t])));
  }
}

void NormBackward(const Bf16* dy, const Bf16* y, const float* scales, Bf16* dx, long T,
                  long width) {
  for (long t = 0; t < T; ++t, dy += width, y += width, dx += width) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < width; i += 16) sum = _mm512_fmadd_ps(Load16(dy + i), Load16(y + i), sum);
    const __m512 along = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width),
                 scale = _mm512_set1_ps(scales[t]);
    for (long i = 0; i < width; i += 16)
      Store16(dx + i, _mm512_mul_ps(scale, _mm512_fnmadd_ps(Load16(y + i), along, Load16(dy + i))));
  }
}

// y (T, width) = silu(gate) up, where x (T, 2 width) holds gate and up side by side.
void SwiGluForward(const Bf16* x, Bf16* y, long T, long width) {
  for (long t = 0; t < T; ++t, x += 2 * width, y += width)
    for (long i = 0; i < width; i += 16) {
      const __m512 gate = Load16(x + i),
                   bottom = _mm512_add_ps(_mm512_set1_ps(1),
                                          Exp(_mm512_sub_ps(_mm512_setzero_ps(), gate)));
      Store16(y + i, _mm512_div_ps(_mm512_mul_ps(gate, Load16(x + width + i)), bottom));
    }
}

void SwiGluBackward(const Bf16* dy, const Bf16* x, Bf16* dx, long T, long width) {
  const __m512 one = _mm512_set1_ps(1);
  for (long t = 0; t < T; ++t, x += 2 * width, dx += 2 * width, dy += width)
    for (long i = 0; i < width; i += 16) {
      const __m512 gate = Load16(x + i), up = Load16(x + width + i), d = Load16(dy + i);
      const __m512 sigmoid =
          _mm512_div_ps(one, _mm512_add_ps(one, Exp(_mm512_sub_ps(_mm512_setzero_ps(), gate))));
      const __m512 silu = _mm512_mul_ps(gate, sigmoid);
      Store16(dx + width + i, _mm512_mul_ps(d, silu));
      Store16(dx + i, _mm512_mul_ps(_mm512_mul_ps(d, up),
                                    _mm512_fmadd_ps(silu, _mm512_sub_ps(one, sigmoid), sigmoid)));
    }
}

// Samples stand one after the other: sample s has the tokens [starts[s], starts[s + 1]).
void AttentionForward(const Bf16* qkv, const float* cosine, const float* sine,
                      const int32_t* positions, const int32_t* branches, const int32_t* starts,
                      long samples, long heads, long kv_heads, long size, Bf16* out, Bf16* saved) {
  _tile_loadconfig(&kTiles);
  const Attention attention{heads, kv_heads, size, cosine, sine, positions, branches};
  for (long s = 0; s < samples; ++s) {
    const long length = starts[s + 1] - starts[s];
    attention.Forward(qkv, starts[s], length, out, saved);
    saved += heads * Padded(length) * Padded(length);
  }
}

void AttentionBackward(const Bf16* qkv, const Bf16* dout, const float* cosine, const float* sine,
                       const int32_t* positions, const int32_t* branches, const int32_t* starts,
                       long samples, long heads, long kv_heads, long size, const Bf16* saved,
                       Bf16* dqkv) {
  _tile_loadconfig(&kTiles);
  const Attention attention{heads, kv_heads, size, cosine, sine, positions, branches};
  for (long s = 0; s < samples; ++s) {
    const long length = starts[s + 1] - starts[s];
    attention.Backward(qkv, dout, starts[s], length, saved, dqkv);
    saved += heads * Padded(length) * Padded(length);
  }
}

// Muon's update: about the nearest orthogonal matrix of x (M, N), M <= N, by Newton-Schulz
// iteration.
void Orthogonal(const float* x, float* out, long M, long N, long steps, float a, float b, float c) {
  _tile_loadconfig(&kTiles);
  Bf16 *y = Scratch<Bf16>(2, M * N), *gram = Scratch<Bf16>(3, M * M);
  uint32_t* packed = Scratch<uint32_t>(4, std::max(M * N, M * M) / 2);
  float* square = Scratch<float>(5, M * M);
  double sum = 0;
  for (long i = 0; i < M * N; ++i) sum += double(x[i]) * x[i];
  const float scale = 1 / (std::sqrt(sum) + 1e-7);
  for (long i = 0; i < M * N; ++i) out[i] = x[i] * scale;
  for (long step = 0; step < steps; ++step) {
    ToBf16(out, y, M * N);
    PackRightTransposed(y, N, N, M, packed);
    Multiply(y, N, packed, M, M, N, gram, M);
    PackRight(gram, M, M, M, packed);
    std::fill(square, square + M * M, 0.0f);
    MultiplyAdd(gram, M, packed, M, M, M, square, M);
    for (long i = 0; i < M * M; ++i) square[i] = c * square[i] + b * Float(gram[i]);
    ToBf16(square, gram, M * M);
    PackRight(y, N, M, N, packed);
    for (long i = 0; i < M * N; ++i) out[i] *= a;
    MultiplyAdd(gram, M, packed, M, N, M, out, N);
  }
}

}  // extern "C"

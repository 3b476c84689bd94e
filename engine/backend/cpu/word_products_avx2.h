// Products of signed bytes on AVX2 with many tokens: codes and activations as words of 16 bits. A
// product of bytes takes vpsignb, vpmaddubsw, vpmaddwd and vpaddd for 32 of them, of which three want
// the same two of three ports; one of words vpmaddwd and vpaddd for 16, and nothing for the codes'
// signs. The codes are made words once for all tokens.
#ifndef LM_ENGINE_BACKEND_CPU_WORD_PRODUCTS_AVX2_H_
#define LM_ENGINE_BACKEND_CPU_WORD_PRODUCTS_AVX2_H_

#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/dot_groups_avx2.h"
#include "engine/backend/cpu/quantized_product_kernel.h"
#include "engine/backend/cpu/unpack_kernel.h"

namespace lm {
namespace {

// With fewer tokens it costs more to make words than their products save.
constexpr int kLeastWordTokens = 16;

// What UnpackWords makes: [16 pairs of values][16 rows][2].
struct WordCodes {
  using Record = WordRecord;
  static constexpr int kBlockBytes = 2 * kUnpackedBlockBytes;
};

template <typename Codes, bool kSigned, int kTokens, int kPanels, int kBegin, int kEnd>
inline void DotGroups(const uint8_t* codes, const uint8_t*, const WordRecord* x, int,
                      I32x16 (*sums)[kPanels]) {
#pragma GCC unroll 16
  for (int pair = 2 * kBegin; pair < 2 * kEnd; ++pair) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const Bytes64 w = Bytes64::Load(codes + p * Codes::kBlockBytes + 64 * pair);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        int32_t both;
        __builtin_memcpy(&both, x[t].q + 2 * pair, sizeof(both));
        const __m256i token = _mm256_set1_epi32(both);
        const __m256i a = _mm256_madd_epi16(w.a, token), b = _mm256_madd_epi16(w.b, token);
        I32x16* sum = &sums[t][p];
        if (pair == 2 * kBegin) {
          *sum = {a, b};
        } else {
          sum->a = _mm256_add_epi32(sum->a, a);
          sum->b = _mm256_add_epi32(sum->b, b);
          AddNow(&sum->a);
          AddNow(&sum->b);
        }
      }
    }
  }
}

void MultiplyWords(const QuantizedProduct& args) {
  static_assert(kQuantizedTokens == 4);
  // Of 16 tokens or more, in tiles as even as can be, none has fewer.
  if (args.tokens == 3) {
    MultiplyQuantizedTile<WordCodes, true, UnpackedScales, false, 0, 3, kTilePanels>(args);
  } else {
    MultiplyQuantizedTile<WordCodes, true, UnpackedScales, false, 0, 4, kTilePanels>(args);
  }
}

// Of eight rows with four values each, biased by 128, the pair at `from` of each row.
inline __m256i WordsOf(__m256i codes, int from) {
  const __m256i values = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
  // Into the high byte of each word, and down again with their signs.
  const __m256i to_high = _mm256_add_epi8(
      _mm256_set1_epi32(from * 0x01000100),
      _mm256_broadcastsi128_si256(_mm_setr_epi8(-128, 0, -128, 1, -128, 4, -128, 5, -128, 8, -128,
                                                9, -128, 12, -128, 13)));
  return _mm256_srai_epi16(_mm256_shuffle_epi8(values, to_high), 8);
}

template <typename Codes>
void UnpackWordsAs(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks,
                   uint8_t* out) {
  for (int64_t b = 0; b < num_blocks; ++b) {
    PrefetchAhead(codes, Codes::kBlockBytes);
    for (int g = 0; g < kGroups; ++g) {
      const Bytes64 four = Codes::Load(codes, g, format.biased_table);
      for (int pair = 0; pair < 2; ++pair) {
        Bytes64{WordsOf(four.a, 2 * pair), WordsOf(four.b, 2 * pair)}.Store(out);
        out += 64;
      }
    }
    codes += kPanelsAPair * Codes::kBlockBytes;
  }
}

void UnpackWords(const PanelFormat& format, const uint8_t* codes, int64_t num_blocks,
                 uint8_t* out) {
  if (format.table == nullptr) return UnpackWordsAs<ByteCodes<>>(format, codes, num_blocks, out);
  UnpackWordsAs<PanelCodes<4, 0, true>>(format, codes, num_blocks, out);
}

void QuantizeToWords(const PanelFormat& format, const float* x, int64_t num_blocks,
                     WordRecord* out, int64_t stride) {
  for (int64_t b = 0; b < num_blocks; ++b) {
    ActivationRecord bytes;
    QuantizeActivations(format, x + 32 * b, 1, &bytes, 1);
    WordRecord& words = out[b * stride];
    for (int i = 0; i < 32; ++i) words.q[i] = bytes.q[i];
    words.s = bytes.s;
  }
}

constexpr CpuKernels WithWords(CpuKernels kernels) {
  kernels.least_word_tokens = kLeastWordTokens;
  kernels.word_product = MultiplyWords;
  kernels.unpack_words = UnpackWords;
  kernels.quantize_to_words = QuantizeToWords;
  return kernels;
}

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_WORD_PRODUCTS_AVX2_H_

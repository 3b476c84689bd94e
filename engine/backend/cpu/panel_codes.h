// The codes of a panel's block (panel_format.h), a group of four values at a time. Included by
// kernels_*.cc after a simd_*.h.
#ifndef LM_ENGINE_BACKEND_CPU_PANEL_CODES_H_
#define LM_ENGINE_BACKEND_CPU_PANEL_CODES_H_

#include "engine/backend/cpu/panel_format.h"

namespace lm {
namespace {

// kLookedUp: a code stands for what the format's table has.
template <int kLowBits, int kHighBits, bool kLookedUp = false>
struct PanelCodes {
  static constexpr int kBlockBytes = 64 * (kLowBits + kHighBits);
  static constexpr int kMostCode = kLookedUp ? 255 : (1 << (kLowBits + kHighBits)) - 1;

  // The codes of group g as unsigned bytes, q_w + bias.
  static inline Bytes64 Load(const uint8_t* block, int g, const uint8_t* table) {
    Bytes64 code = Bytes64::Load(block + 64 * (g % kLowBits));
    if constexpr (kLowBits < 8) {
      code = Extract(code, kLowBits * (g / kLowBits), (1 << kLowBits) - 1);
    }
    if constexpr (kHighBits > 0) {
      Bytes64 high = Bytes64::Load(block + 64 * kLowBits + 64 * (g % kHighBits));
      high = Extract(high, kHighBits * (g / kHighBits), (1 << kHighBits) - 1);
      code = Combine(code, high, kLowBits);
    }
    if constexpr (kLookedUp) code = Lookup(table, code);
    return code;
  }
};

// What UnpackCodes makes of any of them: bytes of at most kMost.
template <int kMost = 255>
struct ByteCodes : PanelCodes<8, 0> {
  static constexpr int kMostCode = kMost;
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PANEL_CODES_H_

// The scales of one or two panels' blocks, one block after the other, as a product multiplies by
// them: d, then the halves' integer scales where there are such, then minima. Included by
// kernels_*.cc after a simd_*.h.
//
// All have the same parameters and members, so that a product is written once:
//   Begin(format, scales, ahead), before all others: `scales` is where the first panel's are, the
//   other's lie behind;
//       `ahead`: ask for what the next blocks will read.
//   Get(p, i): scale i of panel p's block, 16 rows.
//   Next(): to the next block, at first to the first.
#ifndef LM_ENGINE_BACKEND_CPU_PANEL_SCALES_H_
#define LM_ENGINE_BACKEND_CPU_PANEL_SCALES_H_

#include "engine/backend/cpu/panel_format.h"
#include "engine/backend/cpu/prefetch.h"

namespace lm {
namespace {

inline F32x16 LoadHalves(const uint8_t* p) {
  uint16_t halves[kPanelRows];
  __builtin_memcpy(halves, p, sizeof(halves));
  return F32x16::LoadHalf(halves);
}

inline F32x16 LoadBf16s(const uint8_t* p) {
  uint16_t halves[kPanelRows];
  __builtin_memcpy(halves, p, sizeof(halves));
  return F32x16::LoadBf16(halves);
}

// 16 bytes, (byte >> shift) & 15, as floats.
inline F32x16 LoadNibbles(const uint8_t* p, int shift) {
  int8_t nibbles[kPanelRows];
  for (int i = 0; i < kPanelRows; ++i) nibbles[i] = (p[i] >> shift) & 15;
  return F32x16::LoadI8(nibbles);
}

inline F32x16 LoadBytes(const uint8_t* p) {
  return F32x16::LoadI8(reinterpret_cast<const int8_t*>(p));
}

// What UnpackScales made: [block][panel][scale][16 rows], floats.
template <bool kHalfScales, int kMinima, int kPanels>
class UnpackedScales {
 public:
  void Begin(const PanelFormat&, const void* scales, bool) {
    next_ = static_cast<const float*>(scales);
  }
  void Next() {
    at_ = next_;
    next_ += kPanels * kScales * kPanelRows;
  }
  F32x16 Get(int p, int i) const { return F32x16::Load(at_ + (p * kScales + i) * kPanelRows); }

 private:
  static constexpr int kScales = 1 + (kHalfScales ? 2 : 0) + kMinima;
  const float* next_ = nullptr;
  const float* at_ = nullptr;
};

// Every block has d (and m) of its own, and no more.
template <bool kHalfScales, int kMinima, int kPanels>
class PlainScales {
 public:
  void Begin(const PanelFormat&, const void* scales, bool ahead) {
    next_ = static_cast<const uint8_t*>(scales);
    ahead_ = ahead;
  }
  void Next() {
    at_ = next_;
    next_ += kStep;
    if (ahead_) Prefetch(at_ + kBlocksAhead * kStep, kStep);
  }
  F32x16 Get(int p, int i) const { return LoadHalves(at_ + p * kPanelBytes + i * 2 * kPanelRows); }

 private:
  static constexpr int kPanelBytes = 2 * kPanelRows * (1 + kMinima);
  static constexpr int kStep = kPanelsAPair * kPanelBytes;
  static constexpr int kBlocksAhead = 8;
  const uint8_t* next_ = nullptr;
  const uint8_t* at_ = nullptr;
  bool ahead_ = false;
};

// Integers, of which a group of blocks shares d (and m).
template <bool kHalfScales, int kMinima, int kPanels>
class GroupScales {
 public:
  void Begin(const PanelFormat& format, const void* scales, bool ahead) {
    format_ = &format;
    next_group_ = static_cast<const uint8_t*>(scales);
    ahead_ = ahead;
  }
  void Next() {
    own_ += kBlockBytes;
    if (left_ == 0) BeginGroup();
    --left_;
  }
  F32x16 Get(int p, int i) const {
    const uint8_t* own = own_ + p * format_->group_scale_bytes;
    if constexpr (!kHalfScales) {
      return i == 0 ? d_[p] * LoadBytes(own) : m_[p] * LoadBytes(own + kPanelRows);
    } else {
      if (i == 0) return d_[p];
      const uint8_t* bytes = own + (i - 1) % 2 * kPanelRows;
      if constexpr (kMinima == 0) return LoadBytes(bytes);
      return i < 3 ? LoadNibbles(bytes, 0) : m_[p] * LoadNibbles(bytes, 4);
    }
  }

 private:
  static constexpr int kHalvesBytes = 2 * kPanelRows;
  static constexpr int kHeadBytes = kHalvesBytes * (kMinima > 0 ? 2 : 1);
  static constexpr int kBlockBytes = kPanelRows * (kHalfScales ? 2 : 1 + kMinima);

  void BeginGroup() {
    const uint8_t* group = next_group_;
    next_group_ += format_->scale_step;
    own_ = group + kHeadBytes;
    left_ = format_->blocks_per_group;
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* head = group + p * format_->group_scale_bytes;
      d_[p] = LoadHalves(head) * F32x16::Set(format_->unit);
      if constexpr (kMinima > 0) m_[p] = F32x16::Zero() - LoadHalves(head + kHalvesBytes);
    }
    if (ahead_) Prefetch(next_group_, format_->scale_step);
  }

  const PanelFormat* format_ = nullptr;
  const uint8_t* next_group_ = nullptr;
  bool ahead_ = false;
  const uint8_t* own_ = nullptr;  // of the block
  int left_ = 0;                  // blocks of the group
  // Of the group. (That they begin as zeros keeps them out of memory.)
  F32x16 d_[kPanels] = {};
  F32x16 m_[kMinima > 0 ? kPanels : 1] = {};
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_PANEL_SCALES_H_

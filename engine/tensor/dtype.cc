#include "engine/tensor/dtype.h"

namespace lm {

const DTypeTraits& Traits(DType dtype) {
  // Indexed by DType.
  static constexpr DTypeTraits kTraits[kNumDTypes] = {
      {"F32", 1, 4, false},       {"F16", 1, 2, false},       {"BF16", 1, 2, false},
      {"I8", 1, 1, false},        {"I16", 1, 2, false},       {"I32", 1, 4, false},
      {"Q4_0", 32, 18, true},
      {"Q4_1", 32, 20, true},     {"Q5_0", 32, 22, true},     {"Q5_1", 32, 24, true},
      {"Q8_0", 32, 34, true},     {"Q2_K", 256, 84, true},    {"Q3_K", 256, 110, true},
      {"Q4_K", 256, 144, true},   {"Q5_K", 256, 176, true},   {"Q6_K", 256, 210, true},
      {"IQ4_NL", 32, 18, true},   {"IQ4_XS", 256, 136, true}, {"MXFP4", 32, 17, true},
      {"NVFP4", 64, 36, true},    {"IQ3_XXS", 256, 98, true}, {"IQ3_S", 256, 110, true},
      {"IQ2_XXS", 256, 66, true}, {"IQ2_XS", 256, 74, true},  {"IQ2_S", 256, 82, true},
      {"IQ1_S", 256, 50, true},   {"IQ1_M", 256, 56, true},   {"TQ1_0", 256, 54, true},
      {"TQ2_0", 256, 66, true},   {"Q1_0", 128, 18, true},    {"Q2_0", 64, 18, true},
  };
  return kTraits[static_cast<int>(dtype)];
}

}  // namespace lm

#include "engine/base/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lm {
namespace {

using Isas = std::vector<Isa>;

TEST(CpuFeaturesTest, ANameIsTheLastOfThem) {
  const Isas x86 = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};
  const Isas arm = {Isa::kPortable, Isa::kNeon, Isa::kNeonDotprod, Isa::kNeonI8mm};
  EXPECT_EQ(*IsasUpTo("avx2", x86), (Isas{Isa::kPortable, Isa::kAvx2}));
  EXPECT_EQ(*IsasUpTo("avx_vnni", x86), (Isas{Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni}));
  EXPECT_EQ(*IsasUpTo("neon", arm), (Isas{Isa::kPortable, Isa::kNeon}));
  EXPECT_EQ(*IsasUpTo("portable", arm), Isas{Isa::kPortable});
  for (const char* name : {"", "avx512_vnni"}) EXPECT_EQ(*IsasUpTo(name, x86), x86) << name;
}

TEST(CpuFeaturesTest, ANameThatTheProcessorHasNotIsRefused) {
  const Isas zen4 = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Vnni};
  for (const char* name : {"avx_vnni", "neon", "AVX2", "nonsense"}) {
    EXPECT_EQ(IsasUpTo(name, zen4).status().message(),
              absl::StrCat("LM_CPU must be one of portable, avx2, avx512_vnni, which this "
                           "processor has, got '",
                           name, "'"));
  }
}

TEST(CpuFeaturesTest, EveryMachineHasThePortableKernels) {
  EXPECT_EQ(AvailableIsas().front(), Isa::kPortable);
  EXPECT_EQ(AvailableIsas().back(), BestIsa());
}

// Another process, for it is asked once.
TEST(CpuFeaturesDeathTest, LmCpuHoldsThisMachineBack) {
  ASSERT_EQ(setenv("LM_CPU", "portable", 1), 0);
  EXPECT_EXIT(std::exit(AvailableIsas() == Isas{Isa::kPortable} ? 0 : 1),
              testing::ExitedWithCode(0), "");
  ASSERT_EQ(setenv("LM_CPU", "nonsense", 1), 0);
  EXPECT_EXIT(std::exit(absl::IsInvalidArgument(CheckNamedIsa()) ? 0 : 1),
              testing::ExitedWithCode(0), "");
  unsetenv("LM_CPU");
}

}  // namespace
}  // namespace lm

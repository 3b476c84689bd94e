#include "engine/backend/machine_ceilings.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace lm {
namespace {

auto never = [] { return false; };

TEST(MachineCeilingsTest, AreThoseOfAMachine) {
  for (Isa isa : AvailableIsas()) {
    const MachineCeilings ceilings = MeasureCeilings(1, isa, absl::Milliseconds(1), never);
    EXPECT_GT(ceilings.read_bytes_per_second, 1e8);
    EXPECT_LT(ceilings.read_bytes_per_second, 1e13);
    if (isa == Isa::kPortable) {
      EXPECT_EQ(ceilings.fp32_flops_per_second, 0);
      EXPECT_EQ(ceilings.int8_ops_per_second, 0);
    } else {
      EXPECT_GT(ceilings.fp32_flops_per_second, 1e7);  // of an emulator
      if (isa == Isa::kNeon) {                         // takes four instructions a vector
        EXPECT_GT(ceilings.int8_ops_per_second, 1e7);
      } else {
        EXPECT_GT(ceilings.int8_ops_per_second, ceilings.fp32_flops_per_second);
      }
    }
  }
}

TEST(MachineCeilingsTest, AreMeasuredOnceInAProcess) {
  const auto first = CeilingsOfThisProcess(2, never);
  ASSERT_TRUE(first.has_value());
  const absl::Time start = absl::Now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(CeilingsOfThisProcess(2, never)->read_bytes_per_second, first->read_bytes_per_second);
  }
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(50));
}

TEST(MachineCeilingsTest, TellsThatTheyAreBeingMeasured) {
  EXPECT_FALSE(MeasuresCeilings());
  bool told = true;
  ASSERT_TRUE(CeilingsOfThisProcess(1, [&told] {
                told = told && MeasuresCeilings();
                return false;
              }).has_value());
  EXPECT_TRUE(told);
  EXPECT_FALSE(MeasuresCeilings());
}

TEST(MachineCeilingsTest, CanBeGivenUpAtAnyMoment) {
  for (int patience = 0; patience < 10; ++patience) {
    int asked = 0;
    auto impatient = [&] { return ++asked > patience; };
    EXPECT_FALSE(CeilingsOfThisProcess(3, impatient).has_value()) << patience;
    EXPECT_EQ(asked, patience + 1);
  }
  EXPECT_TRUE(CeilingsOfThisProcess(3, never).has_value());
}

}  // namespace
}  // namespace lm

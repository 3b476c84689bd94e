#include "engine/model/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lm {
namespace {

// "device:first-end ...", or the error.
std::string Plan(absl::string_view devices, int64_t layers) {
  const auto plan = PlanDevices(devices, layers);
  if (!plan.ok()) return std::string(plan.status().message());
  return absl::StrJoin(*plan, " ", [](std::string* out, const DeviceLayers& run) {
    absl::StrAppend(out, run.device, ":", run.first, "-", run.end);
  });
}

TEST(DevicePlanTest, SharesTheLayers) {
  EXPECT_EQ(Plan("cpu", 5), "cpu:0-5");
  EXPECT_EQ(Plan("cuda:0,cuda:1", 8), "cuda:0:0-4 cuda:1:4-8");
  EXPECT_EQ(Plan("a,b,c", 8), "a:0-3 b:3-6 c:6-8");
  EXPECT_EQ(Plan("cuda:0=20,cpu", 32), "cuda:0:0-20 cpu:20-32");
  EXPECT_EQ(Plan("a=1,b,c=2,d", 9), "a:0-1 b:1-4 c:4-6 d:6-9");
  EXPECT_EQ(Plan("a=3,b=4", 7), "a:0-3 b:3-7");
  EXPECT_EQ(Plan("a+b", 7), "a+b:0-7");
  EXPECT_EQ(Plan("a+b=3,c", 7), "a+b:0-3 c:3-7");
}

TEST(DevicePlanTest, KeysAndValuesAreOfTheTypeThatSuitsItsDevices) {
  auto type = [](absl::string_view devices, std::optional<DType> asked) {
    return KvTypeOn(PlanDevices(devices, 8).value(), asked);
  };
  EXPECT_EQ(type("cpu", std::nullopt).value(), DType::kI16);
  EXPECT_EQ(type("cpu+cpu,reference", std::nullopt).value(), DType::kI16);
  EXPECT_EQ(type("cpu=7,cuda", std::nullopt).value(), DType::kF16);
  EXPECT_EQ(type("cuda:0+cuda:1", std::nullopt).value(), DType::kF16);
  EXPECT_EQ(type("cpu", DType::kI8).value(), DType::kI8);
  EXPECT_EQ(type("cuda:1", DType::kI8).value(), DType::kI8);
  EXPECT_EQ(type("cpu", DType::kI16).value(), DType::kI16);
  const auto refused = type("cpu,cuda:1", DType::kI16);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("cuda:1"));
}

TEST(DevicePlanTest, KnowsWhetherAGpuHasAPart) {
  auto has_gpu = [](absl::string_view devices) { return HasGpu(PlanDevices(devices, 8).value()); };
  EXPECT_FALSE(has_gpu("cpu"));
  EXPECT_FALSE(has_gpu("cpu+cpu,reference"));
  EXPECT_TRUE(has_gpu("cuda"));
  EXPECT_TRUE(has_gpu("cpu=7,cuda:3"));
  EXPECT_TRUE(has_gpu("cuda:0+cuda:1"));
}

TEST(DevicePlanTest, AutoFindsADevice) {
  const auto plan = PlanDevices("auto", 4);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->size(), 1u);
  EXPECT_EQ((*plan)[0].first, 0);
  EXPECT_EQ((*plan)[0].end, 4);
  EXPECT_THAT((*plan)[0].device, testing::AnyOf("cpu", testing::StartsWith("cuda:")));
}

TEST(DevicePlanTest, RefusesWhatDoesNotComeOut) {
  EXPECT_EQ(Plan("a=20,b=13", 32),
            "device \"a=20,b=13\": the model has 32 layers, 33 are given to devices");
  EXPECT_EQ(Plan("a=20,b=10", 32),
            "device \"a=20,b=10\": the model has 32 layers, 30 are given to devices");
  EXPECT_EQ(
      Plan("a=32,cpu", 32),
      "device \"a=32,cpu\": the model has 32 layers, 32 are given to devices, and 1 want some "
      "of the rest");
  EXPECT_EQ(Plan("a,b,c", 2),
            "device \"a,b,c\": the model has 2 layers, 0 are given to devices, and 3 want some of "
            "the rest");
  for (const char* count : {"0", "-1", "33", "x", "", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(Plan(absl::StrCat("a=", count, ",b"), 32),
              absl::StrCat("device \"a=", count, ",b\": the layers of a must be 1 to 32, got '",
                           count, "'"));
  }
  for (const char* text : {"", ",cpu", "cpu,", "=3,cpu", "cpu,,cpu"}) {
    EXPECT_EQ(Plan(text, 4), absl::StrCat("device \"", text, "\": a device has no name"));
  }
}

}  // namespace
}  // namespace lm

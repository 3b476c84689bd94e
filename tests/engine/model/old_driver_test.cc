// A machine whose driver is too old for the build: this program has libcuda.so.1 of old_driver.cc.
#include <gmock/gmock.h>

#include <string>

#include "engine/backend/registry.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

TEST(OldDriverTest, AutoSaysWhyItIsTheCpu) {
  EXPECT_TRUE(HasNvidiaDriver());
  const auto model = SmallModel().Load({.device = "auto", .kv_bytes = 1 << 20});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().device, "cpu");
  EXPECT_THAT((*model)->info().device_reason,
              HasSubstr("(CUDA error 35); the NVIDIA driver is older than this build's CUDA"));
}

}  // namespace
}  // namespace lm

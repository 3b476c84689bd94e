#include "engine/backend/registry.h"

#include <gmock/gmock.h>

namespace lm {
namespace {

using ::testing::HasSubstr;

TEST(RegistryTest, CreatesEveryAvailableBackendUnderItsName) {
  for (const BackendOptions& options : AvailableBackends()) {
    auto backend = CreateBackend(options);
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ(backend.value()->name(), options.device);
  }
}

TEST(RegistryTest, ThereIsAlwaysACpu) { EXPECT_TRUE(CreateBackend({}).ok()); }

TEST(RegistryTest, RefusesUnknownNames) {
  for (const char* name : {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda: 1", "cpu\n"}) {
    absl::Status status = CreateBackend({.device = name}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a device must be"));
  }
}

TEST(RegistryTest, SeveralDevicesAreOne) {
  const auto backend = CreateBackend({.device = "cpu+cpu+cpu"});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ(backend.value()->name(), "cpu+cpu+cpu");
}

TEST(RegistryTest, SeveralDevicesMustBeOfAKind) {
  for (const char* name : {"cpu+", "+cpu", "cpu+reference", "cuda:0+cpu", "cpu++cpu"}) {
    const absl::Status status = CreateBackend({.device = name}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be of a kind, got '"));
  }
  EXPECT_THAT(std::string(CreateBackend({.device = "gpu+gpu"}).status().message()),
              HasSubstr("a device must be"));
}

TEST(RegistryTest, AnAbsentGpuSaysWhy) {
  absl::Status status = CreateBackend({.device = "cuda:99"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA"));
}

}  // namespace
}  // namespace lm

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "engine/remote/remote_server.h"

namespace lm {
namespace {

TEST(RemoteRequestTest, AServerMayThinkInSilenceAsLongAsItsTimeoutSays) {
  for (const int64_t ms : {1, 20'000, 300'000, 330'000, 3'600'000, 86'400'000}) {
    RemoteOptions options;
    options.timeout_ms = ms;
    const HttpRequest request = RemoteRequest("http://host/v1", {"A: b"}, options);
    EXPECT_EQ(request.timeout, absl::Milliseconds(ms));
    EXPECT_GE(request.silence, request.timeout);
    // A batch's files take longer than any request: their pauses need not be shorter for that.
    EXPECT_GE(request.silence, HttpRequest().silence);
    EXPECT_EQ(request.url, "http://host/v1");
    EXPECT_EQ(request.headers, std::vector<std::string>{"A: b"});
  }
}

TEST(RemoteRequestTest, OpenAisOwnServersAreKnownByTheirHosts) {
  EXPECT_TRUE(AreOpenAis({"https://api.openai.com/v1"}));
  EXPECT_TRUE(
      AreOpenAis({"https://API.OpenAI.com:443/v1", "https://mine.openai.azure.com/openai/v1"}));
  EXPECT_FALSE(AreOpenAis({"https://api.openai.com/v1", "http://localhost:8000/v1"}));
  EXPECT_FALSE(AreOpenAis({"https://api.openai.com.example/v1"}));
  EXPECT_FALSE(AreOpenAis({"https://openrouter.ai/api.openai.com/v1"}));
}

TEST(RemoteRequestTest, OnlyWhatIsRefusedAndCanBeSparedIsLeftOut) {
  const LeftOut none, seed{.seed = true}, both{.seed = true, .stream_options = true};
  EXPECT_EQ(WithRefused(none, 400, "Extra inputs are not permitted: seed"), seed);
  EXPECT_EQ(WithRefused(seed, 422, "Unknown parameter 'stream_options'"), both);
  EXPECT_EQ(WithRefused(none, 500, "Extra inputs are not permitted: seed"), none);
  EXPECT_EQ(WithRefused(none, 400, "seed must be an integer"), none);
  EXPECT_EQ(WithRefused(none, 400, "Seed-OSS does not support tools"), none);
  EXPECT_EQ(WithRefused(none, 400, "Extra inputs are not permitted: top_k"), none);
}

}  // namespace
}  // namespace lm

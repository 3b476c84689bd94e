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

}  // namespace
}  // namespace lm

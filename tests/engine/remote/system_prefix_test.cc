#include <gtest/gtest.h>

#include "engine/remote/chat_request.h"

namespace lm {
namespace {

constexpr char kBrief[] =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"a"}])";

TEST(SystemPrefixTest, IsThatOfTheSystemPromptAlone) {
  EXPECT_EQ(
      SystemPrefix(kBrief),
      SystemPrefix(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"b"}])"));
  EXPECT_NE(
      SystemPrefix(kBrief),
      SystemPrefix(R"([{"role":"system","content":"Be long."},{"role":"user","content":"a"}])"));
  EXPECT_EQ(SystemPrefix(R"([{"role":"user","content":"a"}])"), 0);
}

// A gateway between several processes and their servers must hear the same from all of them.
TEST(SystemPrefixTest, IsTheSameInEveryProcess) {
  EXPECT_EQ(SystemPrefix(kBrief), 8670085142353394859u);
}

}  // namespace
}  // namespace lm

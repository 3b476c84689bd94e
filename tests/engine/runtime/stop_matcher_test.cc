#include "engine/runtime/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace lm {
namespace {

TEST(StopMatcherTest, HoldsBackWhatMayBeAStopString) {
  StopMatcher matcher({"END"});
  std::string out;
  EXPECT_FALSE(matcher.Append("abcE", &out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(matcher.Append("N", &out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(matcher.Append("EN", &out));
  EXPECT_EQ(out, "abcEN");
  EXPECT_TRUE(matcher.Append("D and more", &out));
  EXPECT_EQ(out, "abcEN");
}

TEST(StopMatcherTest, FlushReleasesTheRest) {
  StopMatcher matcher({"END"});
  std::string out;
  EXPECT_FALSE(matcher.Append("xEN", &out));
  matcher.Flush(&out);
  EXPECT_EQ(out, "xEN");
}

TEST(StopMatcherTest, OfSeveralTheFirstToCompleteCounts) {
  StopMatcher matcher({"abcd", "bc"});
  std::string out;
  EXPECT_TRUE(matcher.Append("xabcd", &out));
  EXPECT_EQ(out, "xa");
  StopMatcher same_end({"d", "bcd"});
  out.clear();
  EXPECT_TRUE(same_end.Append("abcd", &out));
  EXPECT_EQ(out, "a");
}

TEST(StopMatcherTest, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher({});
  std::string out;
  EXPECT_FALSE(matcher.Append("abc", &out));
  EXPECT_EQ(out, "abc");
}

TEST(StopMatcherTest, AgreesWithFindHoweverTheTextIsCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 30, ' ');
    for (char& c : text) c = "ab"[random() % 2];
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      stop.resize(1 + random() % 5);
      for (char& c : stop) c = "ab"[random() % 2];
    }
    // The first end of any stop string; there, the longest one.
    std::string expected = text;
    bool stopped = false;
    for (size_t end = 1; end <= text.size() && !stopped; ++end) {
      for (const std::string& stop : stops) {
        if (end < stop.size() || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
        const std::string before = text.substr(0, end - stop.size());
        if (!stopped || before.size() < expected.size()) expected = before;
        stopped = true;
      }
    }
    StopMatcher matcher(stops);
    std::string out;
    bool matched = false;
    for (size_t at = 0; at < text.size() && !matched;) {
      const size_t piece = 1 + random() % 4;
      matched = matcher.Append(text.substr(at, piece), &out);
      EXPECT_EQ(out, text.substr(0, out.size()));
      at += piece;
    }
    if (!matched) matcher.Flush(&out);
    ASSERT_EQ(matched, stopped);
    ASSERT_EQ(matcher.matched(), stopped);
    ASSERT_EQ(out, expected) << text;
  }
}

}  // namespace
}  // namespace lm

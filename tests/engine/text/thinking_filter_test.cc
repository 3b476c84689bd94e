#include "engine/text/thinking_filter.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

// The answer of a text that comes in pieces of `size` bytes.
std::string Filter(const std::string& text, size_t size, bool inside) {
  ThinkingFilter filter(inside);
  std::string answer;
  for (size_t at = 0; at < text.size(); at += size) answer += filter.Append(text.substr(at, size));
  return answer + filter.Finish();
}

TEST(ThinkingFilterTest, TakesOutTheReasoningHoweverItIsCut) {
  struct Case {
    std::string text;
    bool inside;
    std::string answer;
  };
  const Case cases[] = {
      {"<think>\nwell, <b>\n</think>\n\nYes.", false, "Yes."},
      {"\n <think></think>Yes. ", false, "Yes. "},
      {"well</think>\n Yes.</think>", true, "Yes.</think>"},
      {"<think>never ends", false, ""},
      {"never ends", true, ""},
      {"almost </thin </think> \n", true, ""},
      {"<think>a</think>b<think>c</think>", false, "b<think>c</think>"},
      {"  plain, with <think> in it", false, "  plain, with <think> in it"},
      {"<thin", false, "<thin"},
      {"<thinker", false, "<thinker"},
      {" \n", false, " \n"},
      {"", false, ""},
      {"", true, ""},
  };
  for (const Case& c : cases) {
    for (size_t size : {1, 2, 3, 7, 100}) {
      EXPECT_EQ(Filter(c.text, size, c.inside), c.answer) << c.text << " by " << size;
    }
  }
}

TEST(ThinkingFilterTest, WhatIsCertainComesAtOnce) {
  ThinkingFilter filter(false);
  EXPECT_EQ(filter.Append("<"), "");
  EXPECT_EQ(filter.Append("b>"), "<b>");
  EXPECT_EQ(filter.Append("<think>"), "<think>");
}

TEST(ThinkingFilterTest, SeesWherePromptsBeginIt) {
  EXPECT_TRUE(BeginsThinking("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(BeginsThinking("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(BeginsThinking("assistant\n"));
}

}  // namespace
}  // namespace lm

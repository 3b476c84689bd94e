#include "engine/text/chat/thinking_filter.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lm {
namespace {

// The answer of a text that comes in pieces of `size` bytes.
std::string Filter(const std::string& text, size_t size, bool inside) {
  ThinkingFilter filter(ThinkingMarks::Usual(), inside ? "assistant\n<think>\n" : "assistant\n");
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
      {"[THINK]so[/THINK]Yes.", false, "Yes."},
      {"[THIN", false, "[THIN"},
      {"[1, 2]", false, "[1, 2]"},
      {"<seed:think>so</seed:think>Yes.", false, "Yes."},
      {"<|START_THINKING|>so<|END_THINKING|>Yes.", false, "Yes."},
      {"<|inner_prefix|>so<|inner_suffix|>Yes.", false, "Yes."},
      {"<|channel>thought\nso<channel|>Yes.", false, "Yes."},
      {"<|channel>other", false, "<|channel>other"},
      {"<|channel|>analysis<|message|>so<|channel|>final<|message|>Yes.", false, "Yes."},
      {"<|channel|>analysis<|message|>so<|channel|>commentary<|message|>and"
       "<|channel|>final<|message|>Yes.",
       false, "Yes."},
      {"<|channel|>final<|message|>Yes.", false, "Yes."},
      {"<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", false, "{\"a\": 1}"},
      {"<|channel|>final<|constrain|>json<|message|> Yes.", false, "Yes."},
      {"<|channel|>final json<|message|>Yes.", false, "Yes."},
      {"<|channel|>analysis<|message|>so<|end|><|start|>assistant"
       "<|channel|>final <|constrain|>json<|message|>{}",
       false, "{}"},
      {"<|channel|>analysis<|message|><|channel|>final<|end|>no<|message|>"
       "<|channel|>final <|channel|>final<|message|>Yes.",
       false, "Yes."},
      {"<|start|>assistant<|channel|>analysis<|message|>so<|end|><|start|>assistant"
       "<|channel|>final<|message|>Yes.",
       false, "Yes."},
      {"<|channel|>final" + std::string(300, ' ') + "<|message|>no<|channel|>final<|message|>Yes.",
       false, "Yes."},
      {"<|channel|>final <|constrain|>never", false, ""},
      {"<|start|>assistant", false, "<|start|>assistant"},
      {"<|start|>user", false, "<|start|>user"},
      {"<|channel|>fin", false, "<|channel|>fin"},
      {"<|channel|>analysis<|message|>never ends", false, ""},
  };
  for (const Case& c : cases) {
    for (size_t size : {1, 2, 3, 7, 100}) {
      EXPECT_EQ(Filter(c.text, size, c.inside), c.answer) << c.text << " by " << size;
    }
  }
}

TEST(ThinkingFilterTest, AMarkMayEndWhatNobodyHasBegun) {
  const std::pair<const char*, const char*> kAnswers[] = {
      {"Okay.\n</think>\n\nParis", "Paris"},
      {"Okay.[/THINK]Paris", "Paris"},
      {"a</think>b</think>c", "b</think>c"},
      {"a</think>", ""},
      {"Paris", "Paris"},
      {"", ""},
      {"<think>a</think>Paris", "<think>a</think>Paris"},  // the filter's
      {"between <think> and </think>", "between <think> and </think>"},
      {"it ends with '</think>'", "it ends with '</think>'"},
      {"with '</think>'\n</think>\nParis", "Paris"},
  };
  for (const auto& [all, answer] : kAnswers)
    EXPECT_EQ(BehindLoneMark(*ThinkingMarks::Usual(), all), answer) << all;
}

TEST(ThinkingFilterTest, WhatIsCertainComesAtOnce) {
  ThinkingFilter filter(ThinkingMarks::Usual(), "");
  EXPECT_EQ(filter.Append("<"), "");
  EXPECT_EQ(filter.Append("b>"), "<b>");
  EXPECT_EQ(filter.Append("<think>"), "<think>");
}

TEST(ThinkingFilterTest, SeesWhereTemplatesBeginIt) {
  auto answer = [](const std::string& template_end, const std::string& text) {
    ThinkingFilter filter(ThinkingMarks::Usual(), template_end);
    const std::string certain = filter.Append(text);
    return certain + filter.Finish();
  };
  EXPECT_EQ(answer("<|im_start|>assistant\n<think>\n", "so</think>Yes."), "Yes.");
  EXPECT_EQ(answer("[THINK]", "so[/THINK]Yes."), "Yes.");
  EXPECT_EQ(answer("<|channel>thought\n", "so<channel|>Yes."), "Yes.");
  EXPECT_EQ(answer("<think>\n\n</think>\n\n", "so</think>Yes."), "so</think>Yes.");
  EXPECT_EQ(answer("<|start|>assistant", "Yes."), "Yes.");
  EXPECT_EQ(answer("<|start|>assistant<|channel|>", "final <|constrain|>json<|message|>{}"), "{}");
  EXPECT_EQ(answer("<|start|>assistant<|channel|>final", "<|message|>Yes."), "Yes.");
}

TEST(ThinkingFilterTest, ControlTokensWithinTheAnswerAreNoText) {
  using Pieces = std::vector<std::string>;
  auto filtered = [](const Pieces& pieces) {
    ThinkingFilter filter(ThinkingMarks::Usual(), "");
    std::string answer;
    for (const std::string& piece : pieces)
      answer += filter.Append(piece, ThinkingMarks::Usual()->IsMark(piece));
    return answer + filter.Finish();
  };
  EXPECT_EQ(filtered({"<|channel|>", "final", "<|message|>", "Yes", "<|channel|>", "."}), "Yes.");
  const Pieces constrained = {"<|channel|>",   "analysis",  "<|message|>", "so",    "<|end|>",
                              "<|start|>",     "assistant", "<|channel|>", "final", " ",
                              "<|constrain|>", "json",      "<|message|>", "{",     "}",
                              "<|end|>"};
  EXPECT_EQ(filtered(constrained), "{}");
  EXPECT_EQ(filtered({"<|end|>", " Yes", "<|start|>", "."}), " Yes.");
  EXPECT_FALSE(ThinkingMarks::Usual()->IsMark("final"));
}

}  // namespace
}  // namespace lm

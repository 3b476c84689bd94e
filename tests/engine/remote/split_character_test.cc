#include "engine/remote/split_character.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(SplitCharacterTest, HalvesThatCameInTwoEventsAreOneCharacter) {
  SplitCharacter split;
  EXPECT_EQ(split.Join(R"({"a":"x\ud83d","b":"\uD83D"})"), R"({"a":"x","b":""})");
  EXPECT_EQ(split.Join(R"({"a":"\ude00\ud83c","b":"\uDE00 y"})"),
            R"({"a":"\uD83D\ude00","b":"\uD83D\uDE00 y"})");
  EXPECT_EQ(split.Join(R"({"a":"\udf0d"})"), R"({"a":"\ud83c\udf0d"})");
}

TEST(SplitCharacterTest, WhatIsNoHalfStaysAsItIs) {
  SplitCharacter split;
  for (const char* text : {R"({"a":"\ud83d\ude00"})", R"({"a":"\\ud83d"})", R"({"a":"\ud83d x"})",
                           R"({"a":"\ude00"})", R"({"a":"x \ude00"})", R"({"a":"\u00e9\n\")", "\\",
                           "\\ud83d", "\\u", ""}) {
    EXPECT_EQ(split.Join(text), text);
  }
}

}  // namespace
}  // namespace lm

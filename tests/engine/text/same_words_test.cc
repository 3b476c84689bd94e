#include "engine/text/same_words.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(SameWordsTest, CaseSpacesAndWhatStandsAroundSayNothing) {
  for (const char* text : {"paris", "Paris", " Paris.\n", "**Paris**", "\"PARIS!\" "}) {
    EXPECT_EQ(WordsOf(text), "paris") << text;
  }
  EXPECT_EQ(WordsOf("It is\n\n Élan  vital."), "it is élan vital");
  EXPECT_EQ(WordsOf("ÄRGER!"), WordsOf("ärger"));
}

TEST(SameWordsTest, WhatIsWithinSaysSomething) {
  EXPECT_NE(WordsOf("3.5"), WordsOf("35"));
  EXPECT_NE(WordsOf("a b"), WordsOf("ab"));
  EXPECT_NE(WordsOf("no, yes"), WordsOf("no yes"));
  EXPECT_NE(WordsOf("-5"), WordsOf("5"));
  EXPECT_EQ(WordsOf("- five"), WordsOf("five"));
}

TEST(SameWordsTest, ATextWithoutWordsIsItself) {
  EXPECT_EQ(WordsOf(" +  ! "), "+ !");
  EXPECT_NE(WordsOf("👍"), WordsOf("👎"));
  EXPECT_EQ(WordsOf(""), "");
  EXPECT_EQ(WordsOf(" \t"), "");
}

}  // namespace
}  // namespace lm

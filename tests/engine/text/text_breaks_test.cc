#include "engine/text/text_breaks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"

namespace lm {
namespace {

// A text with '|' at the places where something of kind `least` or stronger ends, the end of the
// text left out.
std::string Cut(const std::string& text, TextBreak least) {
  std::string marked;
  for (size_t at = 0; at < text.size(); ++at) {
    bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (at > 0 && begins && BreakAt(text, at) >= least) marked += '|';
    marked += text[at];
  }
  return marked;
}

void ExpectSentences(const std::string& marked) {
  EXPECT_EQ(Cut(absl::StrReplaceAll(marked, {{"|", ""}}), TextBreak::kSentence), marked);
}

TEST(TextBreaksTest, FindsSentences) {
  ExpectSentences("It rained. |We went in! |Why? |Nobody knows… |So it goes.");
  ExpectSentences("\"Come in.\" |She did (at last).  |Then silence.");
  ExpectSentences("One.\n|Two.\t|Three");
  ExpectSentences("«Oui.» |«Non!» |Fin.");
  ExpectSentences("今日は雨です。|明日は？|「はい。」|終わり");
}

TEST(TextBreaksTest, StopsThatEndNoSentence) {
  ExpectSentences("Version 3.14 of e.g. foo.bar and J. R. Smith.");
  ExpectSentences("see fig. two and so on");
  ExpectSentences("Buy:\n1. Eggs\n 12. Milk\nin 1999. |Then");
  ExpectSentences("...");
  ExpectSentences(". a");
}

TEST(TextBreaksTest, AbbreviationsEndNoSentence) {
  ExpectSentences("Mr. Smith met Dr. and Mrs. Jones at St. Mary's. |They left.");
  ExpectSentences("Prof. É. Zola and M. Curie et al. Came. |Nobody else.");
  ExpectSentences(
      "See No. 5 and Figs. 2 and 3, Vol. 1, pp. 7 and 8. |No. |I said no. |No. 6 is next.");
  ExpectSentences(
      "It is cats vs. Dogs, cf. Jones. |On Jan. 3 it froze. |He left in Jan. |We stayed.");
  ExpectSentences("Das sind Hr. Müller bzw. Frl. Oe. |Na gut.");
  ExpectSentences("They work at 5 p.m. today, i.e. Now.");
  ExpectSentences("The U.S. Army has J.R.R. Tolkien.");
  ExpectSentences("At the firm. |Firm. |Confirm. |Amr. |Then.");  // no abbreviations
}

TEST(TextBreaksTest, WhatGoesOnIsNoEnd) {
  ExpectSentences("\"Why?\" he asked. |\"So!\" – and he left. |Etc. (and so on) etc. |Then");
  ExpectSentences("Он пришёл. |Она ушла и т. д. и т. п. \"так\" и есть.");
  ExpectSentences("c'est l'art. état d'art. |École.");
  ExpectSentences("Really?! (yes) (Nope.) |3 men came. |It isn't. |It’s Mary's. |Then");
}

TEST(TextBreaksTest, OtherScriptsHaveTheirOwnMarks) {
  ExpectSentences("वह आया। |वह गया॥ |फिर");
  ExpectSentences("هل هذا؟ |نعم۔ |ثم");
  ExpectSentences("Այո։ |Ոչ։ |Վերջ");
  ExpectSentences("አዎ። |የለም፧ |እሺ");
}

TEST(TextBreaksTest, FindsParagraphsLinesAndWords) {
  EXPECT_EQ(Cut("A title\n\nBody, first\nline.\r\n \r\nEnd", TextBreak::kParagraph),
            "A title\n\n|Body, first\nline.\r\n \r\n|End");
  EXPECT_EQ(BreakAt("one\ntwo", 4), TextBreak::kLine);
  EXPECT_EQ(BreakAt("one  two", 5), TextBreak::kWord);
  EXPECT_EQ(BreakAt("one  two", 4), TextBreak::kInside);  // the space stays with the word before
  EXPECT_EQ(BreakAt("one", 1), TextBreak::kInside);
  EXPECT_EQ(BreakAt("one", 3), TextBreak::kParagraph);
}

}  // namespace
}  // namespace lm

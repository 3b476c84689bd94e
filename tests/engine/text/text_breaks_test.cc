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

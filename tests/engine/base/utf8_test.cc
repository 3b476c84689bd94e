#include "engine/base/utf8.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(Utf8Test, FindsTheFirstBadByte) {
  EXPECT_EQ(ValidUtf8Prefix("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 10u);
  EXPECT_EQ(ValidUtf8Prefix("ab\xff"), 2u);
  EXPECT_EQ(ValidUtf8Prefix("\xc0\x80"), 0u);          // overlong
  EXPECT_EQ(ValidUtf8Prefix("\xed\xa0\x80"), 0u);      // surrogate
  EXPECT_EQ(ValidUtf8Prefix("\xf4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(ValidUtf8Prefix("x\xe2\x82"), 1u);         // cut short
  for (size_t bad = 0; bad < 40; ++bad) {
    std::string text(40, 'x');
    text[bad] = '\x80';
    EXPECT_EQ(ValidUtf8Prefix(text), bad);
    EXPECT_EQ(ValidUtf8Prefix(text.substr(0, bad)), bad);
  }
}

TEST(Utf8Test, EveryScalarValueSurvivesTheRoundTrip) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    AppendUtf8(c, &text);
    size_t pos = 0;
    ASSERT_EQ(DecodeUtf8(text, &pos), c);
    ASSERT_EQ(pos, text.size());
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
    ASSERT_EQ(IncompleteUtf8Suffix(text), 0u);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(IncompleteUtf8Suffix(text.substr(0, cut)), cut);
    }
  }
}

TEST(Utf8Test, BytesThatCannotBecomeACharacterAreNotWaitedFor) {
  EXPECT_EQ(IncompleteUtf8Suffix("a\xff"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("\xe2\x28"), 0u);
}

}  // namespace
}  // namespace lm

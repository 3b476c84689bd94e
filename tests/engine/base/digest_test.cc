#include "engine/base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lm {
namespace {

TEST(DigestTest, IsTheSameForEver) {
  EXPECT_EQ(DigestOf("").Hex(), DigestOf("").Hex());
  EXPECT_EQ(DigestOf("").Hex().size(), 32u);
  EXPECT_EQ(DigestOf("sqlite-lm").Hex(), "b242884bab3c75124ebba514308ae2dd");
}

TEST(DigestTest, EveryBitAndEveryLengthMatters) {
  std::set<std::string> seen;
  std::string text(100, '\0');
  size_t count = 0;
  for (size_t size = 0; size <= text.size(); ++size, ++count) {
    seen.insert(DigestOf(absl::string_view(text).substr(0, size)).Hex());
  }
  for (size_t bit = 0; bit < 8 * text.size(); ++bit, ++count) {
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
    seen.insert(DigestOf(text).Hex());
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  for (uint64_t seed = 1; seed < 100; ++seed, ++count) seen.insert(DigestOf(text, seed).Hex());
  EXPECT_EQ(seen.size(), count);
}

TEST(DigestTest, PiecesHaveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(7 * i);
  for (const size_t size : {0, 31, 32, 64, 100, 300}) {
    const absl::string_view whole = absl::string_view(text).substr(0, size);
    Digester digester(5);
    size_t at = 0;
    for (; size - at > 64; at += 64) digester.Add(whole.substr(at, 64));
    digester.Add(whole.substr(at));
    EXPECT_EQ(digester.Finish(), DigestOf(whole, 5)) << size;
  }
}

TEST(DigestTest, AChangedBitChangesHalfOfTheDigest) {
  std::string text(64, 'x');
  const Digest before = DigestOf(text);
  int changed = 0;
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const Digest after = DigestOf(text);
    changed += __builtin_popcountll(before.high ^ after.high) +
               __builtin_popcountll(before.low ^ after.low);
    text[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  EXPECT_NEAR(changed / (8.0 * text.size()), 64, 4);
}

}  // namespace
}  // namespace lm

#include "engine/grammar/code_point_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "engine/base/utf8.h"
#include "engine/grammar/utf8_ranges.h"

namespace lm {
namespace {

using Range = CodePointSet::Range;

TEST(CodePointSetTest, JoinsWhatTouches) {
  CodePointSet set;
  set.Add('d', 'f');
  set.Add('a', 'b');
  set.Add('c');
  set.Add('x', 'z');
  EXPECT_THAT(set.ranges(), testing::ElementsAre(Range{'a', 'f'}, Range{'x', 'z'}));
}

TEST(CodePointSetTest, HoldsOnlyCharacters) {
  EXPECT_THAT(CodePointSet::Of(0, 0xffffffff).ranges(),
              testing::ElementsAre(Range{1, 0xd7ff}, Range{0xe000, 0x10ffff}));
  EXPECT_TRUE(CodePointSet::Of(0xd800, 0xdfff).empty());
  EXPECT_TRUE(CodePointSet::All().Complement().empty());
  EXPECT_EQ(CodePointSet().Complement().ranges(), CodePointSet::All().ranges());
}

TEST(CodePointSetTest, AgreesWithAStdSet) {
  std::mt19937 dice(1);
  for (int round = 0; round < 300; ++round) {
    CodePointSet a, b;
    std::set<uint32_t> in_a, in_b;
    auto fill = [&dice](CodePointSet* set, std::set<uint32_t>* plain) {
      for (int n = dice() % 6; n > 0; --n) {
        const uint32_t low = 1 + dice() % 60, high = low + dice() % 8;
        set->Add(low, high);
        for (uint32_t c = low; c <= high; ++c) plain->insert(c);
      }
    };
    fill(&a, &in_a);
    fill(&b, &in_b);
    const CodePointSet both = a.Intersect(b), minus = a.Minus(b), rest = a.Complement();
    for (uint32_t c = 1; c < 80; ++c) {
      ASSERT_EQ(a.Contains(c), in_a.count(c) == 1);
      ASSERT_EQ(both.Contains(c), in_a.count(c) == 1 && in_b.count(c) == 1);
      ASSERT_EQ(minus.Contains(c), in_a.count(c) == 1 && in_b.count(c) == 0);
      ASSERT_EQ(rest.Contains(c), in_a.count(c) == 0);
    }
  }
}

bool MatchesOne(const std::vector<Utf8Sequence>& sequences, const std::string& bytes) {
  int matches = 0;
  for (const Utf8Sequence& sequence : sequences) {
    bool fits = sequence.length == static_cast<int>(bytes.size());
    for (int i = 0; fits && i < sequence.length; ++i) {
      const uint8_t byte = static_cast<uint8_t>(bytes[i]);
      fits = sequence.bytes[i].low <= byte && byte <= sequence.bytes[i].high;
    }
    matches += fits;
  }
  EXPECT_LE(matches, 1);
  return matches == 1;
}

TEST(Utf8RangesTest, MatchExactlyTheCharactersOfARange) {
  std::mt19937 dice(2);
  const std::vector<uint32_t> edges = {1,      0x7f,   0x80,   0x7ff,   0x800,   0xfff,   0x1000,
                                       0xd7ff, 0xe000, 0xffff, 0x10000, 0x3ffff, 0x40000, 0x10ffff};
  for (int round = 0; round < 400; ++round) {
    auto pick = [&] {
      uint32_t c = edges[dice() % edges.size()] + dice() % 5 - 2;
      if (dice() % 3 == 0) c = dice() % 0x110000;
      return std::min(std::max(c, 1u), 0x10ffffu);
    };
    uint32_t a = pick(), b = pick();
    const CodePointSet set = CodePointSet::Of(std::min(a, b), std::max(a, b));
    std::vector<Utf8Sequence> sequences;
    for (const Range& range : set.ranges()) {
      AppendUtf8Sequences(range.low, range.high, &sequences);
    }
    for (int n = 0; n < 200; ++n) {
      uint32_t c = pick();
      if (n < 4) c = std::min(std::max((n < 2 ? a : b) + n % 2 * 2 - 1, 1u), 0x10ffffu);
      if (c >= 0xd800 && c < 0xe000) continue;
      std::string bytes;
      AppendUtf8(c, &bytes);
      ASSERT_EQ(MatchesOne(sequences, bytes), set.Contains(c)) << a << " " << b << " " << c;
    }
  }
}

}  // namespace
}  // namespace lm

#include "engine/text/longest_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace lm {
namespace {

// Of so many characters at most.
absl::string_view OfCharacters(absl::string_view text, TextSide side, PartBounds bounds,
                               int64_t most, int* tries) {
  const auto part =
      LongestPart(text, side, bounds, [&](absl::string_view one) -> absl::StatusOr<bool> {
        ++*tries;
        return std::count_if(one.begin(), one.end(), [](char c) {
                 return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
               }) <= most;
      });
  EXPECT_TRUE(part.ok()) << part.status();
  return part.value_or("");
}

TEST(LongestPartTest, IsTheLongestWhateverTheGuess) {
  const std::string text = "aé漢🌧aé漢🌧aé漢🌧aé漢🌧";
  const std::string end = "🌧aé漢🌧";
  for (size_t guess = 0; guess <= text.size(); ++guess) {
    const PartBounds bounds = {.over = text.size(), .guess = guess};
    int tries = 0;
    EXPECT_EQ(OfCharacters(text, TextSide::kBegin, bounds, 5, &tries), "aé漢🌧a") << guess;
    EXPECT_EQ(OfCharacters(text, TextSide::kEnd, bounds, 5, &tries), end) << guess;
    EXPECT_EQ(OfCharacters(text, TextSide::kBegin, bounds, 15, &tries).size(), text.size() - 4);
    EXPECT_EQ(OfCharacters(text, TextSide::kEnd, bounds, 0, &tries), "");
  }
}

TEST(LongestPartTest, NeedsFewTries) {
  const std::string text(10'000'000, 'x');
  for (size_t guess : {1, 1000, 5'000'000, 9'999'999}) {
    for (size_t most : {0, 1, 999, 123'456, 9'999'999}) {
      int tries = 0;
      const PartBounds bounds = {.over = text.size(), .guess = guess};
      EXPECT_EQ(OfCharacters(text, TextSide::kEnd, bounds, most, &tries).size(), most);
      EXPECT_LT(tries, 60);
    }
  }
  int tries = 0;
  const PartBounds coarse = {.over = text.size(), .guess = 1000, .grain = 100};
  const size_t size = OfCharacters(text, TextSide::kBegin, coarse, 1900, &tries).size();
  EXPECT_TRUE(size > 1800 && size <= 1900) << size;
  EXPECT_LT(tries, 9);
}

// "house" is a token, "ho" two.
TEST(LongestPartTest, TakesAWordWholeThatHasFewerTokensThanItsBeginning) {
  auto fits = [](absl::string_view part) -> absl::StatusOr<bool> {
    return part.size() <= 7 || part == "an old house" || part == "house is old";
  };
  EXPECT_EQ(*LongestPart("an old house is", TextSide::kBegin, {.over = 15, .guess = 7}, fits),
            "an old house");
  EXPECT_EQ(*LongestPart("the house is old", TextSide::kEnd, {.over = 16, .guess = 7}, fits),
            "house is old");
}

TEST(LongestPartTest, PartsAreWholeCharacters) {
  EXPECT_EQ(PartAt(TextSide::kBegin, "a漢b", 3), "a");
  EXPECT_EQ(PartAt(TextSide::kEnd, "a漢b", 3), "b");
  EXPECT_EQ(PartAt(TextSide::kEnd, "a漢b", 4), "漢b");
  EXPECT_EQ(PartAt(TextSide::kBegin, "a漢b", 9), "a漢b");
}

}  // namespace
}  // namespace lm

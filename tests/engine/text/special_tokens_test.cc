#include "engine/text/special_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/base/checkpoint.h"

namespace lm {
namespace {

struct Found {
  size_t begin;
  size_t end;
  int32_t id;
  bool operator==(const Found& other) const {
    return begin == other.begin && end == other.end && id == other.id;
  }
};

std::vector<Found> Find(const SpecialTokens& tokens, const std::string& text,
                        const std::vector<SpecialTokens::Range>& markup) {
  std::vector<Found> found;
  for (const auto& match : tokens.Find(text, markup)) {
    found.push_back({match.begin, match.end, match.id});
  }
  return found;
}

// The definition, for a text that is all markup or all plain: token by token, the longest first,
// each at every place that is still free, from left to right. No two names of equal length here
// can overlap differently, as they are tried together.
std::vector<Found> FindSlowly(const Vocabulary& vocabulary, const std::string& text, bool markup) {
  std::vector<int32_t> owner(text.size(), -1);
  std::vector<Found> found;
  for (size_t length = text.size(); length > 0; --length) {
    for (size_t begin = 0; begin + length <= text.size(); ++begin) {
      bool is_free = true;
      for (size_t i = begin; i < begin + length; ++i) is_free &= owner[i] < 0;
      if (!is_free) continue;
      for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        const bool control = vocabulary.types[id] == TokenType::kControl;
        const bool wanted = vocabulary.types[id] == TokenType::kUserDefined || (control && markup);
        if (!wanted || text.substr(begin, length) != vocabulary.tokens[id]) continue;
        found.push_back({begin, begin + length, static_cast<int32_t>(id)});
        for (size_t i = begin; i < begin + length; ++i) owner[i] = static_cast<int32_t>(id);
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.begin < b.begin; });
  return found;
}

TEST(SpecialTokensTest, FindsWhatTheDefinitionFinds) {
  std::mt19937 random(1);
  auto word = [&random](int longest) {
    std::string text;
    for (int i = random() % longest; i >= 0; --i) text.push_back("ab<>"[random() % 4]);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    Vocabulary vocabulary;
    for (int i = random() % 6; i >= 0; --i) {
      const std::string name = word(5);
      if (std::count(vocabulary.tokens.begin(), vocabulary.tokens.end(), name) > 0) continue;
      vocabulary.tokens.push_back(name);
      const TokenType kTypes[] = {TokenType::kNormal, TokenType::kControl, TokenType::kUserDefined};
      vocabulary.types.push_back(kTypes[random() % 3]);
    }
    const SpecialTokens tokens(vocabulary);
    const std::string text = word(24);
    ASSERT_EQ(Find(tokens, text, {}), FindSlowly(vocabulary, text, false)) << text;
    ASSERT_EQ(Find(tokens, text, {{0, text.size()}}), FindSlowly(vocabulary, text, true)) << text;
  }
}

// Names with a common beginning that the text has everywhere.
TEST(SpecialTokensTest, AByteCostsNoMoreThanTheLongestName) {
  constexpr int kNames = 250;
  for (const char* end : {"", "b"}) {
    Vocabulary vocabulary;
    std::string text;
    for (int i = 1; i <= kNames; ++i) {
      vocabulary.tokens.push_back(std::string(i, 'a') + end);
      vocabulary.types.push_back(TokenType::kUserDefined);
      text += std::string(i, 'a') + 'b';
    }
    text += std::string(20000, 'a');
    const SpecialTokens tokens(vocabulary);
    int64_t steps = 0;
    const SpecialTokens::Range all = {0, text.size()};
    EXPECT_GE(tokens.Find(text, {}, {&all, 1}, &steps).size(), size_t{kNames});
    EXPECT_GT(steps, 0);
    EXPECT_LE(steps, 3 * (kNames + 2) * static_cast<int64_t>(text.size()));
  }
}

TEST(SpecialTokensTest, StopsWhereItIsInterrupted) {
  Vocabulary vocabulary;
  vocabulary.tokens = {std::string(250, 'a') + 'b'};
  vocabulary.types = {TokenType::kUserDefined};
  const SpecialTokens tokens(vocabulary);
  const std::string text(2000000, 'a');
  bool interrupted = false;
  CheckpointScope scope([&interrupted] { return interrupted = true; });
  int64_t steps = 0;
  const SpecialTokens::Range all = {0, text.size()};
  tokens.Find(text, {}, {&all, 1}, &steps);
  EXPECT_TRUE(interrupted);
  EXPECT_LT(steps, static_cast<int64_t>(100 * text.size()));  // of 250 a byte
}

TEST(SpecialTokensTest, ControlTokensLieInsideOneStretchOfMarkup) {
  Vocabulary vocabulary;
  vocabulary.tokens = {"<end>", "x"};
  vocabulary.types = {TokenType::kControl, TokenType::kUserDefined};
  const SpecialTokens tokens(vocabulary);
  const std::string text = "x<end>x<end>";
  const std::vector<Found> both = {{0, 1, 1}, {1, 6, 0}, {6, 7, 1}, {7, 12, 0}};
  EXPECT_EQ(Find(tokens, text, {{0, 12}}), both);
  EXPECT_EQ(Find(tokens, text, {{1, 6}, {7, 12}}), both);
  EXPECT_EQ(Find(tokens, text, {{1, 5}, {6, 12}}),
            (std::vector<Found>{{0, 1, 1}, {6, 7, 1}, {7, 12, 0}}));
  EXPECT_EQ(Find(tokens, text, {}), (std::vector<Found>{{0, 1, 1}, {6, 7, 1}}));
}

TEST(SpecialTokensTest, WhatLooksLikeMarkupLiesInsideOneOpenStretch) {
  Vocabulary vocabulary;
  vocabulary.tokens = {"<end>", "<tool>", "x"};
  vocabulary.types = {TokenType::kControl, TokenType::kUserDefined, TokenType::kUserDefined};
  const SpecialTokens tokens(vocabulary);
  const std::string text = "<tool>x<end><tool>";
  auto find = [&](const std::vector<SpecialTokens::Range>& markup,
                  const std::vector<SpecialTokens::Range>& open) {
    std::vector<Found> found;
    for (const auto& match : tokens.Find(text, markup, open)) {
      found.push_back({match.begin, match.end, match.id});
    }
    return found;
  };
  EXPECT_EQ(find({{0, 18}}, {{0, 18}}),
            (std::vector<Found>{{0, 6, 1}, {6, 7, 2}, {7, 12, 0}, {12, 18, 1}}));
  EXPECT_EQ(find({{7, 12}}, {{7, 18}}), (std::vector<Found>{{6, 7, 2}, {7, 12, 0}, {12, 18, 1}}));
  EXPECT_EQ(find({}, {{0, 5}, {12, 18}}), (std::vector<Found>{{6, 7, 2}, {12, 18, 1}}));
  EXPECT_EQ(find({}, {}), (std::vector<Found>{{6, 7, 2}}));
}

}  // namespace
}  // namespace lm

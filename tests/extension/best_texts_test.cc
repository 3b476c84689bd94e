// The best of many texts, in an order that their number does not change.
#include "extension/questions/best_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> TextsOf(BestTexts best) {
  std::vector<std::string> texts;
  for (BestTexts::Scored& one : best.Take()) texts.push_back(std::move(one.text));
  return texts;
}

TEST(BestTextsTest, TheBestComeFirstAndOfEqualOnesTheEarlier) {
  BestTexts best(3);
  EXPECT_THAT(TextsOf(best), IsEmpty());
  best.Add(0.5, "a");
  best.Add(0.7, "b");
  EXPECT_THAT(TextsOf(best), ElementsAre("b", "a"));
  best.Add(0.5, "c");
  best.Add(0.5, "d");
  EXPECT_THAT(TextsOf(best), ElementsAre("b", "a", "c"));
  best.Add(0.7, "e");
  best.Add(0.1, "f");
  EXPECT_THAT(TextsOf(best), ElementsAre("b", "e", "a"));
}

TEST(BestTextsTest, AreTheFirstOfAllThatAreSorted) {
  std::mt19937 random(7);
  for (const int64_t most : {1, 2, 10, 100, 1000}) {
    BestTexts best(most);
    std::vector<std::pair<double, std::string>> all;
    for (int i = 0; i < 300; ++i) {
      all.emplace_back(random() % 20, absl::StrCat(i));
      best.Add(all.back().first, all.back().second);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> texts;
    for (const auto& [score, text] : all) texts.push_back(text);
    texts.resize(std::min<size_t>(texts.size(), most));
    EXPECT_EQ(TextsOf(best), texts) << most;
  }
}

// The least of several, each better than all before it.
double SecondsFor(int64_t count) {
  double least = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    BestTexts best(count);
    for (int64_t i = 0; i < count; ++i) best.Add(static_cast<double>(i), "text");
    EXPECT_EQ(best.Take()[0].number, count - 1);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    least = std::min(
        least, end.tv_sec - begin.tv_sec + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
  }
  return least;
}

TEST(BestTextsTest, TimeGrowsWithTheirNumberAndNotItsSquare) {
  EXPECT_LT(SecondsFor(16 * 5000), 80 * SecondsFor(5000));
}

}  // namespace
}  // namespace lm

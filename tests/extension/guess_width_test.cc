// How far a look-ahead guesses: it begins with little, doubles and halves, and keeps to a LIMIT.
#include "extension/batch/guess_width.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

constexpr int kPlaces[] = {0, 1};  // their addresses are places in a program

TEST(GuessWidthTest, BeginsByWhatIsKnownOfTheStatement) {
  GuessWidth width;
  width.Begin({.most_under_way = 64});
  EXPECT_EQ(width.size(), 2);  // of a SELECT, which may be left after any row
  width.Begin({.most_under_way = 64, .to_its_end = true});
  EXPECT_EQ(width.size(), 8);
  width.Begin({.most_under_way = 64, .to_its_end = true, .independent = true});
  EXPECT_EQ(width.size(), 64);
}

TEST(GuessWidthTest, DoublesWithEachHitAndNarrowsToOne) {
  GuessWidth width;
  width.Begin({.most_under_way = 10});
  for (const size_t size : {4, 8, 10, 10}) {
    width.CountHit(&kPlaces[0]);
    EXPECT_EQ(width.size(), size);
  }
  for (const size_t size : {2, 1, 1}) {
    width.Narrow();
    EXPECT_EQ(width.size(), size);
  }
}

TEST(GuessWidthTest, GuessesNoFurtherThanTheLimitAllows) {
  GuessWidth width;
  width.Begin({.most_under_way = 64, .limit = 5, .num_sites = 1, .num_calls = 1});
  EXPECT_EQ(width.MostOfPlace(), 4);  // behind the row that is asked about now
  EXPECT_EQ(width.MostAhead(/*dependent=*/true), 4);
  for (const size_t left : {3, 2, 1, 0}) {
    width.CountHit(&kPlaces[0]);
    EXPECT_EQ(width.MostOfPlace(), left);
  }
  width.CountHit(&kPlaces[0]);  // a sixth row: a WHERE has passed some over
  EXPECT_EQ(width.MostOfPlace(), 6);
}

TEST(GuessWidthTest, EachPlaceHasTheLimitsRows) {
  GuessWidth width;
  width.Begin({.most_under_way = 64, .limit = 3, .num_sites = 2, .num_calls = 1});
  EXPECT_EQ(width.MostAhead(/*dependent=*/true), 4);
  width.CountHit(&kPlaces[1]);  // the other place of the first row
  EXPECT_EQ(width.MostAhead(/*dependent=*/true), 2);
  width.CountHit(&kPlaces[0]);
  EXPECT_EQ(width.MostAhead(/*dependent=*/true), 2);
}

TEST(GuessWidthTest, OnlyWhatDependsOnAnswersIsForeseenBeyondTheWidth) {
  GuessWidth width;
  width.Begin({.most_under_way = 64});
  EXPECT_EQ(width.MostAhead(/*dependent=*/false), 2);
  EXPECT_EQ(width.MostAhead(/*dependent=*/true), 4096);
}

TEST(GuessWidthTest, AStepThatWasEndedIsFollowedByALongerOne) {
  GuessWidth width;
  width.Begin({.most_under_way = 64});
  const size_t calls = width.MostInStep(/*dependent=*/false);
  const int64_t any = width.MostCallsOfStep();
  width.CountFullStep();
  EXPECT_EQ(width.MostInStep(/*dependent=*/false), 2 * calls);
  EXPECT_EQ(width.MostCallsOfStep(), 2 * any);
  for (int i = 0; i < 100; ++i) width.CountFullStep();
  EXPECT_EQ(width.MostInStep(/*dependent=*/false), 1024 * calls);  // no shift without an end
}

TEST(GuessWidthTest, IsGivenUpWhereMostIsWrongOrMissing) {
  GuessWidth width;
  width.Begin({.most_under_way = 64});
  for (int i = 0; i < 16; ++i) {
    width.CountWrong();
    width.CountMiss(/*missing=*/true);
  }
  EXPECT_FALSE(width.IsMostlyWrong());  // so few are nothing to worry about
  EXPECT_FALSE(width.IsMostlyMissing());
  width.CountWrong();
  width.CountMiss(/*missing=*/true);
  EXPECT_TRUE(width.IsMostlyWrong());
  EXPECT_TRUE(width.IsMostlyMissing());
  for (int i = 0; i < 17; ++i) width.CountHit(&kPlaces[0]);
  EXPECT_FALSE(width.IsMostlyWrong());
  EXPECT_FALSE(width.IsMostlyMissing());
  width.CountMiss(/*missing=*/false);  // a call of something else
  EXPECT_EQ(width.num_missing(), 17);
}

}  // namespace
}  // namespace lm

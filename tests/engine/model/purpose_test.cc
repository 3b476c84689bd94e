#include "engine/model/purpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

using testing::HasSubstr;

constexpr char kWords[] = "sqlite_lm.purpose.words";

TEST(PurposeTest, AModelWithoutWordsIsForAnything) {
  EXPECT_TRUE(Purpose().Covers({}));
  EXPECT_TRUE(Purpose().Covers({"", "What is SQLite?"}));
}

TEST(PurposeTest, AWordOfItsTasksBeginsAWordOfSomeText) {
  const Purpose purpose = {.words = {"summar", "is it"}};
  EXPECT_TRUE(purpose.Covers({"", "Summarise: rain"}));
  EXPECT_TRUE(purpose.Covers({"A SUMMARY.", "rain"}));
  EXPECT_TRUE(purpose.Covers({"", "rain", "Is it cold?"}));
  EXPECT_FALSE(purpose.Covers({"", "rain"}));
  EXPECT_FALSE(purpose.Covers({"midsummary", "this item"}));
  EXPECT_FALSE(purpose.Covers({"summa", "is"}));
  EXPECT_FALSE(purpose.Covers({}));
}

TEST(PurposeTest, OfALongTextTheEndsCount) {
  const Purpose purpose = {.words = {"summar"}};
  const std::string rain(5'000, ' ');
  EXPECT_TRUE(purpose.Covers({"summarise: " + rain}));
  EXPECT_TRUE(purpose.Covers({rain + "summarise this"}));
  EXPECT_FALSE(purpose.Covers({rain + "summarise this" + rain}));
}

TEST(PurposeTest, ComesFromTheModelsFile) {
  SmallModel small;
  EXPECT_TRUE(small.Load().value()->info().purpose.words.empty());
  small.Set(kWords, std::vector<std::string>{"summar", "tag"});
  small.Set("general.description", std::string("Tags\nand more"));
  const std::unique_ptr<Model> model = small.Load().value();
  EXPECT_THAT(model->info().purpose.words, testing::ElementsAre("summar", "tag"));
  EXPECT_EQ(model->info().purpose.text, "Tags\\nand more");
}

TEST(PurposeTest, WordsThatAreNoneAreRefused) {
  SmallModel small;
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"tag", ""},
                                                {std::string(65, 'a')},
                                                std::vector<std::string>(65, "tag")}) {
    small.Set(kWords, words);
    EXPECT_THAT(small.Load().status().message(), HasSubstr("sqlite_lm.purpose.words must be"));
  }
  small.Set(kWords, std::string("tag"));
  EXPECT_THAT(small.Load().status().message(), HasSubstr(kWords));
}

}  // namespace
}  // namespace lm

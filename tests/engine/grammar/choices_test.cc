#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::vector<std::string>& choices) {
  std::vector<absl::string_view> views(choices.begin(), choices.end());
  return std::string(CompileChoices(views).status().message());
}

TEST(ChoicesTest, AcceptsTheChoicesAndNothingElse) {
  auto grammar = ValueOrDie(CompileChoices({"yes", "no", "not sure", "日本", "yes"}));
  for (const char* text : {"yes", "no", "not sure", "日本"}) EXPECT_TRUE(Accepts(grammar, text));
  for (const char* text : {"", "ye", "not", "yesno", "日", "Yes", "not sure "}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(ChoicesTest, TensOfThousandsAreFine) {
  std::vector<std::string> texts;
  for (int i = 0; i < 50000; ++i) texts.push_back(absl::StrCat("label ", i * 7919 % 50000));
  std::vector<absl::string_view> views(texts.begin(), texts.end());
  auto grammar = ValueOrDie(CompileChoices(views));
  EXPECT_TRUE(Accepts(grammar, "label 49999"));
  EXPECT_FALSE(Accepts(grammar, "label 50000"));
}

TEST(ChoicesTest, RefusesByNumber) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("must not be empty"));
  EXPECT_THAT(ErrorOf({"a", ""}), HasSubstr("choice 2 of 2 is empty"));
  EXPECT_THAT(ErrorOf({"a\xff"}), HasSubstr("choice 1 of 1 is not valid UTF-8, at byte 1"));
  EXPECT_THAT(ErrorOf({std::string("a\0b", 3)}), HasSubstr("a NUL character, at byte 1"));
  EXPECT_THAT(ErrorOf({std::string(kMaxGrammarText, 'a'), "b"}),
              HasSubstr("choices are too large: more than 1048576 bytes with choice 2 of 2"));
}

}  // namespace
}  // namespace lm

// Which marks of reasoning are a model's own.
#include "engine/text/chat/thinking_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/chat/thinking_filter.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> TokenizerOf(const std::string& chat_template,
                                       const std::vector<std::string>& more = {}) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  vocabulary.chat_template = chat_template;
  for (const std::string& token : more) {
    vocabulary.tokens.push_back(token);
    vocabulary.types.push_back(TokenType::kControl);
  }
  return *Tokenizer::Create(std::move(vocabulary));
}

std::string Answer(const std::shared_ptr<const ThinkingMarks>& marks, const std::string& text) {
  ThinkingFilter filter(marks, "");
  const std::string certain = filter.Append(text);
  return certain + filter.Finish();
}

TEST(ThinkingMarksTest, AreTheModelsOwn) {
  const std::string text = "<think>so</think>Yes.", other = "[THINK]so[/THINK]Yes.";
  const auto none = ThinkingMarks::Of(*TokenizerOf("{{ messages[0].content }}"), {});
  EXPECT_EQ(Answer(none, text), text);
  EXPECT_EQ(Answer(none, other), other);
  const auto tokens = ThinkingMarks::Of(*TokenizerOf("", {"<think>", "</think>"}), {});
  EXPECT_EQ(Answer(tokens, text), "Yes.");
  EXPECT_EQ(Answer(tokens, other), other);
  // One alone is none.
  EXPECT_EQ(Answer(ThinkingMarks::Of(*TokenizerOf("", {"<think>"}), {}), text), text);
  for (const char* source : {"{{ m.split('</think>')[-1] }}", "{{ '<think>\\n' }}"}) {
    EXPECT_EQ(Answer(ThinkingMarks::Of(*TokenizerOf(source), {}), text), "Yes.") << source;
  }
  const auto channels = ThinkingMarks::Of(*TokenizerOf("{{ '<|channel|>final' }}"), {});
  EXPECT_EQ(Answer(channels, "<|channel|>analysis<|message|>so<|channel|>final<|message|>Yes."),
            "Yes.");
}

TEST(ThinkingMarksTest, MayBeNamed) {
  const auto tokenizer = TokenizerOf("{{ '<think>' }}");
  const auto named = ThinkingMarks::Of(*tokenizer, NamedMarks{"<why>", "</why>"});
  EXPECT_EQ(Answer(named, "<why>so</why> Yes."), "Yes.");
  EXPECT_EQ(Answer(named, "<think>so</think>Yes."), "<think>so</think>Yes.");
  EXPECT_TRUE(named->IsMark("</why>"));
  EXPECT_FALSE(ThinkingMarks::Usual()->IsMark("</why>"));
  EXPECT_EQ(Answer(ThinkingMarks::Of(*tokenizer, NamedMarks()), "<think>so</think>Yes."),
            "<think>so</think>Yes.");
}

TEST(ThinkingMarksTest, AreTwoTextsOrNone) {
  auto read = [](const std::string& json) { return ReadNamedMarks(*Json::Parse(json)); };
  EXPECT_EQ(*read(R"([" <a>\n", "</a>"])"), (NamedMarks{"<a>", "</a>"}));
  EXPECT_EQ(*read("[]"), NamedMarks());
  for (const char* wrong : {R"(["<a>"])", R"(["<a>","</a>","b"])", R"(["<a>","<a>"])",
                            R"(["<a>",""])", R"(["<a>",7])", "null", R"("<a>")", "{}"}) {
    const auto marks = read(wrong);
    EXPECT_EQ(marks.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(marks.status().message()), HasSubstr("thinking_marks must be"));
  }
}

TEST(ThinkingMarksTest, SayWhatAnAnswerBeginsBehind) {
  const auto usual = ThinkingMarks::Usual();
  EXPECT_EQ(usual->AnswerBegin("assistant\n<think>\n"), "\n</think>\n\n");
  EXPECT_EQ(usual->AnswerBegin("<assistant><think>"), "</think>");
  EXPECT_EQ(usual->AnswerBegin("[THINK]"), "[/THINK]");
  EXPECT_EQ(usual->AnswerBegin("<|start|>assistant"), "<|channel|>final<|message|>");
  EXPECT_EQ(usual->AnswerBegin("<|start|>assistant<|channel|>"), "final<|message|>");
  EXPECT_EQ(usual->AnswerBegin("<|start|>assistant<|channel|>final"), "<|message|>");
  for (const char* ready : {"", "assistant\n", "<think>\n\n</think>\n\n"}) {
    EXPECT_EQ(usual->AnswerBegin(ready), "");
  }
  const auto named = ThinkingMarks::Named({"<why>", "</why>"});
  EXPECT_EQ(named->AnswerBegin("<why>\n"), "\n</why>\n\n");
  EXPECT_EQ(named->AnswerBegin("<|start|>assistant"), "");
}

TEST(ThinkingMarksTest, SayWhatBeginsReasoningAndWhatEndsIt) {
  const auto usual = ThinkingMarks::Usual();
  EXPECT_EQ(usual->ReasoningBegin("assistant\n"), "<think>");
  for (const char* ready : {"<think>", "[THINK]\n", "<think>\n\n</think>\n\n", "[/THINK]",
                            "<|start|>assistant<|channel|>final<|message|>"}) {
    EXPECT_EQ(usual->ReasoningBegin(ready), "") << ready;
  }
  EXPECT_EQ(ThinkingMarks::Named({})->ReasoningBegin("assistant\n"), "");
  const auto named = ThinkingMarks::Named({"<why>", "</why>"});
  EXPECT_EQ(named->ReasoningBegin("<think>"), "<why>");

  EXPECT_EQ(ThinkingMarks::End("</why>", /*has_lines=*/true), "\n</why>\n\n");
  EXPECT_EQ(ThinkingMarks::End("</why>", /*has_lines=*/false), "</why>");
  EXPECT_EQ(ThinkingMarks::End("<channel|>", /*has_lines=*/true), "\n<channel|>");
  EXPECT_EQ(ThinkingMarks::End("<|channel|>final", /*has_lines=*/true),
            "<|end|><|start|>assistant<|channel|>final<|message|>");
}

}  // namespace
}  // namespace lm

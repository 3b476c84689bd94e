#include "engine/runtime/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/remembered_answer.h"
#include "tests/engine/runtime/session_case.h"

namespace lm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const char kChatMl[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

class SessionTest : public SessionCase {};

TEST_F(SessionTest, RendersAndAnswers) {
  script_->says = {{Bytes("be brief\n\nhello"), Bytes("hi")}};
  Start();
  EXPECT_EQ(Ask("hello", "be brief").text, "hi");
  EXPECT_EQ(Render("hello", "be brief").value(), "be brief\n\nhello");
  EXPECT_EQ(Tokens("hello", "be brief"), Bytes("be brief\n\nhello"));
}

TEST_F(SessionTest, MarkupBecomesControlTokensRowTextDoesNot) {
  Start(kChatMl);
  const std::vector<int32_t> tokens = Tokens("a<|im_end|>", "");
  EXPECT_EQ(tokens[0], kImStart);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), kImEnd), 1);
  EXPECT_EQ(Render("hey", "").value(), "<|im_start|>user\nhey<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(SessionTest, TemplatesSeeTheirArgumentsAndGetASystemPromptAsTheyCan) {
  Start(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{{ messages[0].content | trim }}{{ '/quiet' if enable_thinking is false }}");
  GenerationOptions options;
  ASSERT_TRUE(
      ParseGenerationOptions(R"({"template_args":{"enable_thinking":false}})", &options).ok());
  EXPECT_EQ(Render(" hey ", "", options).value(), "hey/quiet");
  EXPECT_EQ(Tokens(" hey ", ""), Bytes("hey"));
  EXPECT_EQ(Render("hey", "be brief").value(), "be brief\n\nhey");
  EXPECT_EQ(ParseGenerationOptions(R"({"template_args":[1]})", &options).message(),
            "template_args must be an object, got an array");
}

TEST_F(SessionTest, BosOfATemplateIsTheOneBos) {
  Start("{{ bos_token }}{{ messages[0].content }}");
  // The scripted vocabulary has no BOS: nothing is written of it.
  EXPECT_EQ(Tokens("<s>", ""), Bytes("<s>"));
}

TEST_F(SessionTest, ThePromptsTextFormTellsWhoSaidWhat) {
  Start(kChatMl);
  auto text = [&](const std::string& prompt, const GenerationOptions& options = {}) {
    return session_->generator().Prepare({.prompt = prompt, .options = options}).value().text;
  };
  EXPECT_EQ(text("hey"),
            R"([["<|im_start|>user\n"],"hey",["<|im_end|>\n<|im_start|>assistant\n"]])");
  EXPECT_NE(text("a<|im_end|>\n<|im_start|>user\nb"), text("a"));
  EXPECT_EQ(text("hey", {.cache = false}), "");  // the memo is not to know it
}

TEST_F(SessionTest, SecondStatementsReuseTheSystemPrompt) {
  Start(kChatMl);
  const std::string system(300, 's');
  EXPECT_EQ(Ask("first", system).tokens_cached, 0);
  EXPECT_GT(Ask("second", system).tokens_cached, 300);
}

TEST_F(SessionTest, APromptMayBeMessages) {
  Start(kChatMl);
  GenerationOptions options;
  ASSERT_TRUE(ParseGenerationOptions(R"({"messages":true})", &options).ok());
  const std::string talk = R"([{"role":"user","content":"hi<|im_end|>"},
      {"role":"assistant","content":"hello"},{"role":"user","content":"bye"}])";
  EXPECT_EQ(Render(talk, "be brief", options).value(),
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|><|im_end|>\n"
            "<|im_start|>assistant\nhello<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n"
            "<|im_start|>assistant\n");
  // Markup in a message is text.
  const std::vector<int32_t> tokens = Tokens(talk, "", options);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), kImEnd), 3);
  EXPECT_TRUE(Ask(talk, "", options).status.ok());

  auto error = [&](const std::string& prompt, const std::string& system = "") {
    return std::string(session_->Submit(prompt, system, options).status().message());
  };
  EXPECT_THAT(error("hi"), HasSubstr("the prompt must be a JSON array of messages"));
  EXPECT_THAT(error("{}"), HasSubstr("must be a JSON array of messages, got dict"));
  EXPECT_THAT(error("[]"), HasSubstr("got an empty one"));
  EXPECT_THAT(error(R"([{"role":"user","content":"a"},7])"), HasSubstr("message 2 of the prompt"));
  EXPECT_THAT(error(R"([{"content":"a"}])"), HasSubstr("it has no role"));
  EXPECT_THAT(error(R"([{"role":"user"}])"), HasSubstr("it has no content"));
  EXPECT_THAT(error(R"([{"role":1,"content":""}])"), HasSubstr("its role is not a string"));
  EXPECT_THAT(error(R"([{"role":"system","content":"x"}])", "y"),
              HasSubstr("message 1 of the prompt is a system message, and there is a system"));
  EXPECT_THAT(std::string(Choose(talk, "?", options).status().message()),
              HasSubstr("not for a question"));
  EXPECT_THAT(
      std::string(ParseGenerationOptions(R"({"on_overflow":"truncate_end"})", &options).message()),
      HasSubstr("on_overflow must be 'error'"));
}

TEST_F(SessionTest, AMessageOfToolCallsNeedsNoContent) {
  GenerationOptions options;
  ASSERT_TRUE(ParseGenerationOptions(R"({"messages":true})", &options).ok());
  Start(
      "{% for m in messages %}{{ m.role }}:{{ m.content if 'content' in m else 'no' }}"
      "{% for c in m.tool_calls %} {{ c | tojson }}{% endfor %};{% endfor %}");
  auto render = [&](const std::string& message) {
    return Render("[" + message + R"(,{"role":"tool","content":"4"}])", "", options);
  };
  EXPECT_EQ(render(R"({"role":"assistant","tool_calls":[{"n":3}]})").value(),
            "assistant:no {\"n\": 3};tool:4;");
  EXPECT_EQ(render(R"({"role":"assistant","content":null,"tool_calls":[{"n":3}]})").value(),
            "assistant:None {\"n\": 3};tool:4;");
  EXPECT_THAT(std::string(render(R"({"role":"assistant","tools":[]})").status().message()),
              HasSubstr("it has no content"));
}

TEST_F(SessionTest, ReasoningIsDroppedUnlessItIsWanted) {
  script_->says = {{Bytes("ask"), Bytes("<think>\nhm\n</think>\n\nYes. No.")},
                   {Bytes("never"), Bytes("<think>for ever")}};
  Start(kReasons);
  const Generation dropped = Ask("ask", "");
  EXPECT_EQ(dropped.text, "Yes. No.");
  EXPECT_EQ(dropped.tokens_out, 29);  // all are counted
  GenerationOptions options;
  ASSERT_TRUE(ParseGenerationOptions(R"({"thinking":"keep"})", &options).ok());
  EXPECT_EQ(Ask("ask", "", options).text, "<think>\nhm\n</think>\n\nYes. No.");
  // A stop string is looked for in the answer.
  GenerationOptions stop;
  stop.stop = {"hm", "."};
  EXPECT_EQ(Ask("ask", "", stop).text, "Yes");
  EXPECT_FALSE(ParseGenerationOptions(R"({"thinking":"yes"})", &options).ok());
}

TEST_F(SessionTest, AModelWithoutMarksSaysThemAsWords) {
  const std::string words = "<think> begins it, </think> ends it.";
  script_->says = {{Bytes("marks"), Bytes(words)}};
  for (const char* source : {"", "{{ messages[0].content }}"}) {
    Start(source);
    EXPECT_EQ(Ask("marks", "").text, words);
  }
  Start(kReasons);
  EXPECT_EQ(Ask("marks", "").text, "ends it.");
}

TEST_F(SessionTest, NothingButReasoningIsAnErrorAndNotRemembered) {
  script_->says = {{Bytes("never"), Bytes("<think>for ever")},
                   {Bytes("nothing"), Bytes("<think>so</think>\n")}};
  Start(kReasons);
  const Generation cut = Ask("never", "", {.max_tokens = 9});
  EXPECT_EQ(cut.status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(cut.tokens_out, 9);
  EXPECT_THAT(
      std::string(cut.status.message()),
      AllOf(HasSubstr("max_tokens = 9 cut the answer off within its reasoning: all 9 tokens"),
            HasSubstr("raise max_tokens"), HasSubstr("thinking_tokens")));
  // The model ends it itself.
  const Generation ended = Ask("never", "");
  EXPECT_THAT(std::string(ended.status.message()), HasSubstr("all 15 tokens are that"));
  // Behind it there is room for nothing, and there is nothing.
  EXPECT_FALSE(Ask("nothing", "", {.max_tokens = 17}).status.ok());
  const Generation empty = Ask("nothing", "");
  EXPECT_TRUE(empty.status.ok() && empty.text.empty()) << empty.status;

  GenerationOptions keep{.max_tokens = 9, .thinking = Thinking::kKeep};
  EXPECT_EQ(Ask("never", "", keep).text, "<think>fo");
  EXPECT_TRUE(Ask("never", "", {.max_tokens = 0}).status.ok());
  // No memory holds it for an answer, were it stored as one.
  const TextRequest request{.prompt = "never", .options = {.max_tokens = 9}};
  const RequestSpec spec = session_->generator().Prepare(request).value();
  RememberedAnswer old{.text = "",
                       .finish = FinishReason::kLength,
                       .tokens = Bytes("<think>fo"),
                       .tokens_in = 5,
                       .tokens_out = 9};
  EXPECT_FALSE(session_->generator().CanBeAnswer(spec, old));
  RequestSpec kept = spec;
  kept.options.thinking = Thinking::kKeep;
  old.text = "<think>fo";
  EXPECT_TRUE(session_->generator().CanBeAnswer(kept, old));
}

TEST_F(SessionTest, APrefixIsPreparedForAModelThatReasons) {
  script_->says = {{Bytes("ask: <think>\n"), Bytes("hm</think>Yes.")}};
  Start("{{ messages[0].content }}: <think>{{ '\\n' }}");
  auto request = session_->Submit({.task = Task::kPrefill, .prompt = "ask"});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(Await(*request).status.ok());
}

TEST_F(SessionTest, ATemplateMayBeginTheReasoning) {
  script_->says = {{Bytes("ask: <think>\n"), Bytes("hm</think>Yes.")}};
  Start("{{ messages[0].content }}: <think>{{ '\\n' }}");
  EXPECT_EQ(Ask("ask", "").text, "Yes.");
}

TEST_F(SessionTest, AConstrainedAnswerBeginsBehindTheReasoning) {
  script_->says = {{Bytes("ask: <think>\n"), Bytes("no</think>yes")},
                   {Bytes("ask: <think>\n\n</think>\n\n"), Bytes("yes")},
                   {Bytes("ask: "), Bytes("<think>a")}};
  const std::string begins = "{{ messages[0].content }}: <think>{{ '\\n' }}";
  Start(begins);
  GenerationOptions choice;
  choice.constraint = {AnswerConstraint::Kind::kChoices, R"(["yes","no"])"};
  EXPECT_EQ(Ask("ask", "", choice).text, "yes");
  EXPECT_EQ(Asked(), "ask: <think>\n\n</think>\n\n");
  EXPECT_EQ(Render("ask", "", choice).value(), Asked());
  EXPECT_EQ(Tokens("ask", "", choice), asked_);
  EXPECT_EQ(Render("ask", "").value(), "ask: <think>\n");
  // A prefix is prepared for the same prompt.
  const TextRequest prefill{.task = Task::kPrefill, .prompt = "ask", .options = choice};
  EXPECT_EQ(session_->generator().Prepare(prefill).value().prompt, asked_);

  // As the template has it, where it can; what the options say counts.
  Start("{{ messages[0].content }}: {{ '/off ' if enable_thinking is false else '<think>' }}");
  EXPECT_EQ(Render("ask", "", choice).value(), "ask: /off ");
  EXPECT_EQ(Render("ask", "").value(), "ask: <think>");
  choice.template_args = R"({"enable_thinking":true})";
  EXPECT_EQ(Render("ask", "", choice).value(), "ask: <think></think>");
  choice.template_args = R"({"enable_thinking":false})";
  EXPECT_EQ(Render("ask", "", choice).value(), "ask: /off ");

  Start("{{ messages[0].content }}{# <|channel|> #}<|start|>assistant");
  EXPECT_EQ(Render("ask", "", choice).value(), "ask<|start|>assistant<|channel|>final<|message|>");
  // Its text is the answer, whatever it is.
  Start("{{ messages[0].content }}:{{ ' ' }}");
  choice.constraint.text = R"(["<think>a"])";
  EXPECT_EQ(Ask("ask", "", choice).text, "<think>a");
}

TEST_F(SessionTest, APromptThatEndsInAMarkBeginsNoReasoning) {
  script_->says = {{Bytes("what is <think>"), Bytes("A mark.")},
                   {Bytes("what is [THINK]\n"), Bytes("A mark.")}};
  Start();
  EXPECT_EQ(Ask("what is <think>", "").text, "A mark.");
  Start("{{ messages[0].content }}{{ '\\n' }}");
  EXPECT_EQ(Ask("what is [THINK]", "").text, "A mark.");
}

TEST_F(SessionTest, ARecurrentModelReusesTheSystemPromptFromTheSecondRowOn) {
  script_->num_states = 4;
  Start(kChatMl);
  const std::string system = "This is a system prompt of more than one block of tokens.";
  EXPECT_EQ(Ask("first row", system).tokens_cached, 0);
  // <|im_start|>system ... <|im_end|> <|im_start|>user, all that is before the row's own text.
  const int32_t border = static_cast<int32_t>(system.size()) + 8 + 2 + 6;
  EXPECT_EQ(Ask("second row", system).tokens_cached, border);
  EXPECT_EQ(Ask("and a third", system).tokens_cached, border);
  EXPECT_EQ(Ask("", system).tokens_cached, border);
  EXPECT_EQ(Ask("a row", "Another system prompt of more than one block.").tokens_cached, 0);
  EXPECT_EQ(script_->violation(), "");
}

TEST_F(SessionTest, OverflowIsAnErrorWithBothNumbers) {
  script_->context_length = 100;
  Start();
  const absl::Status status = session_->Submit(std::string(150, 'x'), "", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("150 tokens, the context holds 100"));
  EXPECT_TRUE(Ask(std::string(99, 'x'), "").status.ok());
}

TEST_F(SessionTest, TruncatesWhereAskedByName) {
  script_->context_length = 100;
  Start(kChatMl);
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += "é";  // 200 tokens; a cut must not halve a character
  prompt += "END";
  GenerationOptions options{.max_tokens = 11, .on_overflow = OnOverflow::kTruncateStart};
  EXPECT_TRUE(Ask(prompt, "sys", options).status.ok());
  EXPECT_LE(asked_.size(), 89u);
  EXPECT_GE(asked_.size(), 88u);
  EXPECT_THAT(Asked(), HasSubstr("user\néé"));
  EXPECT_THAT(Asked(), HasSubstr("éEND\nassistant"));
  EXPECT_THAT(Asked(), HasSubstr("system\nsys"));
  options.on_overflow = OnOverflow::kTruncateEnd;
  options.max_tokens = 1000;
  EXPECT_TRUE(Ask(prompt, "sys", options).status.ok());
  EXPECT_LE(asked_.size(), 50u);
  EXPECT_GE(asked_.size(), 49u);
  EXPECT_THAT(Asked(), HasSubstr("é\nassistant"));
}

TEST_F(SessionTest, WhatScoresATextHasItsTimeAndItsOverflow) {
  script_->context_length = 100;
  Start();
  const std::string prompt = std::string(150, 'x') + std::string(50, 'y');
  auto scored = [&](OnOverflow how) {
    return session_->generator()
        .Prepare({.task = Task::kScore,
                  .prompt = prompt,
                  .options = {.on_overflow = how, .timeout_ms = 7}})
        .value();
  };
  EXPECT_EQ(scored(OnOverflow::kError).prompt, Bytes(prompt));
  EXPECT_EQ(scored(OnOverflow::kTruncateStart).prompt, Bytes(prompt.substr(100)));
  EXPECT_EQ(scored(OnOverflow::kTruncateEnd).prompt, Bytes(prompt.substr(0, 100)));
  EXPECT_EQ(scored(OnOverflow::kError).options.timeout_ms, 7);
}

TEST_F(SessionTest, AQuestionBehindTheTextIsNotCut) {
  script_->context_length = 100;
  Start();
  GenerationOptions options{.max_tokens = 11,
                            .constraint = {AnswerConstraint::Kind::kRegex, "[ab]"}};
  const std::string text(150, 'x');
  EXPECT_EQ(Choose(text, "really?", options).status().code(), absl::StatusCode::kOutOfRange);
  for (OnOverflow side : {OnOverflow::kTruncateStart, OnOverflow::kTruncateEnd}) {
    options.on_overflow = side;
    auto request = Choose(text, "really?", options);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ((*request)->spec().prompt, Bytes(std::string(82, 'x') + "really?"));
    EXPECT_EQ(Await(*request).first_choices.size(), 2u);
  }
}

TEST_F(SessionTest, TruncationLeavesAloneWhatFits) {
  script_->context_length = 100;
  Start();
  const GenerationOptions options{.on_overflow = OnOverflow::kTruncateStart};
  Ask(std::string(99, 'x'), "", options);
  EXPECT_EQ(asked_.size(), 99u);
}

TEST_F(SessionTest, ASystemPromptThatDoesNotFitIsNeverTruncated) {
  script_->context_length = 100;
  Start();
  const GenerationOptions options{.max_tokens = 10, .on_overflow = OnOverflow::kTruncateEnd};
  const absl::Status status = session_->Submit("short", std::string(150, 's'), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("152 tokens"));
}

TEST_F(SessionTest, ScoresPlainText) {
  Start(kChatMl);
  auto request = session_->Submit({.task = Task::kScore, .prompt = "<|im_end|>"}).value();
  EXPECT_EQ(request->spec().prompt, Bytes("<|im_end|>"));
  EXPECT_EQ(Await(request).prompt_logprobs.size(), 9u);
  EXPECT_FALSE(session_->Submit({.task = Task::kScore, .prompt = ""}).ok());
}

TEST_F(SessionTest, InvalidUtf8IsAnError) {
  Start();
  EXPECT_EQ(session_->Submit("a\xff", "", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lm

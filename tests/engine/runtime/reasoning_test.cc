// Of thinking_tokens.
#include "engine/runtime/reasoning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/remembered_answer.h"
#include "tests/engine/runtime/session_case.h"

namespace lm {
namespace {

class ReasoningTest : public SessionCase {
 protected:
  // A model whose template begins its reasoning.
  void StartThinking(const std::string& thought, const std::string& closed,
                     const std::string& answer) {
    script_->says = {{Bytes("ask: <think>\n"), Bytes(thought)},
                     {Bytes("ask: <think>\n" + closed), Bytes(answer)}};
    Start("{{ messages[0].content }}: <think>{{ '\\n' }}");
  }
  static GenerationOptions Choose(int32_t tokens, const std::string& choices = R"(["yes","no"])") {
    return {.thinking_tokens = tokens, .constraint = {AnswerConstraint::Kind::kChoices, choices}};
  }
};

TEST_F(ReasoningTest, IsReadAsAnOption) {
  GenerationOptions options;
  EXPECT_FALSE(options.thinking_tokens.has_value());
  ASSERT_TRUE(ParseGenerationOptions(R"({"thinking_tokens":0})", &options).ok());
  EXPECT_EQ(options.thinking_tokens, 0);
  EXPECT_EQ(ParseGenerationOptions(R"({"thinking_tokens":-1})", &options).message(),
            "thinking_tokens must be >= 0, got -1");
  EXPECT_EQ(ParseGenerationOptions(R"({"thinking_tokens":"few"})", &options).message(),
            "thinking_tokens must be an integer, got the string 'few'");
}

TEST_F(ReasoningTest, ComesBesideMaxTokens) {
  StartThinking("hm\n</think>", "hm\n</think>", "\n\nYes.");
  const Generation answer = Ask("ask", "", {.max_tokens = 4, .thinking_tokens = 50});
  EXPECT_EQ(answer.text, "Yes.");
  EXPECT_EQ(answer.tokens_out, 11 + 2 + 4);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
  EXPECT_FALSE(Ask("ask", "", {.max_tokens = 4}).status.ok());
}

TEST_F(ReasoningTest, IsEndedWhereItsTokensAreSpent) {
  StartThinking("on an", "on an\n</think>\n\n", "Yes.");
  const Generation answer = Ask("ask", "", {.thinking_tokens = 5});
  EXPECT_EQ(answer.text, "Yes.");
  EXPECT_EQ(answer.tokens_out, 5 + 11 + 4);
  // White space behind it is not counted, whoever has ended it.
  script_->says[1].second = Bytes("\n\nYes.");
  EXPECT_EQ(Ask("ask", "", {.max_tokens = 3, .thinking_tokens = 5}).text, "Yes");
  script_->says[1].second = Bytes("Yes.");
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(Ask("ask", "", {.thinking = Thinking::kKeep, .thinking_tokens = 5}).text,
            "on an\n</think>\n\nYes.");
  // Where the model ends the answer within it, too.
  EXPECT_EQ(Ask("ask", "", {.thinking_tokens = 500}).text, "Yes.");
  EXPECT_FALSE(Ask("ask", "").status.ok());
}

TEST_F(ReasoningTest, OfAFreeAnswerTheModelMayBegin) {
  script_->says = {{Bytes("ask"), Bytes("<think>\non a")},
                   {Bytes("ask<think>\non a\n</think>\n\n"), Bytes("Yes.")},
                   {Bytes("plain"), Bytes("<this is plain")}};
  Start(kReasons);
  EXPECT_EQ(Ask("ask", "", {.thinking_tokens = 12}).text, "Yes.");
  EXPECT_EQ(Ask("plain", "", {.thinking_tokens = 3}).text, "<this is plain");
  EXPECT_EQ(Ask("plain", "", {.max_tokens = 1, .thinking_tokens = 3}).text, "<");
  EXPECT_EQ(Ask("plain", "", {.max_tokens = 3, .thinking_tokens = 3}).text, "<th");
  // It ends where a character does.
  script_->says = {{Bytes("ask"), Bytes("<think>\nÄ")},
                   {Bytes("ask<think>\nÄ\n</think>\n\n"), Bytes("Yes.")}};
  EXPECT_EQ(Ask("ask", "", {.thinking_tokens = 9}).text, "Yes.");
  // None is wanted: it ends as soon as it is one.
  script_->says = {{Bytes("ask"), Bytes("<think>")}, {Bytes("ask<think></think>"), Bytes("Yes.")}};
  EXPECT_EQ(Ask("ask", "", {.thinking_tokens = 0}).text, "Yes.");
}

TEST_F(ReasoningTest, ComesBeforeAConstrainedAnswer) {
  StartThinking("so: no\n</think>", "so: no\n</think>\n\n", "no");
  for (const auto thinking : {Thinking::kDrop, Thinking::kKeep}) {
    GenerationOptions options = Choose(50);
    options.thinking = thinking;
    const Generation answer = Ask("ask", "", options);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.text, "no");
    EXPECT_EQ(answer.tokens, Bytes("no"));
    EXPECT_EQ(answer.tokens_out, 15 + 2 + 2);
  }
  EXPECT_EQ(Asked(), "ask: <think>\n");
  StartThinking("so: n", "so: n\n</think>\n\n", "no");
  EXPECT_EQ(Ask("ask", "", Choose(5)).text, "no");
  EXPECT_EQ(Ask("ask", "", Choose(500)).text, "no");
  // What every answer begins with is written behind it.
  StartThinking("so", "so\n</think>\n\n{\"size\":", "3}");
  GenerationOptions schema{.thinking_tokens = 2};
  schema.constraint = {AnswerConstraint::Kind::kSchema,
                       R"({"type":"object","properties":{"size":{"type":"integer"}},)"
                       R"("required":["size"]})"};
  EXPECT_EQ(Ask("ask", "", schema).text, R"({"size":3})");
  // Whatever stands behind the mark in one token with it.
  StartThinking("so</think>  ", "so</think>\n\n", "yes");
  EXPECT_EQ(Ask("ask", "", Choose(50)).text, "yes");
}

TEST_F(ReasoningTest, IsBegunBeforeAConstrainedAnswer) {
  script_->says = {{Bytes("ask: <think>"), Bytes("so")},
                   {Bytes("ask: <think>so</think>"), Bytes("no")}};
  Start("{# <think> #}{{ messages[0].content }}:{{ ' ' }}");
  EXPECT_EQ(Ask("ask", "", Choose(2)).text, "no");
  EXPECT_EQ(Asked(), "ask: <think>");
  EXPECT_EQ(Render("ask", "", Choose(2)).value(), "ask: <think>");
  EXPECT_EQ(Render("ask", "", Choose(0)).value(), "ask: ");
  EXPECT_EQ(Render("ask", "", {.thinking_tokens = 2}).value(), "ask: ");
  Start("{# <think> #}{{ messages[0].content }}");
  EXPECT_EQ(Render("ask", "", Choose(2)).value(), "ask<think>");
  // Not where the template has ended it.
  Start("{{ messages[0].content }}<think>\n\n</think>{{ '\\n\\n' }}");
  EXPECT_EQ(Render("ask", "", Choose(2)).value(), "ask<think>\n\n</think>\n\n");
  // A model without marks has none.
  Start("{{ messages[0].content }}:");
  EXPECT_EQ(Render("ask", "", Choose(2)).value(), "ask:");
  EXPECT_EQ(Ask("ask", "", Choose(2, R"(["yes"])")).text, "yes");
}

TEST_F(ReasoningTest, TheTemplateIsToldOfIt) {
  Start(
      "{{ messages[0].content }}: {{ '/on' if enable_thinking else '/off' if enable_thinking is "
      "false else '<think>' }}");
  EXPECT_EQ(Render("ask", "").value(), "ask: <think>");
  EXPECT_EQ(Render("ask", "", {.thinking_tokens = 5}).value(), "ask: /on");
  EXPECT_EQ(Render("ask", "", {.thinking_tokens = 0}).value(), "ask: /off");
  EXPECT_EQ(Render("ask", "", Choose(5)).value(), "ask: /on<think>");
  GenerationOptions told{.thinking_tokens = 5, .template_args = R"({"enable_thinking":false})"};
  EXPECT_EQ(Render("ask", "", told).value(), "ask: /off");
  Start("{{ messages[0].content }}: <think>{{ '\\n' }}");
  EXPECT_EQ(Render("ask", "", {.thinking_tokens = 0}).value(), "ask: <think>\n\n</think>\n\n");
  // A prefix is prepared for the same prompt.
  for (const int32_t tokens : {0, 5}) {
    const GenerationOptions options = Choose(tokens);
    const TextRequest prefill{.task = Task::kPrefill, .prompt = "ask", .options = options};
    const RequestSpec prepared = session_->generator().Prepare(prefill).value();
    EXPECT_EQ(prepared.prompt, Tokens("ask", "", options));
    EXPECT_FALSE(prepared.reasoning_tokens.has_value());
  }
}

TEST_F(ReasoningTest, OfHarmonyIsItsOtherChannels) {
  const std::string end = "<|end|><|start|>assistant<|channel|>final<|message|>";
  const std::string asked = "ask<|start|>assistant<|channel|>", hm = "analysis<|message|>hm";
  script_->says = {{Bytes(asked), Bytes(hm)}, {Bytes(asked + hm + end), Bytes("no")}};
  Start("{{ messages[0].content }}{# <|channel|> #}<|start|>assistant");
  const auto tokens = static_cast<int32_t>(hm.size());
  EXPECT_EQ(Ask("ask", "", Choose(tokens)).text, "no");
  EXPECT_EQ(Ask("ask", "", Choose(tokens + 50)).text, "no");
  // The model ends it itself.
  script_->says = {{Bytes(asked), Bytes(hm + end + "no")}};
  EXPECT_EQ(Ask("ask", "", Choose(500)).text, "no");
}

TEST_F(ReasoningTest, ProbabilitiesAreOfTheAnswerBehindIt) {
  StartThinking("so: no\n</think>\n\nno", "so: no\n</think>\n\n", "no");
  const GenerationOptions options = Choose(50);
  auto request = session_->Submit({.task = Task::kChoose, .prompt = "ask", .options = options});
  ASSERT_TRUE(request.ok()) << request.status();
  const Generation chosen = Await(*request);
  ASSERT_EQ(chosen.first_choices.size(), 2u) << chosen.status;
  EXPECT_EQ(chosen.first_choices[0].text, "n");
  EXPECT_GT(chosen.first_choices[0].logprob, -1e-3);
  auto weighed = session_->Submit({.task = Task::kWeigh, .prompt = "ask", .options = options});
  ASSERT_TRUE(weighed.ok()) << weighed.status();
  const Generation sure = Await(*weighed);
  ASSERT_EQ(sure.first_choices.size(), 1u) << sure.status;
  EXPECT_EQ(sure.first_choices[0].text, "no");
  EXPECT_GT(sure.first_choices[0].logprob, -1e-3);
  // Of labels that begin alike the answer is begun behind it.
  script_->says[0].second = Bytes("so: no\n</think>\n\nno ");
  const TextRequest begun{.task = Task::kChoose,
                          .prompt = "ask",
                          .begun = "n",
                          .options = Choose(50, R"(["o","ever"])")};
  request = session_->Submit(begun);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->spec().prompt, Bytes("ask: <think>\n"));
  const Generation ending = Await(*request);
  ASSERT_EQ(ending.first_choices.size(), 2u) << ending.status;
  EXPECT_EQ(ending.text, "o");
  EXPECT_EQ(ending.first_choices[1].text, "o");
  EXPECT_GT(ending.first_choices[1].logprob, -1e-3);
}

TEST_F(ReasoningTest, PiecesOfTheStreamAreOfTheAnswer) {
  StartThinking("so: no\n</think>", "so: no\n</think>\n\n", "no");
  const GenerationOptions options = Choose(50);
  auto request = session_->Submit({.prompt = "ask", .options = options, .stream = true});
  ASSERT_TRUE(request.ok()) << request.status();
  const Generation answer = Await(*request);
  std::string pieces;
  int32_t tokens = 0;
  while (const std::optional<StreamedToken> token = (*request)->TakeToken()) {
    pieces += token->piece;
    ++tokens;
  }
  EXPECT_EQ(pieces, "no");
  EXPECT_EQ(answer.text, "no");
  EXPECT_EQ(tokens, answer.tokens_out);
}

TEST_F(ReasoningTest, LeavesRoomForTheAnswer) {
  // 13 tokens of prompt, as many as closing it may take, 20 of the answer.
  script_->context_length = 13 + 64 + 20 + 4;
  StartThinking("on a", "on a\n</think>\n\n", "Yes.");
  EXPECT_EQ(Ask("ask", "", {.max_tokens = 20, .thinking_tokens = 1000}).text, "Yes.");
  // Half of what there is stays for an answer that may take all.
  script_->context_length = 13 + 64 + 20;
  StartThinking("on and on.", "on and on.\n</think>\n\n", "Yes.");
  EXPECT_EQ(Ask("ask", "", {.max_tokens = 1000, .thinking_tokens = 1000}).text, "Yes.");
  script_->context_length = 30;
  StartThinking("", "\n</think>\n\n", "Yes.");
  EXPECT_EQ(Ask("ask", "", {.max_tokens = 20, .thinking_tokens = 1000}).text, "Yes.");
  const Generation none = Ask("ask", "", Choose(9, R"(["longer than the context of thirty"])"));
  EXPECT_EQ(none.status.code(), absl::StatusCode::kOutOfRange) << none.status;
}

TEST_F(ReasoningTest, GuessesChangeNothingAboutIt) {
  const std::string thought = "so so so so so so so so so so so so so: no no no no\n</think>";
  const std::string answer = "no no no no no no no no";
  StartThinking(thought, thought + "\n\n", answer);
  const std::string choices = R"(["no no no no no no no no","no no no no yes"])";
  for (const int32_t tokens : {500, 20}) {
    script_->says[1].first =
        tokens == 500 ? Bytes("ask: <think>\n" + thought + "\n\n")
                      : Bytes("ask: <think>\n" + thought.substr(0, 20) + "\n</think>\n\n");
    script_->says[0].second =
        Bytes(tokens == 500 ? thought + "\n\n" + answer : thought.substr(0, tokens));
    std::string said;
    for (const Speculate speculate : {Speculate::kOff, Speculate::kAlways}) {
      for (GenerationOptions options : {Choose(tokens, choices), {.thinking_tokens = tokens}}) {
        options.speculate = speculate;
        const Generation made = Ask("ask", "", options);
        ASSERT_TRUE(made.status.ok()) << made.status;
        EXPECT_EQ(made.text, answer);
      }
    }
    EXPECT_EQ(script_->violation(), "");
  }
  EXPECT_GT(session_->generator().engine()->StatsSinceLaidOut().tokens_accepted, 0);
}

TEST_F(ReasoningTest, OfAnAnswerThatIsRememberedIsCounted) {
  StartThinking("so: n", "so: n\n</think>\n\n", "no");
  for (const GenerationOptions& options :
       {Choose(5), GenerationOptions{.max_tokens = 2, .thinking_tokens = 5}}) {
    const RequestSpec spec =
        session_->generator().Prepare({.prompt = "ask", .options = options}).value();
    const Generation made = Ask("ask", "", options);
    ASSERT_TRUE(made.status.ok()) << made.status;
    RememberedAnswer answer{.text = made.text,
                            .finish = made.finish,
                            .tokens = made.tokens,
                            .tokens_in = made.tokens_in,
                            .tokens_out = made.tokens_out};
    EXPECT_TRUE(session_->generator().CanBeAnswer(spec, answer));
    answer.tokens_out += 100;
    EXPECT_FALSE(session_->generator().CanBeAnswer(spec, answer));
  }
}

}  // namespace
}  // namespace lm

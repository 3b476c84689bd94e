// Constrained answers through the engine, on a scripted model whose tokens are bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/runtime/engine.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;
using testing::HasSubstr;

GenerationOptions Choices(const std::string& json) {
  return {.constraint = {Kind::kChoices, json}};
}
GenerationOptions Regex(const std::string& text) { return {.constraint = {Kind::kRegex, text}}; }
GenerationOptions Schema(const std::string& text) { return {.constraint = {Kind::kSchema, text}}; }

class ConstrainedEngineTest : public testing::Test {
 protected:
  // A model that wants to say `wish`, under these options.
  Generation Say(const std::string& wish, GenerationOptions options) {
    script_->says = {{Bytes("say:"), Bytes(wish)}};
    engine_ = StartScripted(script_);
    script_->forwards = 0;
    return Generate(*engine_, {.prompt = Bytes("say:"), .options = std::move(options)});
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(ConstrainedEngineTest, TheModelChoosesAmongWhatIsAllowed) {
  const Generation result = Say("negative", Choices(R"(["positive", "neutral", "negative"])"));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.text, "negative");
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_EQ(result.tokens, Bytes("negative"));
  // n, e (forced), g, and the rest is forced and ends it: the rows of two tokens were asked for.
  EXPECT_EQ(script_->forwards, 2);
}

TEST_F(ConstrainedEngineTest, TheHeadIsAskedForNoMoreThanIsRead) {
  // Letters only: the other words of 64 tokens get NaN, which nobody may read.
  const std::string choices = R"(["positive", "neutral", "negative"])";
  EXPECT_EQ(Say("negative", Choices(choices)).text, "negative");
  EXPECT_EQ(script_->some_logits, 2);
  EXPECT_EQ(script_->all_logits, 0);
  // So of a stream, whose probabilities nobody wants.
  script_->some_logits = 0;
  EXPECT_EQ(
      Generate(*engine_, {.prompt = Bytes("say:"), .options = Choices(choices), .stream = true})
          .text,
      "negative");
  EXPECT_EQ(script_->some_logits, 2);
  EXPECT_EQ(script_->all_logits, 0);
  // Probabilities need all.
  for (const bool stream : {true, false}) {
    script_->all_logits = script_->some_logits = 0;
    RequestSpec spec{.prompt = Bytes("say:"), .options = Choices(choices)};
    spec.stream = spec.wants_logprob = stream;
    spec.wants_first_choices = !stream;
    EXPECT_EQ(Generate(*engine_, std::move(spec)).text, "negative");
    EXPECT_GE(script_->all_logits, 1);
    EXPECT_EQ(script_->some_logits, 0);
  }
  // So does one unconstrained neighbour, for its steps.
  script_->all_logits = script_->some_logits = 0;
  script_->Pause();
  auto free = engine_->Submit({.prompt = Bytes("free"), .options = {.max_tokens = 3}}).value();
  auto bound = engine_->Submit({.prompt = Bytes("say:"), .options = Choices(choices)}).value();
  script_->Resume();
  EXPECT_TRUE(Await(free).status.ok());
  EXPECT_EQ(Await(bound).text, "negative");
  EXPECT_GE(script_->all_logits, 3);
}

TEST_F(ConstrainedEngineTest, ALabelThatTheFirstTokenDecidesEndsAtPrefill) {
  const Generation result = Say("no", Choices(R"(["yes", "no"])"));
  EXPECT_EQ(result.text, "no");
  EXPECT_EQ(script_->forwards, 1);
  EXPECT_EQ(engine_->Stats().decode_steps, 0);
}

TEST_F(ConstrainedEngineTest, WithoutAChoiceTheModelIsNotAsked) {
  const Generation result = Say("x", Choices(R"(["certainly"])"));
  EXPECT_EQ(result.text, "certainly");
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_EQ(result.tokens_out, 9);
  EXPECT_EQ(script_->forwards, 0);
}

TEST_F(ConstrainedEngineTest, WhatEveryAnswerBeginsWithIsComputedWithThePrompt) {
  const Generation result =
      Say(R"({"name":"Bo"})", Schema(R"({"type": "object", "required": ["name"],
      "properties": {"name": {"type": "string", "maxLength": 2}}})"));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.text, R"({"name":"Bo"})");
  // `{"name":"` with the prompt; B, o are asked for; `"}` is forced.
  EXPECT_EQ(script_->forwards, 2);
  EXPECT_EQ(engine_->Stats().tokens_decoded, 2);
  EXPECT_EQ(result.tokens_in, 4);
  EXPECT_EQ(result.tokens_out, 13);
  EXPECT_GT(result.time_to_first_token, absl::ZeroDuration());
}

TEST_F(ConstrainedEngineTest, AnAnswerEndsOnlyWhereItIsWhole) {
  // The model would like to stop behind "12".
  EXPECT_EQ(Say("12", Regex("[0-9]+")).text, "12");
  const Generation longer = Say("12", Regex("[0-9]{4}"));
  ASSERT_TRUE(longer.status.ok());
  EXPECT_EQ(longer.text.size(), 4u);
  EXPECT_EQ(longer.text.substr(0, 2), "12");
}

TEST_F(ConstrainedEngineTest, ALimitInTheMiddleIsAnErrorThatSaysSo) {
  GenerationOptions options = Regex("[0-9]{4}");
  options.max_tokens = 3;
  const Generation result = Say("1234", options);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(result.status.message(),
            "max_tokens = 3 ended the answer before it was whole by its regex; it begins with "
            "'123'");
  EXPECT_EQ(result.text, "");
  options.max_tokens = 4;
  EXPECT_EQ(Say("1234", options).text, "1234");
  options = Regex("[0-9]+");
  options.max_tokens = 3;
  const Generation whole = Say("1234", options);  // it could go on, but need not
  EXPECT_EQ(whole.text, "123");
  EXPECT_EQ(whole.finish, FinishReason::kLength);
}

TEST_F(ConstrainedEngineTest, AnAnswerIsLedToItsEndWhereThatIsAskedFor) {
  const std::string schema = R"({"type": "object", "required": ["name", "ok"],
      "properties": {"name": {"type": "string"}, "ok": {"type": "boolean"}}})";
  const std::string wish = R"({"name":"a very long name","ok":false})";
  GenerationOptions options = Schema(schema);
  const int32_t whole = Say(wish, options).tokens_out;
  options.on_length = OnLength::kComplete;
  EXPECT_EQ(Say(wish, options).text, wish);
  EXPECT_EQ(Say(wish, options).finish, FinishReason::kStop);
  // A token is a byte here: {"name":"","ok":true}
  const int32_t shortest = 21;
  for (int32_t max_tokens = 0; max_tokens <= whole; ++max_tokens) {
    options.max_tokens = max_tokens;
    const Generation result = Say(wish, options);
    if (max_tokens < shortest) {
      EXPECT_THAT(std::string(result.status.message()),
                  HasSubstr(": 21 tokens are enough; it begins with '"));
      continue;
    }
    ASSERT_TRUE(result.status.ok()) << max_tokens << result.status;
    EXPECT_LE(result.tokens_out, max_tokens);
    EXPECT_EQ(result.text == wish, max_tokens == whole) << result.text;
    EXPECT_EQ(result.finish, FinishReason::kLength);  // something else had no room any more
    EXPECT_TRUE(CompileJsonSchema(schema).value()->Matches(result.text).value()) << result.text;
    // What there is room for is the model's own.
    const size_t own = static_cast<size_t>(max_tokens - shortest);
    EXPECT_EQ(result.text.substr(0, 9 + own), wish.substr(0, 9 + own)) << result.text;
  }
}

TEST_F(ConstrainedEngineTest, AChoiceIsNeverCut) {
  for (int32_t max_tokens : {0, 1, 5}) {
    GenerationOptions options = Choices(R"(["no", "no, indeed"])");
    options.max_tokens = max_tokens;
    const Generation result = Say("no, indeed", options);
    EXPECT_EQ(result.text, "no, indeed");
    EXPECT_EQ(result.finish, FinishReason::kStop);
  }
}

TEST_F(ConstrainedEngineTest, ALimitAmongForcedTokensIsTheSameError) {
  for (int32_t max_tokens : {0, 1, 5, 9}) {
    GenerationOptions options = Regex("indivisible");
    options.max_tokens = max_tokens;
    EXPECT_THAT(std::string(Say("", options).status.message()),
                HasSubstr("ended the answer before it was whole by its regex"))
        << max_tokens;
    options = Regex("yes, indeed|no, indeed");
    options.max_tokens = max_tokens;
    EXPECT_EQ(Say("no", options).status.code(), absl::StatusCode::kOutOfRange) << max_tokens;
  }
  GenerationOptions empty = Regex("(ab)?");
  empty.max_tokens = 0;
  EXPECT_EQ(Say("", empty).finish, FinishReason::kLength);
  script_->context_length = 20;
  EXPECT_THAT(
      std::string(Say("", Choices(R"(["more than the context can hold"])")).status.message()),
      HasSubstr("the context of 20 tokens ended the answer"));
  EXPECT_THAT(std::string(Say("", Regex("a[bc]{30}")).status.message()),
              HasSubstr("the context of 20 tokens ended the answer"));
}

TEST_F(ConstrainedEngineTest, EveryRowHasItsOwnConstraint) {
  script_->Pause();
  engine_ = StartScripted(script_);
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    const std::string digit(1, static_cast<char>('0' + i % 10));
    GenerationOptions options = i % 4 == 3 ? GenerationOptions{.max_tokens = 6}
                                           : Regex("row" + digit + "[a-c]{2," + digit + "5}!");
    options.temperature = i % 2;
    options.seed = i;
    requests.push_back(engine_->Submit({.prompt = {i, 1, 2}, .options = options}).value());
  }
  script_->Resume();
  for (int i = 0; i < 40; ++i) {
    const Generation result = Await(requests[i]);
    ASSERT_TRUE(result.status.ok()) << result.status;
    if (i % 4 == 3) continue;
    const auto grammar = CompileRegex(requests[i]->spec().options.constraint.text).value();
    EXPECT_TRUE(grammar->Matches(result.text).value()) << result.text;
    // The same alone.
    const RequestSpec again = {.prompt = {i, 1, 2}, .options = requests[i]->spec().options};
    EXPECT_EQ(Generate(*engine_, again).text, result.text);
  }
  EXPECT_EQ(script_->violation(), "");
}

// Tokens are computed in other steps, blocks are given up and taken again: the answers are the
// same.
TEST_F(ConstrainedEngineTest, PreemptionAndSmallStepsChangeNothing) {
  const std::string schema = R"({"type": "object", "required": ["name", "sizes", "kind"],
      "properties": {"name": {"type": "string", "maxLength": 12},
                     "sizes": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
                     "kind": {"enum": ["most extraordinarily large", "most extraordinarily small"]}}})";
  std::vector<std::string> answers[2];
  for (int run = 0; run < 2; ++run) {
    auto script = std::make_shared<Script>();
    if (run == 1) script->num_blocks = 12;
    auto engine =
        StartScripted(script, run == 1 ? EngineOptions{.step_tokens = 7} : EngineOptions{});
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < 24; ++i) {
      GenerationOptions options = Schema(schema);
      options.temperature = 1;
      options.seed = i;
      std::vector<int32_t> prompt(40, i);
      requests.push_back(engine->Submit({.prompt = prompt, .options = options}).value());
    }
    for (const auto& request : requests) {
      const Generation result = Await(request);
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(nlohmann::json::accept(result.text)) << result.text;
      answers[run].push_back(result.text);
    }
    EXPECT_EQ(script->violation(), "");
    if (run == 1) {
      EXPECT_GT(engine->Stats().preemptions, 0);
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST_F(ConstrainedEngineTest, ReportsTheProbabilitiesOfTheFirstChoices) {
  engine_ = StartScripted(script_);
  GenerationOptions options = Choices(R"(["yes", "no"])");
  const Generation result =
      Generate(*engine_, {.prompt = {1, 2, 3}, .options = options, .wants_first_choices = true});
  ASSERT_EQ(result.first_choices.size(), 2u);
  EXPECT_EQ(result.first_choices[0].text, "n");
  EXPECT_EQ(result.first_choices[1].text, "y");
  const std::vector<int32_t> scored = {1, 2, 3, 'y'};
  const Generation score = Generate(*engine_, {.prompt = scored, .score_prompt = true});
  EXPECT_FLOAT_EQ(result.first_choices[1].logprob, score.prompt_logprobs[2]);
  EXPECT_TRUE(Generate(*engine_, {.prompt = {1, 2, 3}, .options = options}).first_choices.empty());

  // Beside a bias the others share what it leaves.
  for (const double bias : {2.0, -50.0, 1e308, -1e308}) {
    options.logit_bias = {{'y', bias}};
    const Generation biased =
        Generate(*engine_, {.prompt = {1, 2, 3}, .options = options, .wants_first_choices = true});
    EXPECT_EQ(biased.text, bias > 0 ? "yes" : "no");
    ASSERT_EQ(biased.first_choices.size(), 2u);
    for (const FirstChoice& choice : biased.first_choices) {
      EXPECT_TRUE(std::isfinite(choice.logprob) && choice.logprob <= 0) << choice.logprob;
    }
    if (std::abs(bias) > 100) continue;
    const double no = result.first_choices[0].logprob, yes = result.first_choices[1].logprob;
    const double total = std::log1p(std::exp(yes) * std::expm1(bias));
    EXPECT_NEAR(biased.first_choices[0].logprob, no - total, 1e-4);
    EXPECT_NEAR(biased.first_choices[1].logprob, yes + bias - total, 1e-4);
  }
}

TEST_F(ConstrainedEngineTest, OffersNoSuppressedToken) {
  engine_ = StartScripted(script_);
  const GenerationOptions options = Choices(R"(["yes", "no", "both"])");
  const RequestSpec spec{.prompt = {1, 2, 3}, .options = options, .wants_first_choices = true};
  const Generation all = Generate(*engine_, spec);
  ASSERT_EQ(all.first_choices.size(), 3u);

  script_->suppressed = {'y'};
  engine_ = StartScripted(script_);
  const Generation some = Generate(*engine_, spec);
  EXPECT_THAT(some.text, testing::AnyOf("no", "both"));
  ASSERT_EQ(some.first_choices.size(), 2u);
  const double left = std::log1p(-std::exp(double{all.first_choices[2].logprob}));
  for (int i : {0, 1}) {
    EXPECT_EQ(some.first_choices[i].text, all.first_choices[i].text);
    EXPECT_NEAR(some.first_choices[i].logprob, all.first_choices[i].logprob - left, 1e-5);
  }
  // Not even where nothing else is left.
  EXPECT_FALSE(Generate(*engine_, {.prompt = {1}, .options = Choices(R"(["yes"])")}).status.ok());
}

TEST_F(ConstrainedEngineTest, RefusesWhatDoesNotCompile) {
  engine_ = StartScripted(script_);
  const std::pair<GenerationOptions, std::string> cases[] = {
      {Choices("[]"), "choices must not be empty"},
      {Choices(R"({"a": 1})"), "choices must be an array of strings"},
      {Regex("a("), "regex"},
      {Schema("{"), "schema: not JSON"},
      {Schema(R"({"type": "strin"})"), "at #/type"},
      {{.constraint = {Kind::kGrammar, "start ::= \"a\""}}, "root"},
  };
  for (const auto& [options, message] : cases) {
    EXPECT_THAT(
        std::string(engine_->Submit({.prompt = {1}, .options = options}).status().message()),
        HasSubstr(message));
    EXPECT_THAT(std::string(engine_->CheckConstraint(options).message()), HasSubstr(message));
  }
  EXPECT_TRUE(engine_->CheckConstraint({}).ok());
  EXPECT_TRUE(engine_->CheckConstraint(Regex("a")).ok());
}

}  // namespace
}  // namespace lm

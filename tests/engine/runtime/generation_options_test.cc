#include "engine/runtime/generation_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lm {
namespace {

using testing::HasSubstr;

absl::Status Parse(const std::string& json, GenerationOptions* options) {
  return ParseGenerationOptions(json, options);
}

// The message of a refusal; the options must not have changed.
std::string Refusal(const std::string& json,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  GenerationOptions options;
  options.max_tokens = 77;
  const absl::Status status = Parse(json, &options);
  EXPECT_EQ(status.code(), code) << json << ": " << status;
  EXPECT_EQ(options.max_tokens, 77);
  return std::string(status.message());
}

TEST(GenerationOptionsTest, ExamplesAreGivenOrNamed) {
  GenerationOptions given, again, named;
  ASSERT_TRUE(
      Parse(R"({"examples":[{"prompt":"a","answer":"b"},{"answer":"d","prompt":"c"}]})", &given)
          .ok());
  EXPECT_EQ(given.examples, Examples({{"a", "b"}, {"c", "d"}}));
  EXPECT_TRUE(CheckExamples(given).ok());
  ASSERT_TRUE(
      Parse(R"({"examples":[{"prompt":"a","answer":"b"},{"prompt":"c","answer":"d"}]})", &again)
          .ok());
  EXPECT_EQ(given, again);
  ASSERT_TRUE(Parse(R"({"examples":"mood"})", &named).ok());
  EXPECT_NE(given, named);
  EXPECT_THAT(std::string(CheckExamples(named).message()), HasSubstr("'mood' is a set"));
  EXPECT_THAT(Refusal(R"({"examples":[{"prompt":"a","answer":"b","x":"y"}]})"),
              HasSubstr("unknown key 'x' of examples[0]"));
  EXPECT_THAT(Refusal(R"({"examples":3})"), HasSubstr("got 3"));
}

TEST(GenerationOptionsTest, TakesEveryOption) {
  GenerationOptions o;
  const absl::Status status = Parse(R"({"model": "qwen", "max_tokens": 5, "temperature": 0.5,
      "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.1,
      "seed": 18446744073709551615, "logit_bias": {"7": -1.5, "12": 3},
      "on_error": "json", "on_overflow": "truncate_end", "timeout_ms": 2500,
      "on_length": "complete", "max_seconds": 1.5, "max_total_tokens": 9000, "max_cost": 0.25,
      "json_spaces": true, "additional": true, "strict_schema": true, "schema": true,
      "priority": "interactive"})",
                                    &o);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(o.model, "qwen");
  EXPECT_EQ(o.max_tokens, 5);
  EXPECT_EQ(o.temperature, 0.5);
  EXPECT_EQ(o.top_k, 40);
  EXPECT_EQ(o.top_p, 0.9);
  EXPECT_EQ(o.min_p, 0.05);
  EXPECT_EQ(o.repeat_penalty, 1.1);
  EXPECT_EQ(o.seed, UINT64_MAX);
  EXPECT_THAT(o.logit_bias,
              testing::UnorderedElementsAre(testing::Pair(7, -1.5), testing::Pair(12, 3.0)));
  EXPECT_EQ(o.on_error, OnError::kJson);
  EXPECT_EQ(o.on_overflow, OnOverflow::kTruncateEnd);
  EXPECT_EQ(o.timeout_ms, 2500);
  EXPECT_TRUE(o.constraint.additional);
  EXPECT_TRUE(o.constraint.strict_schema);
  EXPECT_EQ(o.on_length, OnLength::kComplete);
  EXPECT_EQ(o.max_seconds, 1.5);
  EXPECT_EQ(o.max_total_tokens, 9000);
  EXPECT_EQ(o.max_cost, 0.25);
  EXPECT_EQ(o.constraint,
            (AnswerConstraint{AnswerConstraint::Kind::kSchema, "true", true, true, true}));
  EXPECT_EQ(o.priority, Priority::kInteractive);
}

TEST(GenerationOptionsTest, WhatIsDrawnHasATemperatureAboveZero) {
  GenerationOptions o;
  ASSERT_TRUE(Parse(R"({"n": 3})", &o).ok());
  EXPECT_EQ(TemperatureOf(o), 1);
  for (const char* text : {R"({"n": 3, "temperature": 0})", R"({"temperature": 0.0, "vote": 3})",
                           R"({"best_of": 3, "temperature": 0})"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("temperature must be > 0 beside vote, n or best_of"));
  }
  o = {};
  ASSERT_TRUE(Parse(R"({"n": 3, "temperature": 0.5})", &o).ok());
  EXPECT_EQ(TemperatureOf(o), 0.5);
  EXPECT_EQ(TemperatureOf({}), 0);
}

TEST(GenerationOptionsTest, OverlaysOnlyWhatIsThere) {
  GenerationOptions o;
  o.max_tokens = 9;
  ASSERT_TRUE(Parse(R"({"temperature": 1, "stop": "x"})", &o).ok());
  EXPECT_EQ(o.max_tokens, 9);
  EXPECT_EQ(o.temperature, 1);
  EXPECT_THAT(o.stop, testing::ElementsAre("x"));
  ASSERT_TRUE(Parse(R"({"stop": ["a", "é"]})", &o).ok());
  EXPECT_THAT(o.stop, testing::ElementsAre("a", "é"));
  ASSERT_TRUE(Parse("{}", &o).ok());
  EXPECT_EQ(o.temperature, 1);
}

TEST(GenerationOptionsTest, UnknownKeysAreNamedWithTheNearest) {
  EXPECT_EQ(Refusal(R"({"temprature": 1})"),
            "unknown option 'temprature'; the nearest known one is 'temperature'");
  EXPECT_THAT(Refusal(R"({"maxtokens": 1})"), HasSubstr("'max_tokens'"));
  // One that is meant, not any.
  EXPECT_EQ(Refusal(R"({"colour": 1})"),
            "unknown option 'colour'; sql/guide/options.md has tables of those that are known");
  const std::vector<std::string> own = {"multi", "threshold"};
  EXPECT_EQ(UnknownOption("mutli", own).message(),
            "unknown option 'mutli'; the nearest known one is 'multi'");
  EXPECT_EQ(UnknownOption("colour", own).message(),
            "unknown option 'colour'; multi, threshold and generate()'s are known");
  const std::string endless = Refusal("{\"" + std::string(100000, 'x') + "\": 1}");
  EXPECT_LT(endless.size(), 200u);
  EXPECT_THAT(Refusal("{\"a\\n\\u001b[2J\": 1}"), HasSubstr("'a\\n\\x1b[2J'"));
}

TEST(GenerationOptionsTest, WrongTypesAreNamed) {
  EXPECT_EQ(Refusal(R"({"max_tokens": "5"})"), "max_tokens must be an integer, got the string '5'");
  EXPECT_EQ(Refusal(R"({"max_tokens": 3.0})"), "max_tokens must be an integer, got 3.0");
  EXPECT_EQ(Refusal(R"({"temperature": null})"), "temperature must be a number, got null");
  EXPECT_EQ(Refusal(R"({"model": 1})"), "model must be a string, got 1");
  EXPECT_EQ(Refusal(R"({"stop": {"a": 1}})"),
            "stop must be a string or an array of strings, got an object");
  EXPECT_EQ(Refusal(R"({"stop": ["a", true]})"), "each element of stop must be a string, got true");
  EXPECT_THAT(Refusal(R"({"logit_bias": [1]})"), HasSubstr("got an array"));
  EXPECT_THAT(Refusal(R"({"logit_bias": {"a": 1}})"), HasSubstr("token id, got 'a'"));
  EXPECT_THAT(Refusal(R"({"logit_bias": {"+1": 1}})"), HasSubstr("token id, got '+1'"));
  EXPECT_THAT(Refusal(R"({"logit_bias": {"99999999999": 1}})"), HasSubstr("got '99999999999'"));
  EXPECT_EQ(Refusal(R"({"logit_bias": {"05": 1, "5": 2}})"), "logit_bias names token 5 twice");
  EXPECT_EQ(Refusal(R"({"logit_bias": {"3": "x"}})"),
            "logit_bias of token 3 must be a number, got the string 'x'");
  EXPECT_EQ(Refusal(R"({"on_error": "ignore"})"),
            "on_error must be 'error' or 'null' or 'json', got the string 'ignore'");
}

TEST(GenerationOptionsTest, RangesAreHeld) {
  EXPECT_EQ(Refusal(R"({"temperature": -1})"), "temperature must be >= 0, got -1");
  EXPECT_EQ(Refusal(R"({"max_tokens": -1})"), "max_tokens must be >= 0, got -1");
  EXPECT_EQ(Refusal(R"({"max_tokens": 2147483648})"),
            "max_tokens must be between 0 and 2147483647, got 2147483648");
  EXPECT_EQ(Refusal(R"({"top_k": -2147483649})"),
            "top_k must be between 0 and 2147483647, got -2147483649");
  EXPECT_EQ(Refusal(R"({"vote": 2147483648})"), "vote must be between 0 and 100, got 2147483648");
  EXPECT_EQ(Refusal(R"({"seed": -1})"), "seed must be between 0 and 18446744073709551615, got -1");
  EXPECT_EQ(Refusal(R"({"top_p": 0})"), "top_p must be in (0, 1], got 0");
  EXPECT_EQ(Refusal(R"({"top_p": 1.5})"), "top_p must be in (0, 1], got 1.5");
  EXPECT_EQ(Refusal(R"({"min_p": -0.1})"), "min_p must be in [0, 1], got -0.1");
  EXPECT_EQ(Refusal(R"({"repeat_penalty": 0})"), "repeat_penalty must be > 0, got 0");
  EXPECT_EQ(Refusal(R"({"top_k": -3})"), "top_k must be >= 0, got -3");
  EXPECT_EQ(Refusal(R"({"timeout_ms": -3})"), "timeout_ms must be >= 0, got -3");
  EXPECT_EQ(Refusal(R"({"max_seconds": -0.5})"), "max_seconds must be >= 0, got -0.5");
  EXPECT_EQ(Refusal(R"({"max_total_tokens": -1})"), "max_total_tokens must be >= 0, got -1");
  EXPECT_EQ(Refusal(R"({"max_cost": -2})"), "max_cost must be >= 0, got -2");
  EXPECT_EQ(Refusal(R"({"on_length": "x"})"),
            "on_length must be 'cut' or 'complete', got the string 'x'");
  EXPECT_EQ(Refusal(R"({"stop": ""})"), "stop must not hold an empty string");
  std::string many = R"({"stop": ["a")";
  for (int i = 0; i < 64; ++i) many += R"(, "a")";
  EXPECT_EQ(Refusal(many + "]}"), "stop must be at most 64 strings, got 65");
  EXPECT_THAT(Refusal("{\"stop\": \"" + std::string(5000, 'a') + "\"}"), HasSubstr("got 5000"));
}

TEST(GenerationOptionsTest, NanIsOutOfEveryRange) {
  for (double GenerationOptions::*field :
       {&GenerationOptions::temperature, &GenerationOptions::top_p, &GenerationOptions::min_p,
        &GenerationOptions::repeat_penalty}) {
    GenerationOptions options;
    options.*field = std::nan("");
    EXPECT_FALSE(ValidateGenerationOptions(options).ok());
  }
}

TEST(GenerationOptionsTest, WhatIsNotAnObjectIsRefusedWithThePosition) {
  EXPECT_EQ(Refusal(R"({"seed": 1,})"), "options are not valid JSON: the error is at byte 12");
  EXPECT_THAT(Refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal("{\"a\": \"\xff\"}"), HasSubstr("byte 8"));
  EXPECT_THAT(Refusal(R"({"temperature": 1e999})"), HasSubstr("not valid JSON"));
  for (const char* text : {"[]", "1", "\"x\"", "null", "true", "1.5", "[{}]"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("must be a JSON object"));
  }
  EXPECT_EQ(Refusal(R"({"seed": 1, "seed": 2})"), "option 'seed' is there twice");
  EXPECT_EQ(Refusal("{\"stop\": " + std::string(1000000, '[')), "options are nested too deeply");
}

TEST(GenerationOptionsTest, AConstraintIsKeptAsItWasWritten) {
  using Kind = AnswerConstraint::Kind;
  const std::pair<std::string, AnswerConstraint> cases[] = {
      {R"({"choices": ["b", "a\"", "ü"]})", {Kind::kChoices, R"(["b","a\"","ü"])"}},
      {R"({"regex": "[a-z]+"})", {Kind::kRegex, "[a-z]+"}},
      {R"({"grammar": "root ::= \"x\""})", {Kind::kGrammar, "root ::= \"x\""}},
      {R"({"schema": {"type": "object", "properties": {"z": {}, "a": {}}}})",
       {Kind::kSchema, R"({"type":"object","properties":{"z":{},"a":{}}})"}},
      {R"({"schema": "{\"z\": 1, \"a\": 2}"})", {Kind::kSchema, R"({"z": 1, "a": 2})"}},
      {R"({"schema": true})", {Kind::kSchema, "true"}}};
  for (const auto& [json, constraint] : cases) {
    GenerationOptions o;
    const absl::Status status = Parse(json, &o);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(o.constraint.kind, constraint.kind) << json;
    EXPECT_EQ(o.constraint.text, constraint.text) << json;
  }
}

TEST(GenerationOptionsTest, ConstraintsOfTheWrongKindAreNamed) {
  EXPECT_EQ(Refusal(R"({"choices": "a"})"),
            "choices must be an array of strings, got the string 'a'");
  EXPECT_EQ(Refusal(R"({"choices": ["a", 1]})"), "each element of choices must be a string, got 1");
  EXPECT_EQ(Refusal(R"({"regex": 1})"), "regex must be a string, got 1");
  EXPECT_EQ(Refusal(R"({"grammar": ["a"]})"), "grammar must be a string, got an array");
  EXPECT_EQ(Refusal(R"({"schema": []})"),
            "schema must be a JSON Schema, or a string that holds one, got an array");
  EXPECT_EQ(Refusal(R"({"regex": "a", "choices": ["a"]})"),
            "regex and choices cannot be combined: an answer follows one");
  EXPECT_EQ(Refusal(R"({"stop": "a", "schema": {}})"),
            "stop cannot be combined with schema: a stop string could end the answer before it is "
            "whole");
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += R"({"items":)";
  EXPECT_EQ(Refusal(R"({"schema": )" + deep + "1"), "options are nested too deeply");
}

}  // namespace
}  // namespace lm

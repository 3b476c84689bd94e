#include "engine/remote/chat_constraint.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/runtime/constraint_cache.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

std::string Words(Kind kind, const char* text, Dialect dialect) {
  const absl::StatusOr<Json::Object> members = ConstraintMembers({kind, text}, dialect);
  if (!members.ok()) return std::string(members.status().message());
  Json json = Json::MakeObject();
  for (const auto& [name, value] : *members) json.Add(name, value);
  return json.Dump();
}

TEST(ChatConstraintTest, EachDialectHasItsOwnWords) {
  constexpr char kChoices[] = R"(["a+","b"])", kRegex[] = "[0-9]", kGrammar[] = "root ::= [0-9]";
  const struct {
    Kind kind;
    const char* text;
    Dialect dialect;
    const char* words;
  } kWords[] = {
      {Kind::kChoices, kChoices, Dialect::kVllm, R"({"structured_outputs":{"choice":["a+","b"]}})"},
      {Kind::kChoices, kChoices, Dialect::kSglang, R"j({"regex":"(a\\+|b)"})j"},
      {Kind::kChoices, kChoices, Dialect::kTrtllm,
       R"j({"response_format":{"type":"regex","regex":"(a\\+|b)"}})j"},
      {Kind::kChoices, kChoices, Dialect::kLlamaServer, R"({"grammar":"root ::= \"a+\" | \"b\""})"},
      {Kind::kRegex, kRegex, Dialect::kVllm, R"({"structured_outputs":{"regex":"[0-9]"}})"},
      {Kind::kRegex, kRegex, Dialect::kSglang, R"({"regex":"[0-9]"})"},
      {Kind::kRegex, kRegex, Dialect::kTrtllm,
       R"({"response_format":{"type":"regex","regex":"[0-9]"}})"},
      {Kind::kGrammar, kGrammar, Dialect::kVllm,
       R"({"structured_outputs":{"grammar":"root ::= [0-9]"}})"},
      {Kind::kGrammar, kGrammar, Dialect::kSglang, R"({"ebnf":"root ::= [0-9]"})"},
      {Kind::kGrammar, kGrammar, Dialect::kTrtllm,
       R"({"response_format":{"type":"ebnf","ebnf":"root ::= [0-9]"}})"},
      {Kind::kGrammar, kGrammar, Dialect::kLlamaServer, R"({"grammar":"root ::= [0-9]"})"},
      {Kind::kGrammar, kGrammar, Dialect::kOllama,
       "grammar: a server that is spoken to as ollama has no grammars"},
      {Kind::kSchema, "true", Dialect::kTrtllm,
       R"({"response_format":{"type":"json","schema":true}})"},
      {Kind::kSchema, "true", Dialect::kVllm,
       R"({"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":true}}})"},
      {Kind::kSchema, "tru", Dialect::kVllm, "schema is not JSON"},
      {Kind::kNone, "", Dialect::kOpenAi, "{}"},
  };
  for (const auto& one : kWords) {
    EXPECT_EQ(Words(one.kind, one.text, one.dialect), one.words) << DialectName(one.dialect);
  }
}

// What is asked for as a member of an object, or as a text in JSON, is taken out of it again.
TEST(ChatConstraintTest, WhatIsWrappedIsUnwrapped) {
  const AnswerConstraint choices{Kind::kChoices, R"(["yes","no"])"}, regex{Kind::kRegex, "[a-z]+"};
  EXPECT_EQ(UnwrapAnswer(choices, Dialect::kOpenAi, R"( {"answer": "yes"})"), "yes");
  EXPECT_EQ(UnwrapAnswer(choices, Dialect::kTrtllm, "yes"), "yes");
  EXPECT_EQ(UnwrapAnswer(regex, Dialect::kLlamaServer, R"("abc")"), "abc");
  EXPECT_EQ(UnwrapAnswer(regex, Dialect::kOllama, "abc"), std::nullopt);
  const AnswerConstraint schema{Kind::kSchema,
                                R"({"type":"object","properties":{"n":{"type":"integer"}}})"};
  EXPECT_EQ(UnwrapAnswer(schema, Dialect::kVllm, R"({ "n" : 4.0 })"), R"({"n":4})");
  const auto grammar = CompileNotation(schema).value();
  std::string text = R"({"n": "four"})";
  EXPECT_FALSE(ProveAnswer(schema, *grammar, Dialect::kVllm, &text).ok());
}

// Servers write numbers as they like; here they are written as local answers have them.
TEST(ChatConstraintTest, NumbersAreWrittenAsLocalAnswersHaveThem) {
  const AnswerConstraint schema{
      Kind::kSchema,
      R"({"type":"object","properties":{"n":{"type":"array","items":{"type":"number"}}}})"};
  const auto grammar = CompileNotation(schema).value();
  const struct {
    const char *sent, *meant;
  } kNumbers[] = {
      {"0.00001", "0.00001"},
      {"2e-5", "0.00002"},
      {"0.00000000000001", "0.00000000000001"},
      {"1.5e-20", "1.5e-20"},
      {"1e+16", "10000000000000000"},
      {"1E5", "100000"},
      {"1.0e21", "1e21"},
      {"-6.020e+23", "-6.02e23"},
      {"-0.0", "0"},
      {"-4.50", "-4.5"},
      {"123456789012345678", "123456789012345678"},
  };
  for (const auto& [sent, meant] : kNumbers) {
    std::string text = absl::StrCat(R"({"n": [)", sent, ", 1]}");
    const absl::Status fits = ProveAnswer(schema, *grammar, Dialect::kVllm, &text);
    EXPECT_TRUE(fits.ok()) << fits;
    EXPECT_EQ(text, absl::StrCat(R"({"n":[)", meant, ",1]}"));
  }
}

}  // namespace
}  // namespace lm

#include "engine/remote/chat_constraint.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/remote/member_order.h"
#include "engine/runtime/answer_form.h"
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

// OpenAI's servers answer 400 to {"strict":true} beside a schema with an object that is open, a
// member that need not be there, or a keyword that they do not know.
TEST(ChatConstraintTest, OpenAisServersAreStrictWithTheirOwnKindOfSchemaOnly) {
  const auto closed = [](absl::string_view property) {
    return absl::StrCat(R"({"type":"object","properties":{"a":)", property,
                        R"(},"required":["a"],"additionalProperties":false})");
  };
  const std::string text = closed(R"({"type":"string"})");
  const std::pair<std::string, bool> kSchemas[] = {
      {text, true},
      {closed(R"({"type":["string","null"],"pattern":"^a","description":"x"})"), true},
      {closed(R"({"type":"array","items":{"type":"integer","minimum":0},"maxItems":3})"), true},
      {closed(text), true},
      {closed(absl::StrCat(R"({"anyOf":[)", text, R"(,{"type":"null"}]})")), true},
      {closed(R"({"type":"string","minLength":1})"), false},
      {closed(R"({"enum":[1,"a"]})"), false},
      {closed("true"), false},
      {closed(R"({"type":"object"})"), false},
      {closed(R"({"type":"array","items":{"type":"object","properties":{}}})"), false},
      {closed(R"({"anyOf":[{"type":"object"},{"type":"null"}]})"), false},
      {R"({"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false})",
       false},
      {R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})", false},
      {R"({"type":"array","items":{"type":"string"}})", false},  // it must be an object
      {"true", false},
  };
  for (const auto& [schema, strict] : kSchemas) {
    const std::string words = Words(Kind::kSchema, schema.c_str(), Dialect::kOpenAi);
    EXPECT_EQ(absl::StrContains(words, R"("strict":true)"), strict) << words;
  }
  EXPECT_EQ(
      Words(Kind::kExtraction, R"({"type":"object","properties":{"n":{"type":"integer"}}})",
            Dialect::kOpenAi),
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":)"
      R"({"type":"object","properties":{"n":{"anyOf":[{"type":"integer"},{"type":"null"}]}},)"
      R"("required":["n"],"additionalProperties":false}}}})");
  for (const Kind kind : {Kind::kChoices, Kind::kRegex}) {
    EXPECT_TRUE(absl::StrContains(Words(kind, R"(["a"])", Dialect::kOpenAi), R"("strict":true)"));
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

// Whoever answers a batch file may not know of the object that OpenAI's servers want. What counts
// is what is meant: a wrapped answer is never taken as it stands.
TEST(ChatConstraintTest, WhatIsNotWrappedFitsAsItStands) {
  auto proven = [](Kind kind, const char* constraint, Dialect dialect, std::string text) {
    const AnswerConstraint held{kind, constraint};
    const auto grammar = CompileNotation(held).value();
    return ProveAnswer(held, *grammar, dialect, &text).ok() ? text : "(does not fit)";
  };
  constexpr char kLabels[] = R"(["praise","12","{\"answer\":\"no\"}"])";
  for (const Dialect dialect : {Dialect::kOpenAi, Dialect::kOllama}) {
    EXPECT_EQ(proven(Kind::kChoices, kLabels, dialect, "praise"), "praise");
    EXPECT_EQ(proven(Kind::kChoices, kLabels, dialect, "12"), "12");
    EXPECT_EQ(proven(Kind::kChoices, kLabels, dialect, R"({"answer":"praise"})"), "praise");
    EXPECT_EQ(proven(Kind::kRegex, ".*", dialect, R"({"answer":"a"})"), "a");
    for (const char* text : {" praise\n", "praise ", R"({"answer":"praise\n"})"}) {
      EXPECT_EQ(proven(Kind::kChoices, kLabels, dialect, text), "praise") << text;
    }
    for (const char* text : {"Praise", "prais", "praise!", "", R"("praise")", R"({"answer":"no"})",
                             R"({"answer":"perhaps"})", R"({"label":"praise"})"}) {
      EXPECT_EQ(proven(Kind::kChoices, kLabels, dialect, text), "(does not fit)") << text;
    }
  }
  EXPECT_EQ(proven(Kind::kChoices, R"(["a"," a"])", Dialect::kVllm, " a"), " a");
  EXPECT_EQ(proven(Kind::kChoices, R"(["a"," b"])", Dialect::kVllm, "\ta\r\n"), "a");
  EXPECT_EQ(proven(Kind::kRegex, "[0-9]+", Dialect::kVllm, "12\n"), "(does not fit)");
  EXPECT_EQ(proven(Kind::kRegex, "[0-9]+", Dialect::kLlamaServer, "12"), "12");
  EXPECT_EQ(proven(Kind::kRegex, "[0-9]+", Dialect::kLlamaServer, R"("12")"), "12");
  EXPECT_EQ(proven(Kind::kRegex, "\"[0-9]+\"", Dialect::kLlamaServer, R"("12")"), "(does not fit)");
  EXPECT_EQ(proven(Kind::kSchema, R"({"type":"string"})", Dialect::kOpenAi, "bare"),
            "(does not fit)");
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

// Of numbers that the grammar does not write the schema says whether they are valid. What was
// proven is an answer whenever it is looked at again.
TEST(ChatConstraintTest, NumbersOfServersMayBeAnyThatAreValid) {
  constexpr char kNumber[] = R"({"type":"number"})", kInteger[] = R"({"type":"integer"})";
  constexpr char kUpToOne[] =
      R"({"type":"object","properties":{"p":{"type":"number","maximum":0.3}}})";
  constexpr char kFromZero[] = R"({"type":"number","minimum":0})";
  constexpr char kInt64[] = R"({"type":"integer","format":"int64"})";
  constexpr char kPlace[] =
      R"({"type":"object","properties":{"lat":{"type":"number"},"name":{"type":"string"}}})";
  const struct {
    const char *schema, *sent, *meant;  // empty: it does not fit
  } kAnswers[] = {
      {kNumber, "100000000000000000000", "100000000000000000000"},
      {kNumber, "3.141592653589793", "3.141592653589793"},
      {kNumber, "-0.30000000000000004", "-0.30000000000000004"},
      {kNumber, "1.2345678901234568e-5", "1.2345678901234568e-5"},
      {kInteger, "1234567890123456789", "1234567890123456789"},
      {kInteger, "-9223372036854775808", "-9223372036854775808"},
      {kInteger, "3.141592653589793", ""},
      {kUpToOne, R"({"p":0.29999999999999993})", R"({"p":0.29999999999999993})"},
      {kUpToOne, R"({"p":0.30000000000000004})", ""},
      {kUpToOne, R"({"p":0.29999999999999993,"q":1})", ""},
      {kUpToOne, R"({"p":100000000000000000000})", ""},
      {R"({"minimum":0})", "100000000000000000000", "100000000000000000000"},
      {R"({"minimum":0})", "-100000000000000000000", ""},
      {R"({"enum":[0.3,3]})", "0.30000000000000004", ""},
      {R"({"type":"integer","multipleOf":7})", "1234567890123456789", ""},
      {R"({"type":"array","items":{"type":"number"}})", "[2.718281828459045, 1.0]",
       "[2.718281828459045,1]"},
      {R"({"type":"string"})", R"("3.141592653589793)", ""},
      {kFromZero, "1e-30", "1e-30"},
      {kFromZero, "1.2345E-16", "1.2345e-16"},
      {kFromZero, "1e25", "1e25"},
      {kFromZero, "-1e-30", ""},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":1})", "2.5e-19", "2.5e-19"},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":1})", "1e25", ""},
      {R"({"type":"number","minimum":1e20})", "1.5e25", "1.5e25"},
      {R"({"type":"array","items":{"type":"number","minimum":0}})", "[1e-30,2,3e-30]",
       "[1e-30,2,3e-30]"},
      {R"({"type":"array","items":{"type":"number"},"maxItems":1})", "[1e-30,2.718281828459045]",
       ""},
      {kInt64, "9223372036854775807", "9223372036854775807"},
      {kInt64, "9223372036854775808", ""},
      {kInt64, "1234567890123456789012345", ""},
      {R"({"type":"number","format":"int32"})", "-2147483648.5", ""},
      {R"({"type":"number","format":"double"})", "0.12345678901234568", "0.12345678901234568"},
      {R"({"type":"number","multipleOf":0.5})", "1e25", "1e25"},
      {R"({"type":"number","multipleOf":0.7})", "7e25", "7e25"},
      {R"({"type":"number","multipleOf":0.7})", "1e25", ""},
      // A number finds the branch that its neighbours are of.
      {R"({"anyOf":[{"properties":{"n":{"minimum":0},"of":{"const":"a"}}},
                    {"properties":{"n":{"maximum":0},"of":{"const":"b"}}}]})",
       R"({"n":-1e-30,"of":"b"})", R"({"n":-1e-30,"of":"b"})"},
      {kPlace, R"({"lat":48.856614123456789,"name":"\"-1e-30"})",
       R"({"lat":48.85661412345679,"name":"\"-1e-30"})"},
      {kPlace, R"({"lat":48.856614123456789,"name":null})", ""},
  };
  for (const auto& [schema, sent, meant] : kAnswers) {
    const AnswerConstraint constraint{Kind::kSchema, schema};
    const auto grammar = CompileNotation(constraint).value();
    std::string text = sent;
    const bool fits = ProveAnswer(constraint, *grammar, Dialect::kVllm, &text).ok();
    EXPECT_EQ(fits ? text : "", meant) << schema << " " << sent;
    EXPECT_EQ(fits && IsAnswer(constraint, *grammar, text), fits) << text;
  }
  // What takes too long to follow does not fit.
  const AnswerConstraint long_array{
      Kind::kSchema, R"({"type":"array","items":{"multipleOf":0.997},"maxItems":4000})"};
  std::string many = "[0";
  for (int i = 1; i < 4000; ++i) many += ",9.97e40";
  many += "]";
  EXPECT_FALSE(IsAnswer(long_array, *CompileNotation(long_array).value(), many));
  const AnswerConstraint extraction{Kind::kExtraction, kPlace};
  const auto grammar = CompileNotation(extraction).value();
  std::string text = R"({"lat":48.856614123456789,"name":null})";
  EXPECT_TRUE(ProveAnswer(extraction, *grammar, Dialect::kVllm, &text).ok());
  EXPECT_EQ(text, R"({"lat":48.85661412345679,"name":null})");
  EXPECT_TRUE(IsAnswer(extraction, *grammar, text));
  EXPECT_FALSE(IsAnswer(extraction, *grammar, R"({"lat":48.85661412345679, "name":null})"));
  EXPECT_FALSE(IsAnswer(extraction, *grammar, R"({"lat":48.856614123456789,"name":null})"));
}

// JSON Schema gives members no order; an answer of ours has the schema's.
TEST(ChatConstraintTest, MembersAreBroughtIntoTheSchemasOrder) {
  constexpr char kFlat[] =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"number"}},"required":["b"]})";
  constexpr char kNested[] =
      R"({"type":"object","properties":{"list":{"type":"array","items":{"$ref":"#/$defs/one"}},
          "last":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/one"}},{"$ref":"#/$defs/one"}]}},
          "$defs":{"one":{"type":"object","properties":{"x":{"type":"integer"},"y":{"$ref":"#/$defs/one"}}}}})";
  constexpr char kAllOf[] =
      R"({"type":"object","properties":{"c":{"type":"integer"}},"allOf":[{"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
          "additionalProperties":true}],"additionalProperties":true})";
  const struct {
    Kind kind;
    const char *schema, *sent, *meant;  // empty: it does not fit
  } kAnswers[] = {
      {Kind::kSchema, kFlat, R"({"b":1e-5,"a":1})", R"({"a":1,"b":0.00001})"},
      {Kind::kSchema, kFlat, R"({"b":1})", R"({"b":1})"},
      {Kind::kSchema, kFlat, R"({"b":1,"a":"x"})", ""},
      {Kind::kSchema, kFlat, R"({"b":1,"a":1,"c":1})", ""},
      {Kind::kSchema, kFlat, R"({"b":1,"a":1,"b":1})", ""},
      {Kind::kExtraction, kFlat, R"({"b":1,"a":null})", R"({"a":null,"b":1})"},
      {Kind::kSchema, kNested, R"({"last":null,"list":[{"y":{"y":{},"x":2},"x":1},{"x":3}]})",
       R"({"list":[{"x":1,"y":{"x":2,"y":{}}},{"x":3}],"last":null})"},
      {Kind::kSchema, kNested, R"({"last":{"y":{},"x":1}})", R"({"last":{"x":1,"y":{}}})"},
      {Kind::kSchema, kNested, R"({"last":[{"y":{},"x":1}],"list":[]})",
       R"({"list":[],"last":[{"x":1,"y":{}}]})"},
      {Kind::kSchema, kAllOf, R"({"z":0,"c":3,"y":0,"b":2,"a":1})",
       R"({"a":1,"b":2,"c":3,"z":0,"y":0})"},
  };
  for (const auto& [kind, schema, sent, meant] : kAnswers) {
    const AnswerConstraint constraint{kind, schema};
    const auto grammar = CompileNotation(constraint).value();
    std::string text = sent;
    const bool fits = ProveAnswer(constraint, *grammar, Dialect::kVllm, &text).ok();
    EXPECT_EQ(fits ? text : "", meant) << sent;
  }
}

// Whoever leaves out what need not be there means null.
TEST(ChatConstraintTest, WhatAnExtractionLacksIsNull) {
  constexpr char kPerson[] =
      R"({"type":"object","properties":{"name":{"type":"string"},"born":{"type":"integer"}}})";
  constexpr char kPeople[] =
      R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"born":{"type":"integer"}},"required":["name"]}})";
  constexpr char kNested[] =
      R"({"type":"object","properties":{"who":{"type":"object","properties":{"name":{"type":"string"},"born":{"type":"integer"}}}},"required":["who"]})";
  constexpr char kReferred[] =
      R"({"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"name":{"type":"string"},"next":{"$ref":"#/$defs/p"}}}}})";
  constexpr char kPair[] =
      R"({"type":"array","prefixItems":[{"type":"string"},{"type":"object","properties":{"n":{"type":"integer"}}}],"minItems":2,"maxItems":2})";
  constexpr char kEither[] =
      R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"of":{"const":"a"},"x":{"type":"integer"}},"required":["of"]},
          {"type":"object","properties":{"of":{"const":"b"},"x":{"type":"integer"},"y":{"type":"integer"}},"required":["of"]}]})";
  constexpr char kBoth[] =
      R"({"allOf":[{"$ref":"#/$defs/a"},{"type":"object","properties":{"y":{"type":"integer"}}}],
          "$defs":{"a":{"type":"object","properties":{"x":{"type":"integer"}}}}})";
  constexpr char kOneOfTwo[] =
      R"({"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"}},"anyOf":[{"required":["x"]},{"required":["y"]}]})";
  constexpr char kMap[] =
      R"({"type":"object","additionalProperties":{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"}}}})";
  const struct {
    const char *schema, *sent, *meant;  // empty: it does not fit
  } kAnswers[] = {
      {kPerson, R"({"name":"Ada"})", R"({"name":"Ada","born":null})"},
      {kPerson, R"({ "born" : 1815 })", R"({"name":null,"born":1815})"},
      {kPerson, "{}", R"({"name":null,"born":null})"},
      {kPerson, R"({"name":"Ada","town":"London"})", ""},
      {kPeople, R"([{"name":"Ada"},{"born":null,"name":"Bob"}])",
       R"([{"name":"Ada","born":null},{"name":"Bob","born":null}])"},
      {kPeople, R"([{"born":1815}])", ""},
      {kPeople, R"([{"name":null,"born":1815}])", ""},
      {kNested, R"({"who":{"name":"Ada"}})", R"({"who":{"name":"Ada","born":null}})"},
      {kNested, "{}", ""},
      {kReferred, R"({"next":{"name":"Ada"}})",
       R"({"name":null,"next":{"name":"Ada","next":null}})"},
      {kPair, R"(["a",{}])", R"(["a",{"n":null}])"},
      {kEither, R"({"of":"a"})", R"({"of":"a","x":null})"},
      {kEither, R"({"of":"b"})", R"({"of":"b","x":null,"y":null})"},
      {kEither, "null", "null"},
      {kEither, "{}", ""},
      {kBoth, R"({"y":1})", R"({"x":null,"y":1})"},
      {kOneOfTwo, R"({"y":1})", R"({"x":null,"y":1})"},
      {kOneOfTwo, R"({"x":null,"y":null})", ""},
      {kMap, R"({"p":{"x":1},"q":{}})", R"({"p":{"x":1,"y":null},"q":{"x":null,"y":null}})"},
  };
  for (const auto& [schema, sent, meant] : kAnswers) {
    const AnswerConstraint constraint{Kind::kExtraction, schema};
    const auto grammar = CompileNotation(constraint).value();
    std::string text = sent;
    const bool fits = ProveAnswer(constraint, *grammar, Dialect::kVllm, &text).ok();
    EXPECT_EQ(fits ? text : "", meant) << schema << " " << sent;
  }
  // In a schema that is no extraction's what is absent stays absent.
  const AnswerConstraint schema{Kind::kSchema, kPerson};
  std::string text = R"({"name": "Ada"})";
  EXPECT_TRUE(ProveAnswer(schema, *CompileNotation(schema).value(), Dialect::kVllm, &text).ok());
  EXPECT_EQ(text, R"({"name":"Ada"})");
}

// Where each schema leads to two more, and none of them has properties, it comes to an end.
TEST(ChatConstraintTest, TheOrderOfMembersIsNotSoughtForEver) {
  std::string definitions;
  for (int i = 0; i < 40; ++i) {
    const std::string next = absl::StrCat(R"({"$ref":"#/$defs/d)", i + 1, R"("})");
    absl::StrAppend(&definitions, R"("d)", i, R"(":{"anyOf":[)", next, ",", next,
                    R"(,{"$ref":"#"}]},)");
  }
  const std::string schema =
      absl::StrCat(R"({"$defs":{)", definitions, R"("d40":true},"$ref":"#/$defs/d0"})");
  const Json value = *Json::Parse(R"({"b":1,"a":[{"d":1,"c":2}]})");
  EXPECT_EQ(InMemberOrder(value, schema), value);
  EXPECT_EQ(InMemberOrder(value, "no JSON"), value);
}

}  // namespace
}  // namespace lm

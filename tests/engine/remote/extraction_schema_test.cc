#include "engine/remote/extraction_schema.h"

#include <gtest/gtest.h>

#include "engine/remote/chat_constraint.h"
#include "engine/runtime/constraint_cache.h"

namespace lm {
namespace {

std::string Asked(const char* schema, bool additional = false) {
  AnswerConstraint constraint{AnswerConstraint::Kind::kExtraction, schema};
  constraint.additional = additional;
  const absl::StatusOr<Json> asked = ExtractionSchema(constraint);
  return asked.ok() ? asked->Dump() : std::string(asked.status().message());
}

// An answer as it is proven; empty where it does not fit.
std::string Proven(const char* schema, const char* sent) {
  const AnswerConstraint constraint{AnswerConstraint::Kind::kExtraction, schema};
  const auto grammar = CompileNotation(constraint).value();
  std::string text = sent;
  return ProveAnswer(constraint, *grammar, Dialect::kVllm, &text).ok() ? text : "";
}

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

// Null is offered, and nothing left out, at every depth: for what is required there is no null.
TEST(ExtractionSchemaTest, WhatIsAskedForIsWhatIsProven) {
  const std::pair<const char*, const char*> kSchemas[] = {
      {kPerson,
       R"({"type":"object","properties":{"name":{"anyOf":[{"type":"string"},{"type":"null"}]},"born":{"anyOf":[{"type":"integer"},{"type":"null"}]}},)"
       R"("required":["name","born"],"additionalProperties":false})"},
      {kPeople,
       R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"born":{"anyOf":[{"type":"integer"},{"type":"null"}]}},)"
       R"("required":["name","born"],"additionalProperties":false}})"},
      {kReferred,
       R"({"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"name":{"anyOf":[{"type":"string"},{"type":"null"}]},)"
       R"("next":{"anyOf":[{"$ref":"#/$defs/p"},{"type":"null"}]}},"required":["name","next"],"additionalProperties":false}}})"},
      {kPair,
       R"({"type":"array","prefixItems":[{"type":"string"},{"type":"object","properties":{"n":{"anyOf":[{"type":"integer"},{"type":"null"}]}},)"
       R"("required":["n"],"additionalProperties":false}],"minItems":2,"maxItems":2})"},
      // Each closed, they would rule out each other's members.
      {kBoth,
       R"({"allOf":[{"$ref":"#/$defs/a"},{"type":"object","properties":{"y":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["y"]}],)"
       R"("$defs":{"a":{"type":"object","properties":{"x":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["x"]}}})"},
      {kOneOfTwo,
       R"({"type":"object","anyOf":[{"properties":{"x":{"$ref":"#/properties/x/anyOf/0"}},"required":["x"]},)"
       R"({"properties":{"y":{"$ref":"#/properties/y/anyOf/0"}},"required":["y"]}],)"
       R"("properties":{"x":{"anyOf":[{"type":"integer"},{"type":"null"}]},"y":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["x","y"]})"},
      // What is referred to is where it was, but for the null; nulls are not counted.
      {R"({"properties":{"a":{"items":{"type":"integer"}},"b":{"$ref":"#/properties/a/items"}},"required":["b"],"maxProperties":1,"additionalProperties":true})",
       R"({"additionalProperties":true,"properties":{"a":{"anyOf":[{"items":{"type":"integer"}},{"type":"null"}]},"b":{"$ref":"#/properties/a/anyOf/0/items"}},)"
       R"("required":["a","b"]})"},
      {R"({"enum":[{"properties":{"x":1}}]})", R"({"enum":[{"properties":{"x":1}}]})"},
      {"true", "true"},
  };
  for (const auto& [schema, asked] : kSchemas) EXPECT_EQ(Asked(schema), asked);
  EXPECT_EQ(Asked(R"({"properties":{"a":true}})", /*additional=*/true),
            R"({"properties":{"a":{"anyOf":[true,{"type":"null"}]}},"required":["a"]})");
  EXPECT_FALSE(ExtractionSchema({AnswerConstraint::Kind::kExtraction, "tru"}).ok());
}

// Whoever leaves out what need not be there means null.
TEST(ExtractionSchemaTest, WhatIsAbsentIsNull) {
  const struct {
    const char *schema, *sent, *meant;
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
    EXPECT_EQ(Proven(schema, sent), meant) << schema << " " << sent;
  }
}

// In a schema that is no extraction's what is absent stays absent.
TEST(ExtractionSchemaTest, OtherSchemasHaveNoNulls) {
  const AnswerConstraint constraint{AnswerConstraint::Kind::kSchema, kPerson};
  const auto grammar = CompileNotation(constraint).value();
  std::string text = R"({"name": "Ada"})";
  EXPECT_TRUE(ProveAnswer(constraint, *grammar, Dialect::kVllm, &text).ok());
  EXPECT_EQ(text, R"({"name":"Ada"})");
}

}  // namespace
}  // namespace lm

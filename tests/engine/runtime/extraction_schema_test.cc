#include "engine/runtime/extraction_schema.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

std::string Asked(const char* schema, bool additional = false) {
  AnswerConstraint constraint{AnswerConstraint::Kind::kExtraction, schema};
  constraint.additional = additional;
  const absl::StatusOr<Json> asked = ExtractionSchema(constraint);
  return asked.ok() ? asked->Dump() : std::string(asked.status().message());
}

constexpr char kPerson[] =
    R"({"type":"object","properties":{"name":{"type":"string"},"born":{"type":"integer"}}})";
constexpr char kPeople[] =
    R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"born":{"type":"integer"}},"required":["name"]}})";
constexpr char kReferred[] =
    R"({"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"name":{"type":"string"},"next":{"$ref":"#/$defs/p"}}}}})";
constexpr char kPair[] =
    R"({"type":"array","prefixItems":[{"type":"string"},{"type":"object","properties":{"n":{"type":"integer"}}}],"minItems":2,"maxItems":2})";
constexpr char kBoth[] =
    R"({"allOf":[{"$ref":"#/$defs/a"},{"type":"object","properties":{"y":{"type":"integer"}}}],
        "$defs":{"a":{"type":"object","properties":{"x":{"type":"integer"}}}}})";
constexpr char kOneOfTwo[] =
    R"({"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"}},"anyOf":[{"required":["x"]},{"required":["y"]}]})";

// Null is offered, and nothing left out, at every depth: for what is required there is no null.
TEST(ExtractionSchemaTest, WhatNeedNotBeThereMayBeNull) {
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
       R"("properties":{"x":{"anyOf":[{"type":"integer"},{"type":"null"}]},"y":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["x","y"],"additionalProperties":false})"},
      // What is referred to is where it was, but for the null; nulls are not counted.
      {R"({"properties":{"a":{"items":{"type":"integer"}},"b":{"$ref":"#/properties/a/items"}},"required":["b"],"maxProperties":1,"additionalProperties":true})",
       R"({"additionalProperties":true,"properties":{"a":{"anyOf":[{"items":{"type":"integer"}},{"type":"null"}]},"b":{"$ref":"#/properties/a/anyOf/0/items"}},)"
       R"("required":["a","b"]})"},
      // References from a schema with an $id of its own lead into that one.
      {R"({"properties":{"p":{"$id":"http://e/y","properties":{"q":{"type":"string"},"r":{"$ref":"#/properties/q"}}}}})",
       R"({"properties":{"p":{"anyOf":[{"$id":"http://e/y","properties":{"q":{"type":"string"},"r":{"$ref":"#/properties/q"}}},{"type":"null"}]}},)"
       R"("required":["p"],"additionalProperties":false})"},
      {R"({"enum":[{"properties":{"x":1}}]})", R"({"enum":[{"properties":{"x":1}}]})"},
      {"true", "true"},
  };
  for (const auto& [schema, asked] : kSchemas) EXPECT_EQ(Asked(schema), asked);
  EXPECT_EQ(Asked(R"({"properties":{"a":true}})", /*additional=*/true),
            R"({"properties":{"a":{"anyOf":[true,{"type":"null"}]}},"required":["a"]})");
  EXPECT_FALSE(ExtractionSchema({AnswerConstraint::Kind::kExtraction, "tru"}).ok());
}

}  // namespace
}  // namespace lm

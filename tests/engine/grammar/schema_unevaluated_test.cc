// unevaluatedProperties and unevaluatedItems. What is said about a text here is what
// python3-jsonschema says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

struct UnevaluatedCase {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

const std::vector<UnevaluatedCase>& UnevaluatedCases() {
  static const auto& cases = *new std::vector<UnevaluatedCase>({
      {R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","unevaluatedProperties":{"type":"integer"}})",
       {"{}", R"({"a":1})"},
       {R"({"a":"s"})"}},
      // What stands beside it, and in allOf and $ref.
      {R"({"type":"object","properties":{"a":{}},"allOf":[{"properties":{"b":{}}}],
           "$ref":"#/$defs/c","$defs":{"c":{"patternProperties":{"^x":{"type":"integer"}}}},
           "unevaluatedProperties":false})",
       {"{}", R"({"b":2,"a":1})", R"({"a":1,"xy":2})"},
       {R"({"c":1})", R"({"xy":"s"})"}},
      {R"({"type":"object","properties":{"a":{}},"allOf":[{"additionalProperties":{"type":"null"}}],
           "unevaluatedProperties":false})",
       {R"({"a":null,"z":null})"},
       {R"({"z":1})", R"({"a":1})"}},
      {R"({"type":"object","allOf":[{"properties":{"a":{}}},{"unevaluatedProperties":false}]})",
       {"{}"},
       {R"({"a":1})"}},
      {R"({"type":"object","allOf":[{"properties":{"a":{}},"unevaluatedProperties":{"const":1}}],
           "unevaluatedProperties":false})",
       {R"({"a":2,"b":1})"},
       {R"({"b":2})"}},
      {R"({"type":"object","not":{"not":{"properties":{"a":{}}}},"unevaluatedProperties":false})",
       {"{}"},
       {R"({"a":1})"}},
      // Branches that are valid.
      {R"({"type":"object","anyOf":[{"properties":{"a":{}},"required":["a"]},
           {"properties":{"b":{"type":"integer"}},"required":["b"]},
           {"properties":{"c":{}}}],"unevaluatedProperties":false})",
       {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})", R"({"b":2,"c":3})"},
       {R"({"b":"s"})", R"({"d":1})", R"({"a":1,"b":"s"})"}},
      {R"({"type":"object","oneOf":[{"properties":{"a":{}},"required":["a"]},
           {"properties":{"b":{}}}],"unevaluatedProperties":false})",
       {"{}", R"({"b":1})"},
       {R"({"a":1})", R"({"a":1,"b":1})"}},
      {R"({"type":"object","if":{"properties":{"k":{"const":1}},"required":["k"]},
           "then":{"properties":{"a":{}}},"else":{"properties":{"b":{}}},
           "unevaluatedProperties":false})",
       {"{}", R"({"k":1,"a":2})", R"({"b":2})"},
       {R"({"k":1,"b":2})", R"({"a":2})", R"({"k":2})"}},
      {R"({"type":"object","if":{"properties":{"a":{"type":"integer"}}},
           "unevaluatedProperties":false})",
       {"{}", R"({"a":1})"},
       {R"({"a":"s"})", R"({"b":1})"}},
      {R"({"type":"object","properties":{"a":{}},
           "dependentSchemas":{"a":{"properties":{"b":{}}}},"unevaluatedProperties":false})",
       {"{}", R"({"a":1,"b":1})"},
       {R"({"b":1})"}},
      {R"({"type":"object","properties":{"x":{"$ref":"#"}},"unevaluatedProperties":false})",
       {R"({"x":{"x":{}}})"},
       {R"({"x":{"y":{}}})"}},
      // Where no keyword has schemas, as in OpenAPI's `components`.
      {R"x({"$ref":"#/components/schemas/A","components":{"schemas":{
           "A":{"type":"object","unevaluatedProperties":false,
                "anyOf":[{"$ref":"#/components/schemas/B"}],
                "oneOf":[{"properties":{"c":{"const":1}},"required":["c"]},
                         {"properties":{"d":{"const":1}},"required":["d"]}]},
           "B":{"properties":{"b":{"const":2}},"required":["b"]}}}})x",
       {R"({"b":2,"c":1})", R"({"b":2,"d":1})"},
       {R"({"b":2})", R"({"c":1})", R"({"b":2,"c":1,"d":1})", R"({"b":2,"c":1,"e":1})"}},
      // Values that are spelled out.
      {R"({"enum":[{"a":1},{"b":1},{"a":1,"b":1},[1],7],
           "anyOf":[{"properties":{"a":{}},"required":["a"]},true],"unevaluatedProperties":false})",
       {R"({"a":1})", "[1]", "7"},
       {R"({"b":1})", R"({"a":1,"b":1})"}},
      {R"({"enum":[[],[1],[1,2]],"prefixItems":[{}],"unevaluatedItems":false})",
       {"[]", "[1]"},
       {"[1,2]"}},
      // Items.
      {R"({"type":"array","prefixItems":[{"type":"string"}],"unevaluatedItems":{"type":"integer"}})",
       {"[]", R"(["a"])", R"(["a",1,2])"},
       {"[1]", R"(["a","b"])"}},
      {R"({"type":"array","prefixItems":[{}],"allOf":[{"prefixItems":[{},{"const":2}]}],
           "unevaluatedItems":false})",
       {"[]", "[1]", "[1,2]"},
       {"[1,3]", "[1,2,3]"}},
      {R"({"type":"array","anyOf":[{"prefixItems":[{"const":1}]},
           {"prefixItems":[{},{"const":2}]}],"unevaluatedItems":false,"minItems":1})",
       {"[1]", "[1,2]", "[3,2]"},
       {"[1,3]", "[1,2,3]", "[]"}},
      {R"({"type":"array","allOf":[{"items":{"type":"integer"}}],"unevaluatedItems":false})",
       {"[]", "[1,2,3]"},
       {"[null]"}},
      {R"({"type":"array","allOf":[{"prefixItems":[{}]},{"unevaluatedItems":false}]})",
       {"[]"},
       {"[1]"}},
  });
  return cases;
}

TEST(SchemaUnevaluatedTest, WhatNothingSpeaksAboutIsAskedFor) {
  for (const UnevaluatedCase& c : UnevaluatedCases()) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema, {.additional = true}));
    for (const std::string& text : c.accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(SchemaUnevaluatedTest, MasksEqualBruteForce) {
  const auto trie = TrieOf(SomeVocabulary());
  std::mt19937 dice(19);
  for (const UnevaluatedCase& c : UnevaluatedCases()) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema, {.additional = true}));
    const auto constraint = ValueOrDie(Constraint::Create(grammar, trie));
    GrammarMatcher matcher(constraint);
    for (int step = 0; step < 20 && !matcher.IsComplete(); ++step) {
      const std::vector<bool> mask = MaskOf(&matcher, *trie);
      ASSERT_EQ(mask, BruteForceMask(matcher, *trie));
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < trie->num_tokens(); ++id) {
        if (!trie->IsEndOfGeneration(id) && mask[id]) allowed.push_back(id);
      }
      if (allowed.empty()) break;
      ASSERT_TRUE(matcher.Accept(allowed[dice() % allowed.size()]).ok());
    }
  }
}

// As people write it: open where unevaluatedProperties says so, closed where it is false.
TEST(SchemaUnevaluatedTest, AsItWasMeant) {
  const auto open =
      ValueOrDie(CompileJsonSchema(R"({"properties":{"a":{}},"unevaluatedProperties":true})"));
  EXPECT_TRUE(Accepts(open, R"({"a":1,"b":2})"));
  EXPECT_FALSE(Accepts(open, "1"));
  const auto closed = ValueOrDie(
      CompileJsonSchema(R"({"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false})"));
  EXPECT_TRUE(Accepts(closed, R"({"a":1})"));
  EXPECT_FALSE(Accepts(closed, R"({"b":1})"));
}

TEST(SchemaUnevaluatedTest, RefusesByName) {
  for (const auto& [schema, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"array","contains":{"const":1},"unevaluatedItems":false})",
            "unevaluatedItems where contains speaks is not supported, at #/unevaluatedItems"},
           {R"({"type":"object","not":{"unevaluatedProperties":false}})",
            "the opposite of \"unevaluatedProperties\" is not supported"},
           {R"({"type":"array","not":{"unevaluatedItems":false}})",
            "the opposite of \"unevaluatedItems\" is not supported"},
           {R"({"type":"object","required":["a"],"unevaluatedProperties":false})",
            "no text fits: #/required ([\"a\"]) and #/unevaluatedProperties (false)"}}) {
    const auto grammar = CompileJsonSchema(schema, {.additional = true});
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_THAT(std::string(grammar.status().message()), testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace lm

// Texts that random tokens of the masks make: all are valid, and what is led to its end comes to
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/canonical_json.h"
#include "tests/engine/grammar/grammar_testing.h"
#include "tests/engine/grammar/json_schema_checker.h"

namespace lm {
namespace {

// Schemas as people write them.
const std::vector<std::string>& RealSchemas() {
  static const auto& schemas = *new std::vector<std::string>({
      "{}",
      R"({"type": "object", "properties": {
          "name": {"type": "string", "minLength": 1, "maxLength": 40},
          "age": {"type": "integer", "minimum": 0, "maximum": 150},
          "score": {"type": "number", "exclusiveMinimum": -1, "maximum": 99.5},
          "email": {"type": ["string", "null"], "format": "email"},
          "born": {"type": "string", "format": "date"},
          "seen": {"type": "string", "format": "date-time"},
          "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4},
          "id": {"type": "string", "format": "uuid"}},
        "required": ["name", "age", "tags"], "additionalProperties": false})",
      R"({"$defs": {"node": {"type": "object", "properties": {
          "value": {"type": "integer", "multipleOf": 3},
          "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
          "required": ["value", "children"]}}, "$ref": "#/$defs/node"})",
      R"({"type": "array", "prefixItems": [{"type": "string", "pattern": "^[a-z]{1,5}(-[0-9]+)?$"},
          {"anyOf": [{"type": "null"}, {"type": "boolean"}, {"type": "number", "multipleOf": 0.1}]}],
          "items": {"type": "object", "additionalProperties": {"type": "integer"}},
          "minItems": 2, "maxItems": 5})",
      R"({"oneOf": [
          {"type": "object", "properties": {"kind": {"const": "circle"},
           "radius": {"type": "number", "minimum": 0}}, "required": ["kind", "radius"]},
          {"type": "object", "properties": {"kind": {"const": "text \"x\""},
           "text": {"type": "string", "pattern": "a[xy]?b"}}, "required": ["kind", "text"]}]})",
      R"({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"extra": {"type": "boolean"}},
          "required": ["extra"]}], "$defs": {"base": {"type": "object",
          "properties": {"id": {"type": "integer", "minimum": 1}, "extra": true},
          "required": ["id"], "additionalProperties": {"type": "string"}}}})",
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"},
          "c": {"type": "boolean"}, "d": {"const": [1, {"x": "y"}]}},
          "minProperties": 2, "maxProperties": 3})",
  });
  return schemas;
}

TEST(JsonSchemaWalksTest, RandomWalksAreValid) {
  const auto trie = TrieOf(SomeVocabulary(std::vector<std::string>{"\"name", "name", "\"age\":"}));
  std::mt19937 dice(21);
  for (const std::string& text : RealSchemas()) {
    SCOPED_TRACE(text);
    const auto schema = nlohmann::json::parse(text);
    const auto grammar = ValueOrDie(CompileJsonSchema(text));
    const auto constraint = ValueOrDie(Constraint::Create(grammar, trie));
    for (int walk = 0; walk < 60; ++walk) {
      const std::string output = ValueOrDie(RandomText(constraint, &dice, 60, 20000));
      ASSERT_EQ(CheckAgainstSchema(schema, output), "");
      ASSERT_EQ(CanonicalJson(output), output);
    }
  }
}

TEST(JsonSchemaWalksTest, MasksEqualBruteForce) {
  const auto trie = TrieOf(SomeVocabulary(std::vector<std::string>{"\"name", "name", "\"age\":"}));
  std::mt19937 dice(22);
  for (const std::string& text : RealSchemas()) {
    SCOPED_TRACE(text);
    const auto grammar = ValueOrDie(CompileJsonSchema(text));
    const auto cached = ValueOrDie(Constraint::Create(grammar, trie));
    const auto uncached = ValueOrDie(Constraint::Create(grammar, trie, 0));
    GrammarMatcher a(cached), b(uncached);
    for (int step = 0; step < 60 && !a.IsComplete(); ++step) {
      const std::vector<bool> mask = MaskOf(&a, *trie);
      ASSERT_EQ(mask, MaskOf(&b, *trie));
      ASSERT_EQ(mask, BruteForceMask(a, *trie));
      std::vector<int32_t> allowed;
      for (int32_t id = 2; id < trie->num_tokens(); ++id) {
        if (mask[id]) allowed.push_back(id);
      }
      const int32_t token = allowed[dice() % allowed.size()];
      ASSERT_TRUE(a.Accept(token).ok());
      ASSERT_TRUE(b.Accept(token).ok());
    }
  }
}

// A schema of random supported keywords.
nlohmann::ordered_json RandomSchema(std::mt19937* dice, int depth) {
  auto below = [dice](int n) { return static_cast<int>((*dice)() % n); };
  nlohmann::ordered_json schema = nlohmann::ordered_json::object();
  auto names = [&](int n) {
    std::vector<std::string> result = {"a", "ab", "b", "c\"", "é", "abc"};
    std::shuffle(result.begin(), result.end(), *dice);
    result.resize(n);
    return result;
  };
  switch (below(depth > 0 ? 16 : 8)) {
    case 0:
      schema["enum"] = {below(5), "x", nullptr, 1.5, "y"};
      if (below(2) == 0) schema["type"] = {"string", "integer"};
      break;
    case 1: {
      const int low = below(2000) - 1000;
      schema["type"] = "integer";
      if (below(2) == 0) schema["minimum"] = low;
      if (below(2) == 0) schema["exclusiveMaximum"] = low + 3 + below(500);
      if (below(3) == 0) schema["multipleOf"] = 1 + below(3);
      break;
    }
    case 2: {
      const double low = (below(2000) - 1000) / 64.0;
      schema["type"] = "number";
      if (below(2) == 0) schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
      if (below(2) == 0)
        schema[below(2) == 0 ? "maximum" : "exclusiveMaximum"] = low + 0.5 + below(9);
      break;
    }
    case 3:
      schema["type"] = "string";
      if (below(2) == 0) schema["minLength"] = below(4);
      if (below(2) == 0) schema["maxLength"] = 4 + below(4);
      break;
    case 4: {
      const std::vector<std::string> formats = {"date",  "time", "date-time", "duration", "uuid",
                                                "email", "ipv4", "ipv6",      "hostname", "uri"};
      schema["type"] = "string";
      schema["format"] = formats[below(formats.size())];
      break;
    }
    case 5: {
      const std::vector<std::string> patterns = {"^[a-c]+$", "[0-9]{2}", "^(x|yz)*$",
                                                 "^\"[a-z]?\"$", "^a?\\\\"};
      schema["type"] = "string";
      schema["pattern"] = patterns[below(patterns.size())];
      break;
    }
    case 6:
      schema["type"] = {"string", "integer", "boolean"};
      schema["not"] = {{"enum", {"a", below(3), true}}};
      if (below(2) == 0) schema["not"]["pattern"] = "^[b-y]*$";
      break;
    case 7:
      schema["pattern"] = "^(ab|[c-e]{2}|\\d+)+$";
      schema["minLength"] = below(4);
      schema["maxLength"] = 4 + below(4);
      if (below(2) == 0)
        schema["allOf"] = {{{"pattern", "[a0-5]"}}, {{"not", {{"const", "abab"}}}}};
      break;
    case 8:
      schema["type"] = "array";
      if (below(2) == 0) {
        schema["items"] = {{"enum", {1, "x", nullptr, 2.5, "x", false}}};
        schema["uniqueItems"] = true;
        if (below(2) == 0) schema["maxItems"] = below(4);
      } else {
        schema["items"] = {{"type", {"integer", "string"}}};
        schema["contains"] = {{"type", "integer"}, {"minimum", below(9)}};
        if (below(2) == 0) schema["minContains"] = below(3);
        if (below(2) == 0) schema["maxContains"] = 2 + below(3);
        if (below(3) == 0) schema["minItems"] = below(5);
      }
      break;
    case 9: {
      schema["type"] = "object";
      const std::vector<std::string> properties = names(3);
      for (const std::string& name : properties)
        schema["properties"][name] = RandomSchema(dice, depth - 1);
      if (below(2) == 0) schema["dependentRequired"][properties[0]] = {properties[1]};
      if (below(2) == 0) schema["dependencies"][properties[1]] = {{"required", {properties[2]}}};
      schema["if"] = {{"properties", {{properties[0], RandomSchema(dice, 0)}}},
                      {"required", {properties[0]}}};
      schema["then"] = {{"required", {properties[2]}}};
      if (below(2) == 0) schema["else"] = {{"not", {{"required", {properties[1]}}}}};
      break;
    }
    case 10:
      schema["type"] = "object";
      schema["properties"][names(1)[0]] = RandomSchema(dice, depth - 1);
      schema["patternProperties"]["^a"] = RandomSchema(dice, depth - 1);
      if (below(2) == 0) schema["patternProperties"]["b"] = RandomSchema(dice, 0);
      if (below(2) == 0) schema["additionalProperties"] = RandomSchema(dice, 0);
      if (below(2) == 0) schema["propertyNames"] = {{"maxLength", 3}, {"not", {{"const", "ab"}}}};
      if (below(2) == 0) schema["required"] = names(1);
      break;
    case 11:
    case 12: {
      schema["type"] = "object";
      const std::vector<std::string> properties = names(below(5));
      for (const std::string& name : properties)
        schema["properties"][name] = RandomSchema(dice, depth - 1);
      if (below(2) == 0) schema["required"] = names(below(3));
      if (below(3) == 0) schema["additionalProperties"] = RandomSchema(dice, depth - 1);
      if (below(4) == 0) schema["minProperties"] = below(2);
      if (below(4) == 0) schema["maxProperties"] = 1 + below(3);
      break;
    }
    case 13:
      schema["type"] = "array";
      if (below(2) == 0) schema["items"] = RandomSchema(dice, depth - 1);
      if (below(3) == 0)
        schema["prefixItems"] = nlohmann::ordered_json::array({RandomSchema(dice, depth - 1)});
      if (below(2) == 0) schema["minItems"] = below(3);
      if (below(2) == 0) schema["maxItems"] = below(4);
      break;
    case 14:
      schema[below(2) == 0 ? "anyOf" : "oneOf"] = {RandomSchema(dice, depth - 1),
                                                   RandomSchema(dice, depth - 1)};
      if (below(3) == 0) schema["type"] = {"object", "integer", "string"};
      break;
    default:
      schema["allOf"] = {RandomSchema(dice, depth - 1), RandomSchema(dice, depth - 1)};
  }
  return schema;
}

TEST(JsonSchemaWalksTest, RandomSchemasGenerateOnlyWhatIsValid) {
  const auto trie = TrieOf(SomeVocabulary());
  std::mt19937 dice(23);
  int compiled = 0;
  for (int round = 0; round < 400; ++round) {
    const nlohmann::ordered_json random = RandomSchema(&dice, 3);
    const nlohmann::json schema = nlohmann::json::parse(random.dump());
    SCOPED_TRACE(random.dump());
    auto grammar = CompileJsonSchema(random.dump());
    if (!grammar.ok()) continue;  // nothing is valid, or an allOf that is not supported
    ++compiled;
    const auto constraint = ValueOrDie(Constraint::Create(*grammar, trie));
    for (int walk = 0; walk < 8; ++walk) {
      const std::string output = ValueOrDie(RandomText(constraint, &dice, 30, 20000));
      ASSERT_EQ(CheckAgainstSchema(schema, output), "") << output;
      ASSERT_EQ(CanonicalJson(output), output);
    }
  }
  EXPECT_GT(compiled, 250);
}

// As they are read where it is not word for word: with types that keywords imply, and closed.
TEST(JsonSchemaWalksTest, BranchesOfOneOfGenerateOnlyWhatNoOtherAllows) {
  const char* branches[] = {
      R"({"type": "string"})",
      R"({"type": ["string", "object"], "properties": {"a": {"type": "integer"}}})",
      R"({"type": "null"})",
      R"({"type": "integer", "maximum": 7})",
      R"({"minimum": 5})",
      R"({"minLength": 3})",
      R"({"pattern": "^x"})",
      R"({"enum": ["x", 6, null]})",
      R"({"const": {"a": 1}})",
      R"({"items": {"type": "integer"}})",
      R"({"type": "object", "properties": {"a": {"type": "integer"}}})",
      R"({"type": "object", "properties": {"b": {"type": "integer"}}})",
      R"({"properties": {"a": {"type": "integer"}}, "required": ["a"]})",
      R"({"properties": {"a": {"minimum": 0}, "b": {}}, "required": ["b"]})",
      R"({"properties": {"a": {"const": "x"}}})",
      R"({"properties": {"a": {"minLength": 1}}, "required": ["a"], "additionalProperties": false})",
      R"({"required": ["b"]})",
      R"({"type": "object", "additionalProperties": {"type": "string"}})",
      R"({"anyOf": [{"type": "integer"}, {"properties": {"a": {"type": "string"}}}]})",
      R"({"not": {"type": "string"}, "minimum": 6})",
      R"({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}})",
      R"({"properties": {"a": {"minLength": 1}}, "required": ["a"],
          "anyOf": [{"properties": {"a": {"type": ["string", "integer"]}}}]})",
      R"({"properties": {"a": {"type": "integer"}}, "required": ["a"],
          "patternProperties": {"b": {"type": "null"}}, "additionalProperties": false})",
      R"({"properties": {"a": {}, "b": {"type": "null"}}, "required": ["a", "b"]})",
      R"({"type": "object", "dependentRequired": {"b": ["a"]}})",
  };
  const auto trie = TrieOf(SomeVocabulary(std::vector<std::string>{"{\"a\":", "{\"b\":", "\"x"}));
  std::mt19937 dice(29);
  int compiled = 0;
  // Names that are few meet in objects that are open.
  const char* const arounds[] = {"", R"("type": "object",)", R"("type": ["object", "string"],)",
                                 R"("allOf": [{"propertyNames": {"enum": ["a", "b", "c"]}}],)"};
  for (const char* around : arounds) {
    for (const char* one : branches) {
      for (const char* other : branches) {
        const std::string text = absl::StrCat("{", around, "\"oneOf\": [", one, ",", other, "]}");
        SCOPED_TRACE(text);
        const auto grammar = CompileJsonSchema(text);
        if (!grammar.ok()) continue;  // a branch is never the only one, or not supported
        ++compiled;
        const nlohmann::json schema = nlohmann::json::parse(text);
        const auto constraint = ValueOrDie(Constraint::Create(*grammar, trie));
        for (int walk = 0; walk < 6; ++walk) {
          const std::string output = ValueOrDie(RandomText(constraint, &dice, 20, 20000));
          ASSERT_EQ(CheckAgainstSchema(schema, output), "") << output;
        }
      }
    }
  }
  EXPECT_GT(compiled, 300);
}

// Takes random tokens of FillMaskToEnd until nothing can follow, or the text can end and the dice
// say so. The text must be whole within `room` tokens.
std::string TextWithin(int32_t room, std::shared_ptr<Constraint> constraint, std::mt19937* dice) {
  const TokenTrie& trie = constraint->trie();
  GrammarMatcher matcher(constraint);
  std::vector<uint64_t> mask(matcher.mask_words());
  std::string text;
  for (; !matcher.IsComplete() && room > 0; --room) {
    bool left_out = false;
    EXPECT_LE(ValueOrDie(matcher.TokensToEnd()), room) << text;
    EXPECT_TRUE(matcher.FillMaskToEnd(room, absl::MakeSpan(mask), &left_out).ok()) << text;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < trie.num_tokens(); ++id) {
      if (mask[id / 64] >> (id % 64) & 1) allowed.push_back(id);
    }
    if (allowed.empty() || (matcher.CanEnd() && (*dice)() % 8 == 0)) break;
    const int32_t token = allowed[(*dice)() % allowed.size()];
    if (trie.IsEndOfGeneration(token)) break;
    EXPECT_TRUE(matcher.Accept(token).ok());
    absl::StrAppend(&text, trie.TokenBytes(token));
  }
  EXPECT_GE(room, 0) << text;
  EXPECT_TRUE(matcher.CanEnd()) << text;
  return text;
}

TEST(JsonSchemaWalksTest, WhatIsLedToItsEndIsWholeInTime) {
  const auto trie = TrieOf(SomeVocabulary(std::vector<std::string>{"\":", "\",\"", "{\"a", "\"}"}));
  ASSERT_TRUE(trie->has_all_bytes());
  std::mt19937 dice(31);
  int compiled = 0, limited = 0;
  for (int round = 0; round < 250; ++round) {
    const nlohmann::ordered_json random = RandomSchema(&dice, 3);
    const nlohmann::json schema = nlohmann::json::parse(random.dump());
    SCOPED_TRACE(random.dump());
    auto grammar = CompileJsonSchema(random.dump());
    if (!grammar.ok()) continue;
    ++compiled;
    const auto constraint = ValueOrDie(Constraint::Create(*grammar, trie));
    const int32_t needed = ValueOrDie(GrammarMatcher(constraint).TokensToEnd());
    ASSERT_LT(needed, 400);
    for (int walk = 0; walk < 6; ++walk) {
      const int32_t room = needed + static_cast<int32_t>(dice() % 12);
      limited += !constraint->IsNearEverywhere(room);
      const std::string text = TextWithin(room, constraint, &dice);
      ASSERT_EQ(CheckAgainstSchema(schema, text), "") << text;
      ASSERT_EQ(CanonicalJson(text), text);
    }
  }
  EXPECT_GT(compiled, 150);
  EXPECT_GT(limited, 400);
}

TEST(JsonSchemaWalksTest, TokensToEndCountTheShortestText) {
  std::vector<std::string> vocabulary = {"<end>", "<end>", ""};  // as in SomeVocabulary
  for (int byte = 0; byte < 256; ++byte) vocabulary.emplace_back(1, static_cast<char>(byte));
  vocabulary.push_back("\":");
  vocabulary.push_back("tru");
  const auto trie = TrieOf(vocabulary);
  auto tokens = [&trie](const std::string& schema) {
    const auto grammar = ValueOrDie(CompileJsonSchema(schema));
    return ValueOrDie(GrammarMatcher(ValueOrDie(Constraint::Create(grammar, trie))).TokensToEnd());
  };
  EXPECT_EQ(tokens(R"({"type": "integer"})"), 1);
  EXPECT_EQ(tokens(R"({"enum": [true, false]})"), 2);  // tru e
  EXPECT_EQ(tokens(R"({"properties": {"q": {"type": "null"}}, "required": ["q"]})"), 9);
  EXPECT_EQ(tokens(R"({"properties": {"q": {"type": "null"}}})"), 2);
  EXPECT_EQ(tokens(R"({"type": "array", "items": {"enum": [7]}, "minItems": 3000})"), 6001);
  EXPECT_EQ(tokens(R"({"type": "array", "items": {"enum": [7]}, "minItems": 30000})"),
            GrammarMatcher::kTooFar);
  // A list of itself has its nearest end, though it has no greatest distance.
  EXPECT_EQ(tokens(R"({"properties": {"q": {"$ref": "#"}}})"), 2);
}

}  // namespace
}  // namespace lm

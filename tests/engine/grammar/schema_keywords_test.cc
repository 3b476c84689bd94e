// The keywords of JSON Schema that an automaton has to work for: opposites, conditions, patterns of
// names, sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/grammar_testing.h"
#include "tests/engine/grammar/json_schema_checker.h"

namespace lm {
namespace {

struct KeywordCase {
  std::string schema;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

// With {"additional": true}, as the standard has it: the checker must agree on both sides.
void CheckKeywords(const std::vector<KeywordCase>& cases) {
  for (const KeywordCase& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema, {.additional = true}));
    const auto schema = nlohmann::json::parse(c.schema);
    for (const std::string& text : c.accepted) {
      EXPECT_TRUE(Accepts(grammar, text)) << text;
      EXPECT_EQ(CheckAgainstSchema(schema, text), "") << "the checker disagrees";
    }
    for (const std::string& text : c.rejected) {
      EXPECT_FALSE(Accepts(grammar, text)) << text;
      EXPECT_NE(CheckAgainstSchema(schema, text), "") << text << ": the checker disagrees";
    }
  }
}

TEST(SchemaKeywordsTest, OppositesOfValues) {
  CheckKeywords({
      {R"({"not": {"type": ["string", "array", "object"]}})",
       {"1", "null", "true"},
       {"\"a\"", "[]", "{}"}},
      {R"({"type": "number", "not": {"type": "integer"}})", {"1.5", "-0.25"}, {"1", "0", "1e30"}},
      {R"({"type": ["string", "integer", "boolean", "null"],
           "not": {"enum": ["a", "ab", 7, true, null]}})",
       {"\"\"", "\"b\"", "\"abc\"", "\"aa\"", "77", "false"},
       {"\"a\"", "\"ab\"", "7", "true", "null"}},
      {R"({"type": "integer", "minimum": 5, "maximum": 7, "not": {"const": 6}})",
       {"5", "7"},
       {"6", "8"}},
      {R"({"type": "string", "not": {"pattern": "^a|\"$"}})",
       {"\"ba\"", "\"\\\"b\"", "\"é\""},
       {"\"a\"", "\"b\\\"\""}},
      {R"({"type": "string", "not": {"minLength": 3}})", {"\"\"", "\"éé\""}, {"\"abc\""}},
      {R"({"type": "number", "not": {"minimum": 3}})", {"2.5", "-7"}, {"3", "4"}},
      {R"({"type": "integer", "not": {"anyOf": [{"minimum": 10}, {"maximum": 5}]}})",
       {"6", "9"},
       {"5", "10"}},
      {R"({"type": "integer", "not": {"allOf": [{"minimum": 10}, {"maximum": 20}]}})",
       {"9", "21"},
       {"10", "15"}},
      {R"({"not": {"not": {"const": 5}}})", {"5"}, {"6"}},
      {R"({"type": "integer", "not": {"oneOf": [{"minimum": 5}, {"maximum": 8}]}})",
       {"5", "8"},
       {"4", "9"}},
      {R"({"type": "array", "not": {"const": []}})", {"[1]"}, {"[]"}},
      {R"({"type": "array", "not": {"items": {"type": "null"}}})",
       {"[1]", "[null,1]"},
       {"[]", "[null]"}},
      {R"({"type": "array", "not": {"contains": {"const": 1}}})", {"[]", "[2,3]"}, {"[2,1]"}},
      {R"({"enum": [1, "a", {"b": 1, "c": 2}, [1]], "not": {"type": "integer"},
           "anyOf": [{"maxLength": 3}, {"minItems": 4}]})",
       {"\"a\"", R"({"b":1,"c":2})", "[1]"},
       {"1"}},
  });
}

// ... of formats that are only annotations leave nothing.
TEST(SchemaKeywordsTest, OppositesOfFormats) {
  for (const char* format : {"interval", "integer", "float"}) {
    const auto grammar = CompileJsonSchema(
        absl::StrCat(R"({"anyOf": [{"const": 1}, {"not": {"format": ")", format, "\"}}]}"));
    EXPECT_TRUE(Accepts(ValueOrDie(grammar), "1")) << format;
    EXPECT_FALSE(Accepts(ValueOrDie(grammar), "2")) << format;
  }
  for (const char* format : {"date", "int32", "int64"}) {
    const auto grammar = CompileJsonSchema(absl::StrCat(R"({"not": {"format": ")", format, "\"}}"));
    EXPECT_THAT(std::string(grammar.status().message()),
                testing::HasSubstr("the opposite of a format is not supported"));
  }
}

TEST(SchemaKeywordsTest, OppositesOfObjects) {
  CheckKeywords({
      {R"({"type": "object", "not": {"required": ["a"]}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"type": "object", "not": {"required": ["a", "b"]}})",
       {"{}", R"({"b":1})", R"({"a":1})"},
       {R"({"a":1,"b":2})"}},
      {R"({"not": {"required": ["a", "b"]}})", {R"({"b":1})"}, {R"({"a":1,"b":2})", "1", "\"a\""}},
      {R"({"type": "object", "not": {"properties": {"a": {"const": 1}, "b": {"type": "null"}}}})",
       {R"({"a":2})", R"({"b":1})", R"({"b":2,"a":1})"},
       {"{}", R"({"a":1})", R"({"a":1,"b":null})"}},
      {R"({"type": "object", "properties": {"k": {}}, "not": {"properties": {"k": {"enum": [1, 2]}},
           "required": ["k"]}})",
       {"{}", R"({"k":3})", R"({"x":1})"},
       {R"({"k":1})", R"({"k":2,"x":1})"}},
      {R"({"type": "object", "not": {"dependentRequired": {"a": ["b"]}}})",
       {R"({"a":1})"},
       {"{}", R"({"a":1,"b":1})", R"({"b":1})"}},
  });
}

TEST(SchemaKeywordsTest, ConditionsAndDependencies) {
  CheckKeywords({
      {R"({"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer"}},
           "required": ["k"], "if": {"properties": {"k": {"const": "n"}}},
           "then": {"required": ["n"]}, "else": {"properties": {"n": false}}})",
       {R"({"k":"n","n":1})", R"({"k":"m"})"},
       {R"({"k":"n"})", R"({"k":"m","n":1})"}},
      {R"({"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"type": "integer"}})",
       {"\"a\"", "12"},
       {"\"ab\"", "null"}},
      {R"({"if": {"type": "string"}, "else": {"const": 1}})", {"\"ab\"", "1"}, {"2"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}},
           "dependentRequired": {"a": ["b", "c"]}})",
       {"{}", R"({"b":1})", R"({"a":1,"b":1,"c":1})"},
       {R"({"a":1})", R"({"a":1,"b":1})"}},
      {R"({"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"const": 1}}}}})",
       {R"({"b":2})", R"({"b":1,"a":0})", R"({"a":0})"},
       {R"({"b":2,"a":0})", R"({"a":0,"b":2})"}},
      {R"({"type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}})",
       {"{}", R"({"a":1,"b":1})", R"({"c":1,"d":1})"},
       {R"({"a":1})", R"({"c":1})"}},
  });
}

// One of them is true of a value, and what follows from the others is no combination.
TEST(SchemaKeywordsTest, ConditionsOnOneMemberMayBeMany) {
  constexpr int kCases = 28;
  const nlohmann::ordered_json if_forms[] = {
      {{"properties", {{"kind", {{"const", ""}}}}}},
      {{"properties", {{"kind", {{"const", ""}}}}}, {"required", {"kind"}}},
      {{"type", "object"}, {"required", {"kind"}}, {"properties", {{"kind", {{"enum", {""}}}}}}},
  };
  for (const nlohmann::ordered_json& form : if_forms) {
    SCOPED_TRACE(form.dump());
    nlohmann::ordered_json schema = {{"type", "object"}, {"required", {"kind"}}};
    for (int i = 0; i < kCases; ++i) {
      const std::string kind = "k" + std::to_string(i), own = "p" + std::to_string(i);
      schema["properties"]["kind"]["enum"].push_back(kind);
      nlohmann::ordered_json condition = form;
      auto& value = condition["properties"]["kind"];
      if (value.contains("const")) value["const"] = kind;
      if (value.contains("enum")) value["enum"][0] = kind;
      schema["allOf"].push_back(
          {{"if", condition},
           {"then", {{"properties", {{own, {{"type", "integer"}}}}}, {"required", {own}}}}});
    }
    for (const bool additional : {false, true}) {
      const auto grammar = ValueOrDie(CompileJsonSchema(schema.dump(), {.additional = additional}));
      for (const char* text : {R"({"kind":"k0","p0":1})", R"({"kind":"k27","p27":5})"}) {
        EXPECT_TRUE(Accepts(grammar, text)) << text;
      }
      for (const char* text : {R"({"kind":"k0"})", R"({"kind":"k0","p1":1})", R"({"kind":"k28"})",
                               R"({"kind":"k27","p27":"x"})", "{}"}) {
        EXPECT_FALSE(Accepts(grammar, text)) << text;
      }
    }
  }
}

TEST(SchemaKeywordsTest, NamesOfMembers) {
  CheckKeywords({
      {R"({"type": "object", "allOf": [{"propertyNames": false}, {"propertyNames": {"enum": ["a"]}}]})",
       {"{}"},
       {R"({"a":1})"}},
      {R"({"type": "object", "propertyNames": {"allOf": [{"enum": ["a", "b"]}, {"not": {}}]}})",
       {"{}"},
       {R"({"a":1})"}},
      {R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}},
           "additionalProperties": {"type": "null"}})",
       {"{}", R"({"a":1})", R"({"ab":7})", R"({"b":6})", R"({"c":null,"ax":1})", R"({"a\"":1})"},
       {R"({"a":null})", R"({"ab":1})", R"({"ab":5.5})", R"({"b":1})", R"({"c":1})"}},
      {R"({"type": "object", "properties": {"ab": {"maximum": 9}},
           "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false})",
       {R"({"ab":9,"ac":10})"},
       {R"({"ab":10})", R"({"ab":1.5})", R"({"b":1})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-c]+$", "maxLength": 2}})",
       {"{}", R"({"ab":1,"c":[]})"},
       {R"({"abc":1})", R"({"d":1})", R"({"":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["x", "y"]}, "properties": {"y": {"const": 1},
           "z": {}}})",
       {R"({"y":1,"x":5})"},
       {R"({"y":2})", R"({"z":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["a1", "a2", "b\"", "c", 7]},
           "properties": {"a2": {"const": 2}}, "patternProperties": {"^a": {"type": "integer"},
           "1$": {"minimum": 5}, "c": false}, "additionalProperties": {"type": "null"}})",
       {"{}", R"({"a2":2,"a1":5,"b\"":null})"},
       {R"({"a2":1})", R"({"a1":4})", R"({"b\"":5})", R"({"c":null})", R"({"a3":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["ab", "b"]},
           "patternProperties": {"^a": {"const": 1}}, "additionalProperties": false})",
       {"{}", R"({"ab":1})"},
       {R"({"b":1})", R"({"ac":1})"}},
      {R"({"type": "object", "allOf": [{"propertyNames": {"enum": ["ab", "b", "ac"]}},
           {"propertyNames": {"pattern": "^a"}}, {"propertyNames": {"not": {"const": "ac"}}}]})",
       {"{}", R"({"ab":1})"},
       {R"({"b":1})", R"({"ac":1})"}},
      {R"({"type": "object", "propertyNames": false})", {"{}"}, {R"({"a":1})"}},
  });
  // Closed to what patterns do not match, unless that is asked for.
  const auto closed =
      ValueOrDie(CompileJsonSchema(R"({"patternProperties": {"^a": {"const": 1}}})"));
  EXPECT_TRUE(Accepts(closed, R"({"a":1,"ab":1})"));
  EXPECT_FALSE(Accepts(closed, R"({"b":1})"));
  const auto listed = ValueOrDie(CompileJsonSchema(
      R"({"propertyNames": {"enum": ["ab", "b"]}, "patternProperties": {"^a": {"const": 1}}})"));
  EXPECT_TRUE(Accepts(listed, R"({"ab":1})"));
  EXPECT_FALSE(Accepts(listed, R"({"b":1})"));
}

TEST(SchemaKeywordsTest, MembersMayHaveOneOfManyNames) {
  std::string names;
  for (int64_t i = 0; i < 3000; ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ",", "\"", absl::Hex(i * i * i * 1'000'003), "\"");
  }
  const auto grammar = ValueOrDie(CompileJsonSchema(
      R"({"additionalProperties":{"type":"integer"},"propertyNames":{"enum":[)" + names + "]}}"));
  EXPECT_TRUE(Accepts(grammar, absl::StrCat("{\"0\":1,\"", absl::Hex(8'000'024), "\":2}")));
  EXPECT_FALSE(Accepts(grammar, R"({"1":1})"));
}

TEST(SchemaKeywordsTest, SetsAndCounts) {
  CheckKeywords({
      {R"({"type": "array", "items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": true})",
       {"[]", R"(["a"])", R"(["b",1,"a"])"},
       {R"(["a","a"])", R"([1,"b",1])"}},
      {R"({"type": "array", "items": {"type": ["boolean", "null"]}, "uniqueItems": true,
           "minItems": 2})",
       {"[true,false]", "[null,true,false]"},
       {"[true]", "[true,true]"}},
      {R"({"type": "array", "items": {"type": "integer", "minimum": -1, "maximum": 1},
           "uniqueItems": true, "maxItems": 2})",
       {"[-1,1]", "[0]"},
       {"[0,0]", "[2]", "[-1,0,1]"}},
      {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})",
       {"[\"a\"]"},
       {"[\"a\",\"b\"]"}},
      {R"({"type": "array", "contains": {"type": "integer"}})",
       {"[1]", "[\"a\",1,null]"},
       {"[]", "[\"a\"]"}},
      {R"({"type": "array", "contains": {"minimum": 5, "type": "number"}, "minContains": 2,
           "maxContains": 3, "items": {"type": "number"}})",
       {"[5,6]", "[1,5,2,6,7,3]"},
       {"[5]", "[5,6,7,8]", "[1,2]", "[5,6,null]"}},
      {R"({"type": "array", "contains": {"const": 1}, "minItems": 2, "maxItems": 3})",
       {"[1,2]", "[2,3,1]"},
       {"[1]", "[2,2]", "[1,2,3,4]"}},
      {R"({"type": "array", "contains": {"const": 1}, "minContains": 0})", {"[]", "[2]"}, {"1"}},
      // As many as there may be.
      {R"({"type": "array", "contains": {"const": 1}, "maxContains": 5000, "minItems": 10})",
       {"[1,1,1,1,1,1,1,1,1,1]", "[1,2,2,2,2,2,2,2,2,2,2]"},
       {"[1,1,1]", "[2,2,2,2,2,2,2,2,2,2]"}},
      {R"({"type": "array", "contains": {"const": 1}, "maxContains": 1000000, "minItems": 3})",
       {"[2,2,1]", "[1,1,1,1]"},
       {"[1,1]", "[2,2,2]"}},
      {R"({"type": "array", "contains": {"const": 1}, "maxContains": 1000000, "maxItems": 2000})",
       {"[2,2,1]", "[1,1,1,1]"},
       {"[]", "[2,2,2]"}},
      {R"({"type": "array", "contains": {"const": 1}, "maxContains": 2, "maxItems": 2})",
       {"[2,1]", "[1,1]"},
       {"[]", "[2,2]", "[1,1,1]"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3},
           "d": {"const": 4}}, "additionalProperties": true, "maxProperties": 100000})",
       {"{}", R"({"a":1,"d":4,"x":5})"},
       {R"({"a":2})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
           "additionalProperties": {"const": 4}, "maxProperties": 4, "minProperties": 1})",
       {R"({"a":1,"b":2,"c":3,"x":4})", R"({"c":3,"x":4,"y":4,"z":4})", R"({"x":4})"},
       {"{}", R"({"a":1,"b":2,"c":3,"x":4,"y":4})", R"({"c":3,"x":4,"y":4,"z":4,"w":4})"}},
  });
  // Most of it is what may follow all that is listed.
  std::string many;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", "\"p", i, "\":{}");
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema("{\"properties\":{" + many +
                                                   R"(},"additionalProperties":{"type":"null"},
                                                      "maxProperties":100000})")),
                      R"({"p3":1,"x":null})"));
}

std::string SetSchema(int values, const std::string& more) {
  std::string schema = R"({"type": "array", "items": {"enum": [0)";
  for (int i = 1; i < values; ++i) absl::StrAppend(&schema, ",", i);
  return absl::StrCat(schema, "]}, \"uniqueItems\": true", more, "}");
}

TEST(SchemaKeywordsTest, SetsOfManyValuesStandInOneOrder) {
  std::string all = "[0";
  for (int i = 1; i < 30; ++i) absl::StrAppend(&all, ",", i);
  all += "]";
  CheckKeywords({
      {SetSchema(30, ""),
       {"[]", "[29]", "[0]", "[0,29]", "[3,7,8]", all},
       {"[1,1]", "[30]", "[0,1,1]"}},
      {SetSchema(30, R"(, "minItems": 2)"), {"[0,1]", "[28,29]", all}, {"[]", "[1]", "[7,7]"}},
      {SetSchema(30, R"(, "maxItems": 4)"), {"[]", "[5]", "[1,2,3,29]"}, {"[1,2,3,4,5]", "[2,2]"}},
      {SetSchema(30, R"(, "minItems": 3, "maxItems": 5)"),
       {"[27,28,29]", "[0,1,2,3,4]"},
       {"[28,29]", "[0,1,2,3,4,5]", "[0,0,1]"}},
      {SetSchema(30, R"(, "minItems": 30)"), {all}, {"[0,1]"}},
      {SetSchema(400, R"(, "minItems": 1)"), {"[399]", "[0,399]"}, {"[]", "[399,399]"}},
      // Few sets: in any order.
      {SetSchema(12, ""), {"[11,0,5]"}, {"[1,1]"}},
      {SetSchema(30, R"(, "maxItems": 2)"), {"[29,0]"}, {"[1,1]"}},
  });
  const auto sets = ValueOrDie(CompileJsonSchema(SetSchema(13, "")));
  EXPECT_TRUE(Accepts(sets, "[0,12]"));
  EXPECT_FALSE(Accepts(sets, "[12,0]"));
  EXPECT_FALSE(CompileJsonSchema(SetSchema(30, R"(, "minItems": 31)")).ok());
  EXPECT_EQ(CompileJsonSchema(SetSchema(400, R"(, "minItems": 60)")).status().message(),
            "schema: uniqueItems: too many values to count, at #/uniqueItems");
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(SetSchema(2001, ""))), "[1,2000]"));
  EXPECT_FALSE(CompileJsonSchema(SetSchema(10001, "")).ok());
}

TEST(SchemaKeywordsTest, StringsThatMatchSeveralThings) {
  CheckKeywords({
      {R"({"type": "string", "pattern": "^(ab)+$", "minLength": 3, "maxLength": 6})",
       {"\"abab\"", "\"ababab\""},
       {"\"ab\"", "\"abababab\"", "\"aba\""}},
      {R"({"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "\\d"}, {"pattern": "^.{2,3}$"}]})",
       {"\"a1\"", "\"1xa\""},
       {"\"a\"", "\"aa\"", "\"a1bc\""}},
      {R"({"type": "string", "format": "date", "pattern": "^2024-02"})",
       {"\"2024-02-29\""},
       {"\"2023-02-01\"", "\"2024-02-30\""}},
      {R"({"type": "string", "pattern": "^é*.$", "minLength": 2, "maxLength": 2})",
       {"\"éx\"", "\"é\\\"\""},
       {"\"x\"", "\"ééx\""}},
  });
}

TEST(SchemaKeywordsTest, NumbersThatAreMultiples) {
  CheckKeywords({
      {R"({"type": "number", "multipleOf": 0.25})",
       {"0.25", "1.5", "-3", "100.75"},
       {"0.1", "1.3", "0.125"}},
      {R"({"type": "number", "multipleOf": 2.5, "minimum": 0, "maximum": 10})",
       {"0", "2.5", "10"},
       {"1", "5.5", "12.5"}},
      {R"({"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]})",
       {"12", "-24", "0"},
       {"4", "6", "8"}},
      {R"({"type": "integer", "multipleOf": 500})", {"500", "1500"}, {"250", "501"}},
      {R"({"type": "integer", "multipleOf": 0.5})", {"1", "3"}, {"1.5"}},
  });
  const auto draft4 = ValueOrDie(CompileJsonSchema(
      R"({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false})"));
  EXPECT_FALSE(Accepts(draft4, "1"));
  EXPECT_TRUE(Accepts(draft4, "2"));
  EXPECT_TRUE(Accepts(draft4, "9"));
}

TEST(SchemaKeywordsTest, BranchesThatOverlapAreTakenApart) {
  CheckKeywords({
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"1.5"}, {"1", "\"a\""}},
      {R"({"oneOf": [{"const": 1}, {"enum": ["b", 1.0]}]})", {"\"b\""}, {"1"}},
      {R"({"type": "integer", "oneOf": [{"maximum": 5}, {"minimum": 3}]})", {"2", "6"}, {"3", "5"}},
      {R"({"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}, {"maxLength": 1}]})",
       {"\"\"", "\"c\"", "\"ac\"", "\"xb\""},
       {"\"a\"", "\"ab\"", "\"cc\""}},
      {R"({"type": "object", "oneOf": [{"properties": {"k": {"const": 1}}},
           {"properties": {"k": {"const": 2}}}]})",
       {R"({"k":1})", R"({"k":2})"},
       {"{}", R"({"k":3})"}},
  });
}

TEST(SchemaKeywordsTest, NoBranchOfAOneOfWritesWhatAnotherLists) {
  const std::string texts[] = {"null", "true", "false", "0",     "1",     "2",
                               "5",    "{}",   "[]",    "\"a\"", "\"b\"", "\"\""};
  const std::string schemas[] = {
      R"({"type": "string", "oneOf": [{"const": "b"}, {"pattern": "^[ab]$"}]})",
      R"({"type": "integer", "oneOf": [{"enum": [1, 5]}, {"minimum": 0, "maximum": 1}]})",
      R"({"type": ["null", "boolean", "integer"], "oneOf": [{"enum": [2, null]}, {"type": "null"}]})",
      R"({"type": ["null", "integer"], "oneOf": [{"enum": [1, 2]}, {"enum": [2, null]}]})",
      R"({"if": {"type": "string"}, "else": {"oneOf": [{"enum": [null, 1]}, {"type": "null"}]}})",
      R"({"type": ["string", "null"], "dependentSchemas": {"a": false, "b": true},
          "if": {"const": null}, "then": {"anyOf": [{"oneOf": [{"const": null}, true]}, false]}})",
      R"({"not": {"type": "object", "not": {"oneOf": [{"const": {}}, {"maxProperties": 0}]}},
          "unevaluatedProperties": false})",
  };
  for (const std::string& schema : schemas) {
    SCOPED_TRACE(schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(schema, {.additional = true}));
    for (const std::string& text : texts) {
      const std::string wrong = CheckAgainstSchema(nlohmann::json::parse(schema), text);
      EXPECT_EQ(Accepts(grammar, text), wrong.empty()) << text << ": " << wrong;
    }
  }
}

// What is written for one is not what its own properties say alone.
TEST(SchemaKeywordsTest, NoBranchOfAOneOfWritesWhatIsValidAgainstAnother) {
  const KeywordCase cases[] = {
      // A choice that is open brings a type to a member that had none.
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"minLength": 1, "maxLength": 1}},
             "required": ["k"], "anyOf": [{"properties": {"k": {"type": ["string", "integer"]}}}]},
           {"type": "object", "properties": {"k": {"type": ["integer", "null"]}},
             "required": ["k"]}]})",
       {R"({"k":"x"})", R"({"k":null})"},
       {R"({"k":0})", R"({"k":75})"}},
      // So do patterns, and what is additional or unevaluated elsewhere.
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"minLength": 1}, "t": {"const": 1}},
             "required": ["k", "t"], "patternProperties": {"^k": {"type": ["string", "integer"]}}},
           {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}]})",
       {R"({"k":"x","t":1})", R"({"k":0})"},
       {R"({"k":0,"t":1})", R"({"k":"x"})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"minLength": 1}, "t": {"const": 1}},
             "required": ["k", "t"], "allOf": [{"additionalProperties": {"type": ["string", "integer"]}}]},
           {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}]})",
       {R"({"k":"x","t":1})", R"({"k":0})"},
       {R"({"k":0,"t":1})", R"({"k":"x"})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"minLength": 1}, "t": {"const": 1}},
             "required": ["k", "t"], "allOf": [{"unevaluatedProperties": {"type": ["string", "integer"]}}]},
           {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}]})",
       {R"({"k":"x","t":1})", R"({"k":0})"},
       {R"({"k":0,"t":1})", R"({"k":"x"})"}},
      // What is unevaluated opens an object.
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"],
             "propertyNames": {"enum": ["k", "y"]},
             "unevaluatedProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
           {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]}]})",
       {R"({"k":1})", R"({"y":6})"},
       {R"({"k":1,"y":6})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"],
             "unevaluatedProperties": false},
           {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"],
             "unevaluatedProperties": false}]})",
       {R"({"k":1})", R"({"y":6})"},
       {R"({"k":1,"y":6})"}},
      // A pattern speaks of a name beside what closes the object.
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"type": "integer"}},
             "required": ["k"], "patternProperties": {"^xa$": {"type": "null"}},
             "additionalProperties": false},
           {"type": "object", "properties": {"k": {"minLength": 1}, "xa": {"type": "null"}},
             "required": ["k", "xa"]}]})",
       {R"({"k":4})", R"({"k":"a","xa":null})"},
       {R"({"k":4,"xa":null})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"],
             "patternProperties": {"^x-": {}}, "additionalProperties": false},
           {"type": "object", "properties": {"b": {}}, "required": ["b"],
             "patternProperties": {"^x-": {}}, "additionalProperties": false}]})",
       {R"({"a":4,"x-y":1})", R"({"b":4})"},
       {R"({"a":4,"b":4})"}},
      // The opposite of a third branch asks for a member, or brings a type.
      {R"({"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
           {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
           {"type": "object", "dependentRequired": {"b": ["z"]}}]})",
       {R"({"a":1,"b":"x"})"},
       {R"({"a":1})", R"({"a":1,"b":2})"}},
      {R"({"oneOf": [{"minLength": 1, "not": {"enum": [7, null]}}, {"type": "integer"},
           {"not": {"type": ["string", "integer"], "minimum": 3}}]})",
       {"\"x\"", "7", "null"},
       {"5"}},
  };
  for (const KeywordCase& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema));
    for (const std::string& text : c.accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(SchemaKeywordsTest, WhatAReferenceLeadsToIsSettledOnce) {
  CheckKeywords({
      {R"x({"$ref": "#/$defs/n", "minimum": 2, "$defs": {"n": {"anyOf": [{"type": "integer"},
           {"type": "null"}]}}})x",
       {"2", "null"},
       {"1", "2.5", "\"a\""}},
      {R"x({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
           "a": {"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "null"}}},
           "b": {"type": "object", "properties": {"k": {"const": "b"}, "x": {"type": "null"}}}}})x",
       {R"({"k":"a","x":null})", R"({"k":"b"})"},
       {"{}", R"({"x":null})", R"({"k":"c"})"}},
  });
}

TEST(SchemaKeywordsTest, ReferencesWithinTheDocument) {
  const KeywordCase cases[] = {
      {R"x({"$defs": {"a": {"$anchor": "here", "const": 1}}, "$ref": "#here"})x", {"1"}, {"2"}},
      {R"x({"$id": "http://x.org/root.json", "$ref": "http://x.org/root.json#/$defs/a",
           "$defs": {"a": {"const": 1}}})x",
       {"1"},
       {"2"}},
      {R"x({"$id": "http://x.org/d/root.json", "$ref": "other.json#/$defs/b",
           "$defs": {"a": {"$id": "other.json", "$defs": {"b": {"$ref": "#c"},
           "d": {"$anchor": "c", "const": 1}}}}})x",
       {"1"},
       {"2"}},
      {R"x({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x.org/",
           "items": {"$ref": "#five"}, "definitions": {"f": {"id": "#five", "const": 5}}})x",
       {"[5,5]"},
       {"[4]"}},
      // What stands beside a $ref counts from 2019-09 on.
      {R"x({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a":
           {"$ref": "#/definitions/n", "maximum": 2}}, "definitions": {"n": {"type": "integer"}}})x",
       {R"({"a":3})"},
       {R"({"a":1.5})"}},
      {R"x({"properties": {"a": {"$ref": "#/definitions/n", "maximum": 2}},
           "definitions": {"n": {"type": "integer"}}})x",
       {R"({"a":2})"},
       {R"({"a":3})"}},
      // Under keywords that nobody knows.
      {R"x({"type": "array", "prefixItems": [{"$ref": "#here"}, {"$ref": "http://x.org/b"}],
           "components": {"schemas": {"a": {"$anchor": "here", "const": 1},
           "b": {"$id": "http://x.org/b", "anyOf": [{"$ref": "#c"}],
                 "more": [{"$anchor": "c", "const": 2}]}}}})x",
       {"[1,2]"},
       {"[2]", "[1,1]"}},
      {R"x({"$ref": "#a", "$defs": {"b": {"$anchor": "a", "const": 1}},
           "components": {"$anchor": "a", "const": 2}})x",
       {"1"},
       {"2"}},
  };
  for (const KeywordCase& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema));
    for (const std::string& text : c.accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  EXPECT_FALSE(CompileJsonSchema(R"({"enum": [{"$anchor": "a"}], "$ref": "#a"})").ok());
}

// What is referred to is there once, however many refer to it.
TEST(SchemaKeywordsTest, ReferencesAreSmall) {
  for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    std::string properties;
    for (int i = 0; i < 1000; ++i) {
      absl::StrAppend(&properties, i == 0 ? "" : ",", "\"p", i, "\":{\"title\":\"", i, "\",\"",
                      keyword, "\":\"#", keyword[1] == 'd' ? "node" : "", "\"}");
    }
    const auto grammar = ValueOrDie(CompileJsonSchema(
        R"({"$dynamicAnchor":"node","$recursiveAnchor":true,"type":"object","properties":{)" +
        properties + "}}"));
    EXPECT_TRUE(Accepts(grammar, R"({"p3":{"p0":{},"p999":{}}})"));
    EXPECT_FALSE(Accepts(grammar, R"({"p3":{"p0":1}})"));
    EXPECT_LT(grammar->automaton().nodes.size(), size_t{20'000});
  }
  // What stands beside a reference is looked at all the same.
  EXPECT_FALSE(CompileJsonSchema(R"({"properties": {"a": {"$ref": "#/$defs/a", "minlength": 1}},
                                     "$defs": {"a": {"type": "string"}}})")
                   .ok());
}

TEST(SchemaKeywordsTest, FormatsOfTheStandard) {
  const KeywordCase cases[] = {
      {"ipv6",
       {"::1", "1:2::8", "1:2:3:4:5:6:7:8", "::", "1::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4",
        "::ffff:1.2.3.4", "64:ff9b::192.0.2.33", "1:2:3:4:5::1.2.3.4"},
       {"1::2::3", "1:2:3", ":::", "1:2:3:4:5:6:7::8:9", "1:2:3:4:5:1.2.3.4",
        "1:2:3:4:5:6::1.2.3.4", "::1.2.3", "1.2.3.4"}},
      {"uri",
       {"mailto:a@b.org", "file:///a/b", "urn:x:y", "http://a.b:80/c?d#e", "http://[::1]/",
        "ftp://u@h:65535/", "http://[2001:db8::1:2]:8080", "https://a.b:/"},
       {"a", "http://", "a b:c", "http://[::1", "http://[1:2]/", "http://a.b:65536/"}},
      {"uri-reference", {"", "a/b", "/x?y", "#f", "http://a.b", "//[::1]/a"}, {"a b", "://"}},
      {"iri", {"http://a.b/c"}, {"a"}},
      {"uri-template", {"/a/{b}/{c,d}{?e}"}, {"{", "a{b"}},
      {"json-pointer", {"", "/a/~0b/~1"}, {"a", "/~2"}},
      {"relative-json-pointer", {"0", "1/a", "2#"}, {"/a", "01"}},
      {"regex", {"^[a-z]+$", "a.b\\d*", ""}, {"[", "(", "*"}},
      {"email",
       {"o'brien@example.ie", "first.m.van.der.berg@example.com", "a.b.c.d.e.f.g.h@example.com",
        "ada+tag@mail.eu.dept.corp.example.com", "a@b.c.d.e.f.g.h.com", "{a|b}=#1@example.com"},
       {"a@localhost", "a..b@example.com", ".a@example.com", "a.@example.com", "a,b@example.com",
        "a.b.c.d.e.f.g.h.i@example.com", "a@b.c.d.e.f.g.h.i.com", "a@-b.com"}},
      {"hostname",
       {"localhost", "my-svc.my-ns.svc.cluster.local", std::string(62, 'a') + ".b.c.d.e.f.g.h",
        "ec2-3-8-1-2.eu-west-1.compute.amazonaws.com"},
       {"a.b.c.d.e.f.g.h.i", "a.b.c.d-.e", "a..b", std::string(64, 'a')}},
      {"idn-email", {"a@b.org"}, {"a"}},
      {"idn-hostname", {"a.b"}, {"-"}},
  };
  for (const KeywordCase& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar =
        ValueOrDie(CompileJsonSchema(R"({"type": "string", "format": ")" + c.schema + "\"}"));
    for (const std::string& text : c.accepted) {
      EXPECT_TRUE(Accepts(grammar, nlohmann::json(text).dump())) << text;
    }
    for (const std::string& text : c.rejected) {
      EXPECT_FALSE(Accepts(grammar, nlohmann::json(text).dump())) << text;
    }
  }
}

}  // namespace
}  // namespace lm

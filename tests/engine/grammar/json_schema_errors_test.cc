// Schemas that are refused, and what is said of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/grammar/schema/schema_document.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using testing::HasSubstr;

TEST(JsonSchemaErrorsTest, RefusesWithThePointer) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "schema: not JSON: "},
      {"{", "schema: not JSON: parse error at line 1, column 2"},
      {R"({"a": 1, "a": 2})", "the key \"a\" is twice in an object"},
      {"{\"a\": \"\xff\"}", "not JSON: "},
      {"1", "a schema must be an object or a boolean, at #"},
      {R"({"properties": {"a": 1}})", "a schema must be an object or a boolean, at #/properties/a"},
      {R"({"not": {"format": "date"}})",
       "the opposite of a format is not supported, at #/not/format"},
      {R"({"not": {"multipleOf": 2}})", "the opposite of \"multipleOf\" is not supported"},
      {R"({"not": {"uniqueItems": true}})", "the opposite of \"uniqueItems\" is not supported"},
      {R"({"not": {"patternProperties": {"a": {}}}})", "the opposite of \"patternProperties\""},
      {R"({"type": "object", "not": {"const": {"a": 1}}})",
       "the opposite of an array or object is not supported, at #/not/const"},
      {R"({"uniqueItems": true})", "uniqueItems is supported for items of which there are few"},
      {R"({"prefixItems": [{}], "uniqueItems": true})", "uniqueItems beside a list of items'"},
      {R"({"allOf": [{"contains": {}}, {"contains": {"const": 1}}]})", "a second contains"},
      {R"({"not": {"unevaluatedProperties": false}})",
       "the opposite of \"unevaluatedProperties\" is not supported"},
      {R"({"patternProperties": []})", "patternProperties must be an object"},
      {R"({"dependencies": []})", "dependencies must be an object"},
      {R"({"patternProperties": {"(": {}}})",
       "a '(' without ')', at byte 0, at #/patternProperties"},
      {R"({"naem": {"type": "string"}})",
       "keyword \"naem\" is not known, nor any beside it: of fields write "
       "{\"properties\":{\"naem\":{\"type\":\"string\"}}}, at #/naem"},
      {R"({"a\u007f": 1})", R"(of fields write {"properties":{"...":{)"},
      {R"({"type": "string", "minlength": 1})",
       "\"minlength\" (minLength was meant?) is not known"},
      {R"({"type": "text"})", "type must be null, boolean, integer, number"},
      {R"({"type": []})", "type must be"},
      {R"({"type": ["string", 1]})", "type must be"},
      {R"({"minimum": "1"})", "minimum must be a number, at #/minimum"},
      {R"({"exclusiveMinimum": true})", "exclusiveMinimum must be a number"},
      {R"({"minLength": -1})", "minLength must be a whole number, not negative"},
      {R"({"minLength": 1.5})", "minLength must be a whole number"},
      {R"({"minItems": 1000000})", "minItems is too large, limit 100000, at #/minItems"},
      {R"({"multipleOf": 0})", "multipleOf is supported for numbers above 0"},
      {R"({"multipleOf": 1001})", "multipleOf is supported"},
      {R"({"allOf": [{"multipleOf": 333}, {"multipleOf": 4}]})", "multipleOf is supported"},
      {R"x({"pattern": "a(?=b)"})x",
       "look-around ((?=, (?!, (?<=, (?<!) is not supported, but for look-ahead at the beginning, "
       "behind ^, at byte 1, at #/pattern"},
      {R"x({"pattern": "(?=b)"})x", "look-around"},
      {R"x({"type": "string", "pattern": "^(?=a)b"})x", "look-ahead of the regular expression"},
      {R"x({"pattern": "^(?=a)b", "maxLength": 9})x", "#/maxLength (9) cannot hold together"},
      {R"({"pattern": "^([a-w]{1,99}x){99}y$", "maxLength": 300})",
       "too large: what these strings have in common needs more than 20000 states, at #/maxLength"},
      {R"({"pattern": "^([a-w]{1,99}x){99}y$", "minLength": 300})", "states, at #/minLength"},
      {R"({"enum": 1})", "enum must be an array"},
      {R"({"anyOf": []})", "anyOf must be an array of at least one schema, at #/anyOf"},
      {R"({"oneOf": {}})", "oneOf must be an array of at least one schema"},
      {R"({"allOf": []})", "allOf must be an array of at least one schema"},
      {R"({"required": "a"})", "required must be an array of strings"},
      {R"({"properties": []})", "properties must be an object"},
      {R"({"prefixItems": {}})", "prefixItems must be an array"},
      {R"({"additionalProperties": {}, "minProperties": 2})",
       "minProperties is not supported above"},
      {R"({"$ref": "#/$defs/a"})", "$ref \"#/$defs/a\" leads nowhere, at #/$ref"},
      {R"({"$ref": "#a"})", "$ref \"#a\" leads to no anchor here"},
      {R"({"$ref": "http://x/y"})", "$ref \"http://x/y\" is outside of this schema"},
      {R"({"$ref": 1})", "$ref must be a string"},
      {R"({"$ref": "#"})", "a schema that refers to itself, at #"},
      {R"({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
       "a schema that refers to itself, at #/$defs/a"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "begins with itself"},
      {"false", "no text fits: # (false) leaves nothing"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "no text fits: # never ends, since it always asks for itself again"},
      // The reason is behind items that there may be any number of.
      {R"({"type":"array","items":{"type":"string"},"contains":{"type":"integer"}})",
       "no text fits: #/items/type (\"string\") and #/contains/type (\"integer\") cannot hold "
       "together"},
      {R"({"type":"array","contains":{"type":"string","minLength":5,"maxLength":3}})",
       "no text fits: #/contains/minLength (5) and #/contains/maxLength (3) cannot hold together"},
      // No name is cut, within a character perhaps.
      {absl::StrCat("{\"", std::string(99, 'x'), "\u00e9\": {}}"),
       "of fields write {\"properties\":{\"...\":{\"type\":\"string\"}}}, at #/x"},
  };
  for (const auto& [schema, message] : cases) {
    auto grammar = CompileJsonSchema(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr("schema: "));
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchemaErrorsTest, APatternThatIsTooLargeSaysSoOnce) {
  const auto grammar = CompileJsonSchema(R"({"pattern": "^(a|b)*a(a|b){18}$", "maxLength": 60})");
  EXPECT_EQ(grammar.status().message(),
            "schema: too large: what these strings have in common needs more than 20000 states, "
            "at #/pattern");
  const auto opposite = CompileJsonSchema(R"({"type": "string", "not": {"pattern": "("}})");
  EXPECT_EQ(opposite.status().message(), "schema: a '(' without ')', at byte 0, at #/not/pattern");
}

TEST(JsonSchemaErrorsTest, UnknownKeywordsAndFormatsAreIgnoredUnlessItIsStrict) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"properties": {"a/b~": {"const": 1, "frobnicate": 1}}})",
       "keyword \"frobnicate\" is not known, at #/properties/a~1b~0/frobnicate"},
      {R"({"const": {"a/b~": 1}, "readonly": false})", "\"readonly\" (readOnly was meant?)"},
      {R"({"format": "regexp", "type": ["object", "string"]})",
       "format \"regexp\" is not known; there are date, time, date-time"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(schema)), R"({"a/b~":1})")) << schema;
    const auto strict = CompileJsonSchema(schema, {.strict = true});
    EXPECT_THAT(std::string(strict.status().message()), HasSubstr(message));
  }
  EXPECT_TRUE(CompileJsonSchema(R"({"x-a": 1, "$comment": 2})", {.strict = true}).ok());

  // Understood, but JSON Schema's they are not.
  EXPECT_TRUE(
      Accepts(ValueOrDie(CompileJsonSchema(R"({"type": "string", "nullable": true})")), "null"));
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(R"({"type": "any", "maxLength": 2})")), "7"));
  for (const auto& [schema, message] : {
           std::pair(R"({"items": {"type": "string", "nullable": false}})",
                     "schema: keyword \"nullable\" is OpenAPI's, not JSON Schema's, at "
                     "#/items/nullable"),
           std::pair(R"({"type": ["null", "any"]})",
                     "schema: type \"any\" is none of JSON Schema since draft 4, at #/type"),
       }) {
    EXPECT_EQ(CompileJsonSchema(schema, {.strict = true}).status().message(), message);
  }
}

TEST(JsonSchemaErrorsTest, IgnoredKeywordsAreThoseWhereSchemasStand) {
  EXPECT_THAT(IgnoredKeywords(R"({"properties": {"colour": {"maxlength": 1, "x-y": 1},
      "size": {"const": {"depth": 1}}}, "$defs": {"a": {"colour": 1}}, "enum": [{"b": 1}],
      "items": [{"not": {"_id": 1}}], "dependencies": {"c": ["d"]}, "colour": 2})"),
              testing::UnorderedElementsAre("\"colour\"", "\"maxlength\" (maxLength was meant?)",
                                            "\"_id\""));
  EXPECT_THAT(IgnoredKeywords("nothing"), testing::IsEmpty());
  EXPECT_THAT(IgnoredFormats("nothing"), testing::IsEmpty());
  EXPECT_THAT(IgnoredFormats(R"({"properties": {"format": {"format": "phone"},
      "a": {"format": "date"}, "b": {"format": "int64"}, "c": {"format": "uuid4"}},
      "items": [{"format": "é\""}, {"format": "phone"}], "const": {"format": "d"}})"),
              testing::UnorderedElementsAre("\"phone\"", R"("\xc3\xa9\"")"));
}

TEST(JsonSchemaErrorsTest, AContradictionNamesItsPlaces) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"type": "string", "const": 1})", "#/const (1) and #/type (\"string\")"},
      {R"({"minimum": 2, "maximum": 1})", "#/minimum (2) and #/maximum (1)"},
      {R"({"allOf": [{"maximum": 9}, {"maximum": 5}], "exclusiveMinimum": 5})",
       "#/exclusiveMinimum (5) and #/allOf/1/maximum (5)"},
      {R"({"type": "integer", "minimum": 0.2, "maximum": 0.8})",
       "#/minimum (0.2), #/maximum (0.8) and #/type (\"integer\")"},
      {R"({"minimum": 11, "maximum": 13, "multipleOf": 7})",
       "#/minimum (11), #/maximum (13) and #/multipleOf (7)"},
      {R"({"type": "integer", "format": "int32", "minimum": 1e12})",
       "#/minimum (1000000000000.0) and #/format (\"int32\")"},
      // Numbers there are, but none that is written.
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-16})",
       "no number that is written with 15 digits at most and without an exponent lies between "
       "#/exclusiveMinimum (0) and #/maximum (1e-16)"},
      {R"({"minItems": 2, "maxItems": 1})", "#/minItems (2) and #/maxItems (1)"},
      {R"({"minItems": 1, "items": false})", "#/minItems (1) and #/items (false)"},
      {R"({"minItems": 2, "prefixItems": [{}], "items": false})",
       "#/minItems (2) and #/items (false)"},
      {R"({"minLength": 4, "maxLength": 3})", "#/minLength (4) and #/maxLength (3)"},
      {R"({"pattern": "^[a-z]{3}$", "minLength": 4})",
       "#/pattern (\"^[a-z]{3}$\") and #/minLength (4)"},
      {R"({"format": "date", "maxLength": 4})", "#/format (\"date\") and #/maxLength (4)"},
      {R"({"enum": []})", "#/enum ([]) leaves nothing"},
      {R"({"enum": [1, 2], "const": 3})", "#/enum ([1,2]) and #/const (3)"},
      {R"({"$ref": "#/$defs/n", "type": "null", "$defs": {"n": {"type": ["string", "number"]}}})",
       "#/$defs/n/type ([\"string\",\"number\"]) and #/type (\"null\")"},
      {R"({"properties": {}, "required": ["a", "b"], "additionalProperties": false})",
       "#/required ([\"a\",\"b\"]) and #/additionalProperties (false)"},
      {R"({"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "maxProperties": 1})",
       "#/required ([\"a\",\"b\"]) and #/maxProperties (1)"},
      {R"({"minProperties": 2, "maxProperties": 1, "properties": {"a": {}, "b": {}}})",
       "#/minProperties (2) and #/maxProperties (1)"},
      {R"({"minProperties": 3, "properties": {"a": {}, "b": {}}})",
       "#/minProperties (3) leaves nothing: there can be only 2 properties"},
      // What need not be there does no harm, and is not what is reported.
      {R"({"properties": {"a": {"minLength": 2, "maxLength": 1}, "b": {"anyOf": [false,
           {"type": "array", "items": {"properties": {"c/d": {"minimum": 1, "maximum": 0}},
            "required": ["c/d"]}, "minItems": 1}]}}, "required": ["b"]})",
       "#/properties/b/anyOf/1/items/properties/c~1d/minimum (1) and "
       "#/properties/b/anyOf/1/items/properties/c~1d/maximum (0) cannot hold together"},
      {R"({"properties": {"a": {"minLength": 2, "maxLength": 1}, "b": {"type": "array",
           "items": {"properties": {"c/d": {"minimum": 1, "maximum": 0}}, "required": ["c/d"]},
           "minItems": 1}}, "required": ["b"]})",
       "#/properties/b/items/properties/c~1d/minimum (1) and "
       "#/properties/b/items/properties/c~1d/maximum (0)"},
  };
  for (const auto& [schema, places] : cases) {
    SCOPED_TRACE(schema);
    const absl::Status status = CompileJsonSchema(schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("schema: no text fits: " + places));
  }
  EXPECT_TRUE(CompileJsonSchema(R"({"properties": {"a": {"minLength": 2, "maxLength": 1}}})").ok());
}

TEST(JsonSchemaErrorsTest, ABranchOfOneOfThatIsNeverTheOnlyOneIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {R"([{"type": "string"}, {"properties": {"a": {"type": "integer"}}, "required": ["a"]}])",
       "every value that this branch of oneOf asks for is valid against #/oneOf/1 too, which has "
       "no type: give #/oneOf/1 a type, at #/oneOf/0"},
      {R"([{"properties": {"a": {"type": "integer"}}}, {"type": "null"}])",
       "give #/oneOf/0 a type, at #/oneOf/1"},
      {R"([{"type": "integer"}, {"pattern": "^x"}])", "give #/oneOf/1 a type, at #/oneOf/0"},
      {R"([{"minLength": 3}, {"minimum": 5}])", "give #/oneOf/1 a type, at #/oneOf/0"},
      {R"([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}])", "give #/oneOf/1 a type, at #/oneOf/0"},
      {R"([{"type": "object", "properties": {"name": {"type": "string"}}},
           {"type": "object", "properties": {"error": {"type": "string"}}}])",
       "every object that is written for this branch of oneOf is valid against #/oneOf/1 too: list "
       "in `required` of each a property that the others do not have, or use anyOf, at #/oneOf/0"},
      {R"([{"type": "object", "properties": {"id": {"type": "integer"}, "name": {}}},
           {"type": "object", "properties": {"id": {"type": "integer"}, "error": {"const": 1}}}])",
       "valid against #/oneOf/1 too: list in `required`"},
      {R"([{"type": "object", "properties": {"name": {}}, "required": ["name"]},
           {"type": "object", "properties": {"error": {"type": "string"}}}])",
       "valid against #/oneOf/1 too: list in `required`"},
      {R"([{"type": "integer"}, {"type": "number"}])", "valid against #/oneOf/1 too: use anyOf"},
      {R"([{"const": 1}, {"type": "string"}, {"enum": [1, 2]}])",
       "valid against #/oneOf/2 too: use anyOf, at #/oneOf/0"},
      {R"([{"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]},
           {"type": "object", "properties": {"k": {"minimum": 5}}, "required": ["k"]}])",
       "valid against #/oneOf/1 too"},
  };
  const std::string defs = R"("$defs": {"a": {"type": "string"}, "b": {"required": ["x"]}})";
  for (const auto& [branches, message] : cases) {
    const std::string schema = "{\"oneOf\": " + branches + ", " + defs + "}";
    const absl::Status status = CompileJsonSchema(schema).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << schema;
    // Word for word there is nothing to explain.
    EXPECT_TRUE(CompileJsonSchema(schema, {.additional = true}).ok()) << schema;
  }
  // Where something of each is left somewhere, it need not be everywhere.
  EXPECT_TRUE(CompileJsonSchema(R"({"type": "object", "properties": {"a": {}, "b": {}},
      "anyOf": [{"required": ["a", "b"]}, {"maxProperties": 1}],
      "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})")
                  .ok());
}

std::string SchemaErrorOf(const std::string& schema) {
  return std::string(CompileJsonSchema(schema).status().message());
}

// Somebody who waits no longer is asked for at all times.
TEST(JsonSchemaErrorsTest, CompilationIsInterrupted) {
  std::string required, branches, constants, numbers;
  for (int i = 0; i < 700; ++i) absl::StrAppend(&required, i == 0 ? "" : ",", "\"name", i, "\"");
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&branches, i == 0 ? "" : ",", R"({"type":"object","required":[)", required,
                    ",\"b", i, "\"]}");
  }
  for (int i = 0; i < 900; ++i)
    absl::StrAppend(&constants, i == 0 ? "" : ",", "{\"const\":", i, "}");
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&numbers, i == 0 ? "" : ",", i);
  const std::string schemas[] = {
      absl::StrCat("{\"oneOf\":[", branches, "]}"),
      absl::StrCat(R"({"type":"boolean","not":{"oneOf":[)", constants, "]}}"),
      absl::StrCat("{\"const\":[", numbers, "],\"uniqueItems\":true}"),
      absl::StrCat("{\"const\":[", numbers, R"(],"items":{"pattern":"^a"}})"),
  };
  for (const std::string& schema : schemas) {
    SCOPED_TRACE(schema.substr(0, 60));
    const auto work = [] { return std::clock() * 1000 / CLOCKS_PER_SEC; };  // ms
    std::clock_t last = work(), longest = 0;
    bool goes_on = true;
    const CheckpointScope scope([&] {
      longest = std::max(longest, work() - last);
      last = work();
      return !goes_on;
    });
    EXPECT_FALSE(absl::IsCancelled(CompileJsonSchema(schema).status()));
    EXPECT_LT(std::max(longest, work() - last), 250);
    goes_on = false;
    std::this_thread::sleep_for(2 * kCheckpointInterval);
    EXPECT_TRUE(absl::IsCancelled(CompileJsonSchema(schema).status()));
  }
  EXPECT_TRUE(CompileJsonSchema(schemas[2]).ok());
}

TEST(JsonSchemaErrorsTest, DepthAndSizeHaveLimits) {
  auto nested = [](int depth) {
    std::string schema = "{}";
    for (int i = 1; i < depth; ++i) schema = "{\"items\":" + schema + "}";
    return schema;
  };
  EXPECT_TRUE(CompileJsonSchema(nested(kMaxGrammarDepth)).ok());
  EXPECT_THAT(SchemaErrorOf(nested(kMaxGrammarDepth + 1)),
              HasSubstr("too deep: objects and arrays within each other, limit 100"));
  EXPECT_THAT(SchemaErrorOf(std::string(500000, '[')), HasSubstr("too deep"));
  EXPECT_THAT(SchemaErrorOf(std::string(kMaxGrammarText + 1, ' ')),
              HasSubstr("too large: 1048577 bytes"));
  std::string members = "{\"properties\":{";
  for (size_t i = 0; i <= kMaxSchemaMembers; ++i) {
    absl::StrAppend(&members, i == 0 ? "" : ",", "\"p", i, "\":{}");
  }
  EXPECT_THAT(SchemaErrorOf(members + "}}"),
              HasSubstr("too large: an object with more than 2000 members"));
  // 2^24 combinations.
  std::string product = "{\"type\":\"integer\",\"allOf\":[";
  for (int i = 0; i < 24; ++i) {
    absl::StrAppend(&product, i == 0 ? "" : ",", "{\"anyOf\":[{\"minimum\":", i,
                    "},{\"maximum\":", i + 100, "}]}");
  }
  EXPECT_THAT(SchemaErrorOf(product + "]}"),
              HasSubstr("too large: too many combinations of allOf, anyOf, oneOf and if: more than "
                        "2000000 members of schemas to look at, at #"));
  // As many comparisons.
  std::string alike;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&alike, i == 0 ? "" : ",", "{\"type\":\"null\"}");
  EXPECT_THAT(SchemaErrorOf("{\"oneOf\":[" + alike + "]}"),
              HasSubstr("too large: a oneOf of 20000 branches, each of which is compared with the "
                        "others"));
  EXPECT_THAT(SchemaErrorOf("{\"not\":{\"oneOf\":[" + alike + "]}}"),
              HasSubstr("too large: the opposite of a oneOf of 20000 branches, at #/not/oneOf"));
  // As many values, times what each of them is checked against.
  std::string values, checks;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&values, i == 0 ? "" : ",", i);
  for (int i = 0; i < 200; ++i)
    absl::StrAppend(&checks, i == 0 ? "" : ",", "{\"minimum\":", -i, "}");
  EXPECT_THAT(SchemaErrorOf("{\"enum\":[" + values + "],\"allOf\":[" + checks + "]}"),
              HasSubstr("too large: 20000 values, each checked against 201 schemas"));
  // A chain of references as long as the text allows takes no stack.
  std::string chain = "{\"$ref\":\"#/$defs/r0\",\"$defs\":{";
  for (size_t i = 0; i < kMaxSchemaMembers - 1; ++i) {
    absl::StrAppend(&chain, "\"r", i, "\":{\"$ref\":\"#/$defs/r", i + 1, "\"},");
  }
  absl::StrAppend(&chain, "\"r", kMaxSchemaMembers - 1, "\":{\"const\":1}}}");
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(chain)), "1"));
}

}  // namespace
}  // namespace lm

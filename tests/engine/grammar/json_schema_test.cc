#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/schema_document.h"
#include "tests/engine/grammar/canonical_json.h"
#include "tests/engine/grammar/grammar_testing.h"
#include "tests/engine/grammar/json_schema_checker.h"

namespace lm {
namespace {

using testing::HasSubstr;

struct SchemaCase {
  std::string schema;
  std::vector<std::string> accepted;  // in their canonical form, whatever they are written in here
  std::vector<std::string> rejected;
};

void CheckSchemas(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    SCOPED_TRACE(c.schema);
    auto grammar = ValueOrDie(CompileJsonSchema(c.schema));
    const auto schema = nlohmann::json::parse(c.schema);
    for (const std::string& text : c.accepted) {
      const std::string canonical = CanonicalJson(text);
      EXPECT_TRUE(Accepts(grammar, canonical)) << canonical;
      EXPECT_EQ(Accepts(grammar, text), text == canonical) << text;
      EXPECT_EQ(CheckAgainstSchema(schema, text), "") << "the checker disagrees";
    }
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(JsonSchemaTest, Scalars) {
  CheckSchemas({
      {R"({"type": "null"})", {"null"}, {"", "nul", "null ", "0"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"type": "integer"})",
       {"0", "7", "-12", "123456789012345678"},
       {"-0", "01", "1.0", "1e3", "+1", "1234567890123456789", ""}},
      {R"({"type": "number"})",
       {"0", "-0.5", "3.25", "1e9", "6.02E+23", "-1.5e-7", "10"},
       {".5", "1.", "01", "1e", "1e100", "NaN", "--1", "1e20", "1.0e21", "12e21", "1e-14",
        "0.5e-14"}},
      {R"({"type": "number"})",
       {"12345678901234.5", "0.12345678901234", "123456789012345678", "1e21", "1.2345e-11", "1e-15",
        "9.99999999999999e99"},
       {"123456789012345.5", "12345678901234.55", "123456789012345678.5", "0.123456789012345",
        "1234567890123456789", "1.234567890123456e30"}},
      {R"({"minimum": 0.25, "maximum": 1000000000000000000000000})",
       {"0.5", "12345678901234.5", "999999999999999999"},
       {"123456789012345.5", "999999999999999999.5", "0.123456789012345"}},
      {R"({"type": "string"})",
       {R"("")", R"("abc é 日 😀")", R"("\"\\\/\b\f\n\r\t")", R"("\u00e9\uD83D\uDE00")"},
       {"\"", "abc", "\"a\nb\"", R"("\x")", R"("\u12")", R"("\u0000")", R"("\ud83d")",
        R"("\ud83d\u0041")", R"("\ude00")", "\"\xff\"", R"("a"b")"}},
      {R"({"type": ["integer", "null"]})", {"1", "null"}, {"1.5", "\"\""}},
      {R"({"type": "string", "nullable": true, "maxLength": 1})", {"null", "\"a\""}, {"\"ab\""}},
      {R"({"enum": ["a", 1, null, "b\"", [1, {"x": 2}]]})",
       {"\"a\"", "1", "null", R"("b\"")", R"([1,{"x":2}])", R"([1, {"x": 2}])"},
       {"\"b\"", "2", "[1 ,{\"x\":2}]", R"("\u0061")"}},
      {R"({"enum": ["a", 1, 2.5, 2.0, null], "type": "integer"})", {"1", "2.0"}, {"\"a\"", "2.5"}},
      {R"({"const": "x\n\u0001é"})", {"\"x\\n\\u0001é\""}, {"\"x\""}},
  });
}

TEST(JsonSchemaTest, Strings) {
  CheckSchemas({
      {R"({"minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"日本語\"", "\"\\n\\n\"", "\"\\ud83d\\ude00a\""},
       {"\"a\"", "\"abcd\"", "\"\\n\"", "\"\\ud83d\\ude00\"", "12"}},
      {R"({"type": "string", "minLength": 1})", {"\"a\"", "\"abcdef\""}, {"\"\""}},
      {R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}},
      {R"({"type": "string", "maxLength": 2147483647})", {"\"\"", "\"abc\""}, {"a"}},
      {R"({"pattern": "^[A-Z]{2}-\\d+$"})", {"\"AB-1\""}, {"\"AB-\"", "\"xAB-1\"", "\"AB-1x\""}},
      {R"({"pattern": "b+"})", {"\"b\"", "\"abba\"", "\"\\nb\\\"\""}, {"\"a\"", "\"\""}},
      {R"({"pattern": "^a|b$"})", {"\"axx\"", "\"xxb\""}, {"\"xa\"", "\"bx\""}},
      {R"({"pattern": "^\"\\\\\\n\\t.$"})", {R"("\"\\\n\tx")"}, {R"("\"\\\n\t\n")"}},
      {R"({"pattern": "^[\\s\\S]$"})", {R"("\n")", R"("\u0001")", "\"a\""}, {"\"\n\"", "\"\""}},
      {R"({"pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4})",
       {"\"ab\"", "\"abcd\""},
       {"\"a\"", "\"abcde\"", "\"AB\""}},
      {R"({"pattern": "^[a-z]{2,3}$", "minLength": 1, "maxLength": 9})", {"\"ab\""}, {"\"a\""}},
      {R"({"format": "date"})",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"2023-04-30\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"23-01-01\""}},
      {R"({"format": "time"})",
       {"\"23:59:59Z\"", "\"00:00:00.5+01:00\""},
       {"\"24:00:00Z\"", "\"12:00Z\""}},
      {R"({"format": "date-time"})",
       {"\"2024-02-29T12:00:00Z\""},
       {"\"2024-02-29 12:00:00Z\"", "\"2024-02-30T12:00:00Z\""}},
      {R"({"format": "duration"})",
       {"\"P3DT4H\"", "\"PT5M\"", "\"P2W\""},
       {"\"P\"", "\"PT\"", "\"P1S\""}},
      {R"({"format": "uuid"})", {"\"123e4567-e89b-12d3-A456-426614174000\""}, {"\"123e4567\""}},
      {R"({"format": "email"})",
       {"\"a.b+c@example.org\""},
       {"\"a@b\"", "\"@b.org\"", "\"a b@c.de\""}},
      {R"({"format": "ipv4"})", {"\"0.10.199.255\""}, {"\"256.1.1.1\"", "\"01.1.1.1\""}},
      {R"({"format": "ipv6"})", {"\"2001:db8:0:0:0:0:0:1\""}, {"\"1:2\""}},
      {R"({"format": "hostname"})", {"\"a-1.example\""}, {"\"-a\"", "\"a..b\""}},
      {R"({"format": "uri"})", {"\"https://a.org/x%20y?q=1#f\""}, {"\"a.org\"", "\"http:// \""}},
  });
}

TEST(JsonSchemaTest, Numbers) {
  CheckSchemas({
      {R"({"type": "integer", "minimum": 5, "maximum": 123})",
       {"5", "9", "10", "99", "100", "123"},
       {"4", "124", "0", "-5", "05", "200", "1000", "5.0"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 3})",
       {"-12", "-9", "-1", "0", "3"},
       {"-13", "4", "-0", "-20"}},
      {R"({"type": "integer", "exclusiveMinimum": 0})",
       {"1", "10", "999999999999999999"},
       {"0", "-1", "1000000000000000000"}},
      {R"({"type": "integer", "exclusiveMaximum": -99})",
       {"-100", "-1000"},
       {"-99", "-9", "0", "1"}},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "0.0", "1.00", "0.99999"},
       {"1.01", "-0.1", "2", "-0", "1e0"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
       {"0.1", "0.001", "0.999"},
       {"0", "1", "0.0", "1.0", "0.00"}},
      {R"({"minimum": -1.5, "exclusiveMaximum": 2.25})",
       {"-1.5", "-1.50", "-0.3", "0", "2", "2.2", "2.249"},
       {"-1.51", "-2", "2.25", "2.250", "2.3", "3"}},
      {R"({"type": "number", "minimum": 1e3, "maximum": 12.5e2})",
       {"1000", "1000.0", "1249.99", "1250"},
       {"999.99", "1250.01", "999"}},
      {R"({"type": "number", "minimum": 10})", {"10", "10.5", "99", "123.75"}, {"9.9", "1", "-10"}},
      {R"({"type": "integer", "multipleOf": 5, "minimum": -10, "maximum": 100})",
       {"-10", "-5", "0", "5", "95", "100"},
       {"1", "-7", "101", "105"}},
      {R"({"type": "number", "multipleOf": 7})", {"0", "7", "-14", "700"}, {"8", "7.0", "7.5"}},
      {R"({"type": "number", "multipleOf": 0.01})", {"1", "1.5", "1.25"}, {"1.255", "1e2"}},
      {R"({"type": "integer", "minimum": -1e308, "maximum": 1e308})", {"-5", "123"}, {"1.5"}},
      {R"({"type": "integer", "format": "int32"})", {"2147483647", "-2147483648"}, {"2147483648"}},
      {R"({"type": "integer", "minimum": 100000000000000000000})",
       {"100000000000000000000", "999999999999999999999"},
       {"99999999999999999999"}},
  });
}

TEST(JsonSchemaTest, Arrays) {
  CheckSchemas({
      {R"({"type": "array"})",
       {"[]", "[1,\"a\", [null]]"},
       {"[1,]", "[,]", "[ ]", "[1 ,2]", "[1,  2]"}},
      {R"({"items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[\"a\"]", "[1,]"}},
      {R"({"items": {"type": "null"}, "minItems": 2, "maxItems": 3})",
       {"[null,null]", "[null, null, null]"},
       {"[]", "[null]", "[null,null,null,null]"}},
      {R"({"items": {"type": "null"}, "minItems": 3})", {"[null,null,null,null]"}, {"[null,null]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}})",
       {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
       {"[2]", "[1,3]", "[1,2,2]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false, "minItems": 2})",
       {"[1,2]"},
       {"[1]", "[]", "[1,2,3]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1})", {"[]", "[1]"}, {"[1,2]"}},
      {R"({"allOf": [{"prefixItems": [{"type": "integer"}]}, {"items": {"minimum": 5}}]})",
       {"[]", "[7, 5.5]"},
       {"[5.5]", "[4]"}},
  });
  // Draft 7.
  auto tuple = ValueOrDie(CompileJsonSchema(
      R"({"items": [{"const": 1}], "additionalItems": {"const": 2}, "uniqueItems": false})"));
  EXPECT_TRUE(Accepts(tuple, "[1,2,2]"));
  EXPECT_FALSE(Accepts(tuple, "[2]"));
}

TEST(JsonSchemaTest, Objects) {
  CheckSchemas({
      {R"({"type": "object"})",
       {"{}", R"({"a":1, "b": {"c":[]}})"},
       {"{\"a\"}", "{a:1}", "{\"a\":1,}", "{ }", "{\"a\" :1}"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})",
       {"{}", R"({"a":1})", R"({"b": 2})", R"({"a":1,"b":2, "c":3})", R"({"a":1, "c":3})"},
       {R"({"b":2,"a":1})", R"({"d":1})", R"({"a":2})", R"({,"a":1})", R"({"a":1,})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]})",
       {R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1})"}},
      {R"({"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "boolean"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":true})", R"({"x":true, "y":false})", R"({"aa":true})",
        R"({"":true})", R"({"é":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"x":true,"a":1})", R"({"a":1,"a":true})",
        R"({"\u0061":true})"}},
      {R"({"properties": {"": {"const": 1}, "b\"": {"const": 2}}, "additionalProperties": true,
           "required": ["z"]})",
       {R"({"z":null})", R"({"":1,"b\"":2,"z":5,"y":[]})"},
       {R"({"":2,"z":1})", R"({"z":1,"":2})", "{}"}},
      {R"({"additionalProperties": {"const": 1}})", {"{}", R"({"k":1,"l":1})"}, {R"({"k":2})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"}},
      {R"({"additionalProperties": {"const": 1}, "minProperties": 1, "maxProperties": 2})",
       {R"({"k":1})", R"({"k":1,"l":1})"},
       {"{}", R"({"k":1,"l":1,"m":1})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
           "minProperties": 2, "maxProperties": 2, "required": ["b"]})",
       {R"({"a":1,"b":2})", R"({"b":2,"c":3})"},
       {R"({"b":2})", R"({"a":1,"b":2,"c":3})", R"({"a":1,"c":3})"}},
      {R"({"type": "object", "maxProperties": 0})", {"{}"}, {R"({"a":1})"}},
      {R"({"properties": {"a": false, "b": {"const": 1}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"properties": {"a": true, "b": {}}})", {R"({"a":[1],"b":"x"})"}, {"[]"}},
  });
}

TEST(JsonSchemaTest, Combinations) {
  CheckSchemas({
      {"true", {"1", "[]", "{\"a\":null}", "\"x\""}, {"", "tru"}},
      {"{}", {"1.5e3", "[[[]]]"}, {" 1", "1 "}},
      {R"({"anyOf": [{"type": "integer"}, {"const": "a"}]})", {"1", "\"a\""}, {"\"b\""}},
      {R"({"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 1}]})",
       {"null", "\"a\""},
       {"\"ab\""}},
      {R"({"allOf": [{"minimum": 3}, {"maximum": 5}, {"type": "integer"}]})",
       {"3", "5"},
       {"2", "6", "3.5"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                     {"properties": {"b": {"const": 2}, "a": {"minimum": 5}}}]})",
       {R"({"a":5,"b":2})", R"({"a":7})"},
       {R"({"a":4})", R"({"b":2})", R"({"a":5.5})"}},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}, {"const": 3}]})",
       {"3"},
       {"2", "1", "4"}},
      {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}"}},
      {R"({"anyOf": [{"minimum": 1}, {"maximum": -1}], "oneOf": [{"maximum": 5}, {"minimum": 100}],
           "type": "integer"})",
       {"1", "5", "100", "-1", "-50"},
       {"0", "6", "99"}},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/b~1c"}},
           "b/c": {"const": 1}}})",
       {"[]", "[1,1]"},
       {"[2]", "1"}},
      {R"({"$ref": "#/definitions/a%20b", "minimum": 2, "definitions": {"a b": {"type": "integer"}}})",
       {"2"},
       {"1", "2.5"}},
      {R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
           "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}},
           "$ref": "#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"1", "[1,[2,[]]]"},
       {"\"a\"", "[\"a\"]"}},
      {R"({"anyOf": [false, {"const": 1}]})", {"1"}, {"2"}},
      {R"({"type": ["object", "string"], "properties": {"a": {"const": 1}}, "maxLength": 2})",
       {"{}", R"({"a":1})", "\"ab\""},
       {"\"abc\"", R"({"a":2})", "1"}},
      {R"({"title": "t", "description": "d", "default": 1, "examples": [1], "x-any": {}, "const": 1,
           "$schema": "s", "$id": "i", "$comment": "c", "deprecated": true, "readOnly": true})",
       {"1"},
       {"2"}},
  });
}

TEST(JsonSchemaTest, RefusesWithThePointer) {
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
      {R"({"unevaluatedProperties": false})", "\"unevaluatedProperties\" is not supported"},
      {R"({"patternProperties": []})", "patternProperties must be an object"},
      {R"({"dependencies": []})", "dependencies must be an object"},
      {R"({"patternProperties": {"(": {}}})",
       "a '(' without ')', at byte 0, at #/patternProperties"},
      {R"({"naem": {"type": "string"}})", "keyword \"naem\" is not known, at #/naem"},
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
       "look-around ((?=, (?!, (?<=, (?<!) is not supported, at byte 1, at #/pattern"},
      {R"({"pattern": "^([a-z]{1,99}x){99}y$", "maxLength": 300})",
       "too large: what these strings"},
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
       "no text fits: #/properties/a never ends, since it always asks for itself again"},
  };
  for (const auto& [schema, message] : cases) {
    auto grammar = CompileJsonSchema(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr("schema: "));
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchemaTest, UnknownKeywordsAndFormatsAreIgnoredUnlessItIsStrict) {
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
}

TEST(JsonSchemaTest, IgnoredKeywordsAreThoseWhereSchemasStand) {
  EXPECT_THAT(IgnoredKeywords(R"({"properties": {"colour": {"maxlength": 1, "x-y": 1},
      "size": {"const": {"depth": 1}}}, "$defs": {"a": {"colour": 1}}, "enum": [{"b": 1}],
      "items": [{"not": {"_id": 1}}], "dependencies": {"c": ["d"]}, "colour": 2})"),
              testing::UnorderedElementsAre("\"colour\"", "\"maxlength\" (maxLength was meant?)",
                                            "\"_id\""));
  EXPECT_THAT(IgnoredKeywords("nothing"), testing::IsEmpty());
}

TEST(JsonSchemaTest, OtherMembersAreAllowedWhereTheyAreAskedFor) {
  const std::string schema = R"({"properties": {"a": {"properties": {"b": {"const": 1}}},
      "c": {"properties": {"d": {}}, "additionalProperties": false}}})";
  const auto closed = ValueOrDie(CompileJsonSchema(schema));
  const auto open = ValueOrDie(CompileJsonSchema(schema, {.additional = true}));
  for (const char* text : {R"({"a":{"b":1,"z":2}})", R"({"x":null})", R"({"c":{"d":2},"x":1})"}) {
    EXPECT_FALSE(Accepts(closed, text)) << text;
    EXPECT_TRUE(Accepts(open, text)) << text;
  }
  EXPECT_TRUE(Accepts(closed, R"({"a":{"b":1},"c":{"d":2}})"));
  EXPECT_FALSE(Accepts(open, R"({"a":{"b":2}})"));
  EXPECT_FALSE(Accepts(open, R"({"c":{"e":2}})"));
  EXPECT_FALSE(Accepts(open, R"({"x":1,"c":{}})"));
  const auto one_of = [](bool additional) {
    return CompileJsonSchema(R"({"oneOf": [{"properties": {"a": {}}, "required": ["a"]},
                                 {"properties": {"b": {}}, "required": ["b"]}]})",
                             {.additional = additional});
  };
  EXPECT_TRUE(one_of(false).ok());
  const auto apart = ValueOrDie(one_of(true));
  EXPECT_TRUE(Accepts(apart, R"({"a":1,"c":1})"));
  EXPECT_TRUE(Accepts(apart, R"({"b":1})"));
  EXPECT_FALSE(Accepts(apart, R"({"a":1,"b":1})"));
  EXPECT_FALSE(Accepts(apart, R"({"c":1})"));
}

TEST(JsonSchemaTest, AdditionalMeansJsonSchemaWordForWord) {
  const SchemaOptions open = {.additional = true};
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(R"({"minLength": 2})", open)), "1"));
  EXPECT_FALSE(Accepts(ValueOrDie(CompileJsonSchema(R"({"minLength": 2})", open)), "\"a\""));
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(R"({"naem": {"type": "string"}})", open)), "1"));
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(R"({"const": 1, "minlength": 1})", open)), "1"));
}

TEST(JsonSchemaTest, AContradictionNamesItsPlaces) {
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

std::string SchemaErrorOf(const std::string& schema) {
  return std::string(CompileJsonSchema(schema).status().message());
}

TEST(JsonSchemaTest, DepthAndSizeHaveLimits) {
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
  EXPECT_THAT(SchemaErrorOf(product + "]}"), HasSubstr("too large"));
  // A chain of references as long as the text allows takes no stack.
  std::string chain = "{\"$ref\":\"#/$defs/r0\",\"$defs\":{";
  for (size_t i = 0; i < kMaxSchemaMembers - 1; ++i) {
    absl::StrAppend(&chain, "\"r", i, "\":{\"$ref\":\"#/$defs/r", i + 1, "\"},");
  }
  absl::StrAppend(&chain, "\"r", kMaxSchemaMembers - 1, "\":{\"const\":1}}}");
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(chain)), "1"));
}

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

TEST(JsonSchemaTest, RandomWalksAreValid) {
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

TEST(JsonSchemaTest, MasksEqualBruteForce) {
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

TEST(JsonSchemaTest, DynamicReferences) {
  CheckSchemas(
      {{R"({"$dynamicAnchor": "node", "type": "object", "properties": {
             "value": {"type": "integer"}, "next": {"$dynamicRef": "#node"}}})",
        {"{}", R"({"value":1,"next":{"value":2,"next":{}}})"},
        {R"({"next":1})", R"({"next":{"next":{"value":"x"}}})"}},
       {R"({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
            "type": "array", "items": {"$recursiveRef": "#"}})",
        {"[]", "[[],[[]]]"},
        {"[1]", "[[{}]]"}},
       // To an $anchor, or where no schema has a dynamic one, as $ref.
       {R"({"type": "array", "items": {"$dynamicRef": "#item"},
            "$defs": {"a": {"$anchor": "item", "const": 1}}})",
        {"[]", "[1,1]"},
        {"[2]"}},
       {R"({"type": "array", "items": {"$dynamicRef": "#/$defs/a"}, "$defs": {"a": {"const": 1}}})",
        {"[1]"},
        {"[2]"}},
       {R"({"type": "array", "items": {"not": {"$dynamicRef": "#a"}, "enum": [1, 2]},
            "$defs": {"a": {"$dynamicAnchor": "a", "const": 1}}})",
        {"[2]"},
        {"[1]"}}});
  // Which of two is the outermost on the way is not known.
  const char* several = R"({"$id": "https://x.example/tree", "$dynamicAnchor": "node",
      "type": "object", "properties": {"data": true, "child": {"$dynamicRef": "#node"}},
      "$defs": {"strict": {"$id": "strict", "$dynamicAnchor": "node", "$ref": "tree"}}})";
  EXPECT_THAT(std::string(CompileJsonSchema(several).status().message()),
              testing::HasSubstr("$dynamicRef \"#node\" where 2 schemas have that $dynamicAnchor "
                                 "is not supported, at #/properties/child/$dynamicRef"));
  EXPECT_THAT(std::string(CompileJsonSchema(R"({"items": {"$dynamicRef": 1}})").status().message()),
              testing::HasSubstr("$dynamicRef must be a string"));
}

// A key of an open object is each that no property has, whatever its characters are.
TEST(JsonSchemaTest, KeysOfOthers) {
  const std::vector<std::string> names = {"e", "\"", "\\", "\n", "é", "日", " ", "~", "!#", "a\"b"};
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (const std::string& name : names) schema["properties"][name] = {{"const", 1}};
  const auto grammar = ValueOrDie(CompileJsonSchema(schema.dump(), {.additional = true}));
  std::vector<std::string> keys = {"é",  "ê",    "日",   "旧",  "😀", "!#",
                                   "!$", "a\"b", "a\"c", "a\"", ""};
  for (char c = 1; c < 0x7f; ++c) keys.push_back(std::string(1, c));
  for (const std::string& key : keys) {
    const bool is_named = std::find(names.begin(), names.end(), key) != names.end();
    const std::string text = nlohmann::json(key).dump();
    EXPECT_TRUE(Accepts(grammar, "{" + text + ":1}")) << text;
    EXPECT_EQ(Accepts(grammar, "{" + text + ":2}"), !is_named) << text;
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

TEST(JsonSchemaTest, TheBranchesOfOneOfAreToldApart) {
  const std::string apart[] = {
      R"([{"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]}, {"type": "array"}])",
      R"([{"const": "a"}, {"enum": ["b", 1]}, {"type": "array"}])",
      R"([{"type": "integer", "maximum": 5}, {"type": "number", "exclusiveMinimum": 5}])",
      R"([{"properties": {"k": {"const": 1}, "v": {}}, "required": ["k"]},
          {"properties": {"k": {"enum": [2, 3]}}, "required": ["k"]}])",
      R"([{"properties": {"k": {"type": "string"}}, "required": ["k"]},
          {"properties": {"k": {"type": "integer"}}, "required": ["k"]}])",
      R"([{"properties": {"mail": {}}, "required": ["mail"]},
          {"properties": {"phone": {}}, "required": ["phone"]}])",
      R"([{"properties": {"a": {}}, "required": ["a"], "additionalProperties": false},
          {"properties": {"a": {}, "b": {}}, "required": ["b"]}])",
      R"([{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}])"};
  const std::string defs = R"("$defs": {"a": {"type": "boolean"}, "b": {"const": null}})";
  for (const std::string& branches : apart) {
    EXPECT_TRUE(CompileJsonSchema("{\"oneOf\": " + branches + ", " + defs + "}").ok()) << branches;
  }
  const std::string not_apart[] = {
      R"([{"type": "integer", "multipleOf": 2}, {"type": "number", "multipleOf": 3}])",
      R"([{"type": "null"}, {"type": "string", "format": "date"},
          {"type": "string", "format": "time"}])",
  };
  for (const std::string& branches : not_apart) {
    const auto grammar = CompileJsonSchema("{\"oneOf\": " + branches + ", " + defs + "}");
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr("schema: the opposite of"))
        << branches;
  }
}

TEST(JsonSchemaTest, SpacesAreAllowedWhereTheyAreAskedFor) {
  const std::string schema = R"({"properties": {"a": {"type": "array"}, "b": {"const": [1, {}]}},
                                 "additionalProperties": {}})";
  const auto compact = ValueOrDie(CompileJsonSchema(schema));
  const auto spaced = ValueOrDie(CompileJsonSchema(schema, {.spaces = JsonSpaces::kAllowed}));
  const std::string text = R"({"a":[1,{"k":2}],"b":[1,{}],"c":{"d":null}})";
  EXPECT_TRUE(Accepts(compact, text));
  EXPECT_TRUE(Accepts(spaced, text));
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i - 1] == '"') in_string = !in_string;
    if (in_string) continue;
    std::string other = text;
    other.insert(i, " ");
    EXPECT_FALSE(Accepts(compact, other)) << other;
    EXPECT_EQ(Accepts(spaced, other), i > 0 && (text[i - 1] == ':' || text[i - 1] == ',')) << other;
  }
}

TEST(JsonSchemaTest, AnExtractionHasEveryProperty) {
  const auto grammar = ValueOrDie(CompileExtractionSchema(
      R"({"properties": {"a": {"type": "integer"}, "b": {"type": "array", "maxItems": 1, "items":
          {"properties": {"c": {"const": 1}}}}, "d": {"enum": ["x"]}}, "required": ["d"]})"));
  for (const char* text : {R"({"a":1,"b":[{"c":1}],"d":"x"})", R"({"a":null,"b":null,"d":"x"})"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"null", "{}", R"({"a":1,"d":"x"})", R"({"a":1,"b":[],"d":null})",
                           R"({"a":1,"b":[null],"d":"x"})", R"({"a":1,"b":[{}],"d":"x"})"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(JsonSchemaTest, RandomSchemasGenerateOnlyWhatIsValid) {
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

TEST(JsonSchemaTest, WhatIsLedToItsEndIsWholeInTime) {
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

TEST(JsonSchemaTest, TokensToEndCountTheShortestText) {
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

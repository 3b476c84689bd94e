#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
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

// Of which std::regex, by which CheckSchemas checks, knows ASCII alone, and no brace but a count.
TEST(JsonSchemaTest, WhiteSpaceEndsOfLinesAndBracesAreEcmas) {
  const std::tuple<std::string, std::vector<std::string>, std::vector<std::string>> cases[] = {
      {R"({"pattern": "^\\s$"})",
       {"\" \"", R"("\t")", R"("\n")", R"("\u000b")", R"("\f")", R"("\r")", "\"\u00a0\"",
        "\"\u1680\"", "\"\u2000\"", "\"\u200a\"", "\"\u2028\"", "\"\u2029\"", "\"\u202f\"",
        "\"\u205f\"", "\"\u3000\"", "\"\ufeff\""},
       {"\"a\"", "\"\u1fff\"", "\"\u200b\"", R"("\u001f")", "\"\u0085\"", "\"\u180e\""}},
      {R"({"pattern": "^a{,3}$"})", {R"("a{,3}")"}, {R"("aaa")", R"("")"}},
      {R"({"pattern": "^\\S$"})",
       {"\"a\"", "\"\u200b\"", R"("\u001f")"},
       {"\" \"", R"("\r")", "\"\u00a0\"", "\"\u2005\"", "\"\u2028\"", "\"\ufeff\""}},
      {R"({"pattern": "^[^\\s]$"})", {"\"a\""}, {"\" \"", "\"\u00a0\"", "\"\u3000\""}},
      {R"({"pattern": "^[\\S ]$"})", {"\" \"", "\"a\""}, {"\"\u00a0\""}},
      {R"({"pattern": "^.$"})",
       {"\"a\"", R"("\f")", "\"\u0085\""},
       {R"("\n")", R"("\r")", "\"\u2028\"", "\"\u2029\""}},
      {R"({"pattern": "^.$", "not": {"pattern": "\\s"}})", {"\"a\""}, {"\" \"", "\"\u00a0\""}},
  };
  for (const auto& [schema, accepted, rejected] : cases) {
    SCOPED_TRACE(schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(schema));
    for (const std::string& text : accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
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
      {R"({"pattern": "^[^\\x00-\\x1f]{1,3}$"})", {R"("a\"b")"}, {R"("\u0001")", R"("")"}},
      {R"({"pattern": "^[\\u0000-\\u007F]{1,3}$"})",
       {R"("a\u0001")"},
       {R"("é")", R"("abcd")", R"("\u0000")"}},
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
      {R"({"format": "uuid4"})",
       {"\"123e4567-e89b-42d3-A456-426614174000\""},
       {"\"123e4567-e89b-12d3-A456-426614174000\"", "\"123e4567-e89b-42d3-7456-426614174000\""}},
      {R"({"format": "uuid7"})", {"\"123e4567-e89b-72d3-b456-426614174000\""}, {"\"\""}},
      {R"({"format": "email"})",
       {"\"a.b+c@example.org\"", "\"christopher.montgomery-smith@mail.cs.example.ac.uk\""},
       {"\"a@b\"", "\"@b.org\"", "\"a b@c.de\"",
        absl::StrCat("\"", std::string(30, 'a'), ".", std::string(30, 'b'), ".c@d.org\"")}},
      {R"({"format": "ipv4"})", {"\"0.10.199.255\""}, {"\"256.1.1.1\"", "\"01.1.1.1\""}},
      {R"({"format": "ipv6"})", {"\"2001:db8:0:0:0:0:0:1\""}, {"\"1:2\""}},
      {R"({"format": "hostname"})", {"\"a-1.example\""}, {"\"-a\"", "\"a..b\""}},
      {R"({"format": "uri"})", {"\"https://a.org/x%20y?q=1#f\""}, {"\"a.org\"", "\"http:// \""}},
  });
}

// Where lengths multiply with what a pattern needs, fewer characters than the greatest length.
TEST(JsonSchemaTest, LongStringsOfAPattern) {
  const std::string text(100, 'a');
  struct {
    std::string schema, short_text, long_text, wrong;
  } const cases[] = {
      {R"({"format": "uri", "maxLength": 2083, "minLength": 1})", "http://a.org/" + text,
       "http://a.org/" + std::string(2071, 'a'), "a"},
      {R"({"format": "hostname", "maxLength": 150})", text.substr(0, 62) + ".b.c.d.e.f.g.h.i.j.k",
       text.substr(0, 62) + "." + text.substr(0, 62) + "." + text.substr(0, 62), "a..b"},
      {R"({"format": "email", "maxLength": 90})", text.substr(0, 60) + ".a@b.c.d.e.f.g.h.i.de",
       text.substr(0, 40) + "@" + text.substr(0, 50) + ".de", text.substr(0, 65) + "@b.de"},
      {R"({"format": "email", "maxLength": 254})",
       text.substr(0, 30) + "@" + text.substr(0, 40) + ".de",
       text.substr(0, 30) + "@" + text + ".de", "a"},
      {R"({"format": "email", "minLength": 8, "maxLength": 254})",
       text.substr(0, 25) + "@" + text.substr(0, 25) + ".com",
       text.substr(0, 60) + "@" + text + text + ".com", "a@b.com"},
      {R"({"format": "email", "minLength": 60})",
       text.substr(0, 40) + "@" + text.substr(0, 30) + ".com",
       text.substr(0, 60) + "@" + text + text + ".com", "a@b.com"},
      {R"({"format": "email", "pattern": "^.{1,50}$"})", "bob@example.com",
       text.substr(0, 25) + "@" + text.substr(0, 25) + ".com", "bob"},
      {R"({"format": "hostname", "minLength": 3, "maxLength": 253})",
       text.substr(0, 62) + "." + text.substr(0, 62) + ".b.c.d.e.f.g.h.i",
       text.substr(0, 62) + "." + text.substr(0, 65), "a"},
      {R"({"format": "ipv6", "maxLength": 39})", "fe80::1", "::ffff:1.2.3.4", "1:2"},
      {R"({"pattern": "foo", "maxLength": 3000})", text + "foo" + text,
       "foo" + std::string(2998, 'o'), "f"},
      {R"({"pattern": "^\\S+( \\S+)*$", "maxLength": 3999})", text + " " + text,
       std::string(4000, 'a'), text + "  b"},
      {R"({"pattern": "\\.(jpg|png|gif)$", "maxLength": 2000})", text + "é.png",
       std::string(2000, 'a') + ".png", ".pgn"},
      {R"({"pattern": "^(a{3})*$", "minLength": 3999, "maxLength": 100000})",
       std::string(3999, 'a'), std::string(100001, 'a'), std::string(3996, 'a')},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(c.schema));
    EXPECT_TRUE(Accepts(grammar, "\"" + c.short_text + "\""));
    EXPECT_FALSE(Accepts(grammar, "\"" + c.long_text + "\""));
    EXPECT_FALSE(Accepts(grammar, "\"" + c.wrong + "\""));
  }
  // Strings that ask for the same are there once.
  std::string many = R"({"properties": {)";
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&many, i == 0 ? "" : ",", "\"", i,
                    R"(": {"type": "string", "format": "uri", "maxLength": 2083})");
  }
  EXPECT_TRUE(Accepts(ValueOrDie(CompileJsonSchema(many + "}}")), R"({"7":"a:b","9":"a:b"})"));
}

TEST(JsonSchemaTest, LookAheadAtTheBeginningOfAPattern) {
  CheckSchemas({
      {R"({"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"})",  // pydantic's Decimal
       {"\"1\"", "\"-12.50\"", "\"+.5\"", "\"7.\""},
       {"\"\"", "\"-\"", "\".\"", "\"+.\"", "\"1a\""}},
      {R"({"pattern": "^(?=.*[A-Z]).{8,}$"})",
       {"\"abcdefgH\"", "\"\\\"bcdefgH\""},
       {"\"abcdefgh\"", "\"H\""}},
      {R"({"pattern": "^(?!\\s*$).+"})", {"\"a\"", "\" a\"", "\"a\\n\""}, {"\"\"", "\"  \""}},
      {R"({"pattern": "^(?=.*[A-Z])(?=.*\\d)(?!.*é)\\S{3,5}$", "maxLength": 4})",
       {"\"aB1\"", "\"1aB!\""},
       {"\"aB\"", "\"ab1\"", "\"aB1é\"", "\"aB1cd\""}},
      {R"({"pattern": "^(?!a|b$)|^(?=bc)b"})",
       {"\"\"", "\"c\"", "\"bc\"", "\"bx\""},
       {"\"a\"", "\"b\""}},
      {R"({"patternProperties": {"^(?!id$).*$": {"const": 1}}})",
       {R"({"ide":1})"},
       {R"({"id":1})"}},
  });
}

TEST(JsonSchemaTest, IntegersBeyond64Bits) {
  const std::vector<SchemaCase> cases = {
      {R"({"enum": [100000000000000000001, -18446744073709551616, 1000000000000000000000000]})",
       {"100000000000000000001", "-18446744073709551616", "1e24"},
       {"100000000000000000000", "1e20", "-18446744073709552000"}},
      {R"({"const": [1234567890123456789012345]})",
       {"[1234567890123456789012345]"},
       {"[1.234567890123456789012345e24]", "[1.2345678901234568e24]"}},
      {R"({"type": "integer", "minimum": 18446744073709551610,
           "exclusiveMaximum": 18446744073709551616})",
       {"18446744073709551610", "18446744073709551615"},
       {"18446744073709551609", "18446744073709551616"}},
  };
  for (const auto& [schema, accepted, rejected] : cases) {
    SCOPED_TRACE(schema);
    const auto grammar = ValueOrDie(CompileJsonSchema(schema));
    for (const std::string& text : accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
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
      // Where none has as many digits as usual, one has one more.
      {R"({"type": "integer", "exclusiveMinimum": 999999999999999999})",
       {"1000000000000000000"},
       {"999999999999999999", "1"}},
      {R"({"type": "integer", "exclusiveMinimum": 999999999999999999,
           "maximum": 1000000000000000001})",
       {"1000000000000000000", "1000000000000000001"},
       {"1000000000000000002", "999999999999999999"}},
      {R"({"type": "integer", "exclusiveMaximum": -999999999999999999, "minimum": -1e30})",
       {"-1000000000000000000"},
       {"-999999999999999999", "1000000000000000000"}},
      {R"({"type": "integer", "minimum": 999999999999999993, "multipleOf": 8})",
       {"1000000000000000000"},
       {"1000000000000000001", "999999999999999999"}},
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

std::string ManyValues(int count, const std::string& prefix = "v") {
  std::string values;
  for (int i = 0; i < count; ++i)
    absl::StrAppend(&values, i == 0 ? "" : ",", "\"", prefix, i, "\"");
  return "[" + values + "]";
}

TEST(JsonSchemaTest, EnumsMayHaveManyValues) {
  const std::string many = "{\"enum\":" + ManyValues(20000) + "}";
  const std::string schemas[] = {
      many,
      "{\"type\":\"string\",\"minLength\":2,\"enum\":" + ManyValues(20000) + "}",
      "{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}],\"$defs\":{\"a\":" + many + "}}",
      "{\"type\":\"string\",\"anyOf\":[{\"minLength\":2}," + many +
          "],\"enum\":" + ManyValues(20000) + "}",
      "{\"oneOf\":[" + many + ",{\"enum\":" + ManyValues(20000, "w") + "}]}",
      "{\"allOf\":[" + many + "," + many + ",{\"not\":{\"enum\":" + ManyValues(20000, "w") + "}}]}",
  };
  for (const std::string& schema : schemas) {
    SCOPED_TRACE(schema.substr(0, 100));
    const auto grammar = ValueOrDie(CompileJsonSchema(schema));
    EXPECT_TRUE(Accepts(grammar, "\"v0\""));
    EXPECT_TRUE(Accepts(grammar, "\"v19999\""));
    EXPECT_FALSE(Accepts(grammar, "\"v20000\""));
  }
  std::string properties, branches;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&properties, i == 0 ? "" : ",", "\"p", i, "\":{\"enum\":", ManyValues(1000),
                    "}");
  }
  const auto object = ValueOrDie(CompileJsonSchema("{\"properties\":{" + properties + "}}"));
  EXPECT_TRUE(Accepts(object, R"({"p0":"v999","p49":"v0"})"));
  for (int i = 0; i < 10000; ++i) {
    absl::StrAppend(&branches, i == 0 ? "" : ",", "{\"const\":", i, ",\"title\":\"t\"}");
  }
  const auto one_of = ValueOrDie(CompileJsonSchema("{\"oneOf\":[" + branches + "]}"));
  EXPECT_TRUE(Accepts(one_of, "9999"));
  EXPECT_FALSE(Accepts(one_of, "10000"));
}

// A pattern, or a format, is compiled once for all the texts that it is asked about.
TEST(JsonSchemaTest, ManyValuesMayHaveAPattern) {
  constexpr int kMany = 5000;
  std::string names;
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ",", "\"v", i, "\":{\"const\":1}");
  }
  const std::string pattern = R"("pattern":"^\\p{L}+[0-9]*$")";
  const std::string schemas[] = {
      absl::StrCat("{", pattern, ",\"enum\":", ManyValues(kMany), "}"),
      absl::StrCat("{\"format\":\"uri\",\"enum\":", ManyValues(kMany, "https://a.org/"), "}"),
      absl::StrCat("{\"propertyNames\":{", pattern, "},\"properties\":{", names, "}}"),
      absl::StrCat("{\"const\":{", names, R"(},"patternProperties":{"^\\p{L}+[0-9]*$":{}}})"),
  };
  for (const std::string& schema : schemas) {
    const std::clock_t begin = std::clock();
    EXPECT_TRUE(CompileJsonSchema(schema).ok()) << schema.substr(0, 100);
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC) << schema.substr(0, 100);
  }
}

TEST(JsonSchemaTest, ManyValuesAreComparedAsFewAre) {
  const std::string few = R"([1.0,2.5,-0.0,true,null,"a",[1,{"x":2,"y":[]}],{"a":1,"b":[1.0]}])";
  const std::string same = R"([{"b":[1],"a":1.0},[1,{"y":[],"x":2.0}],"a",null,true,0,2.50,1])";
  const std::string texts[] = {
      "1", "2.5", "0", "true", "null", "\"a\"", "[1,{\"x\":2,\"y\":[]}]", R"({"a":1,"b":[1]})"};
  for (const std::string& more : {std::string(), ManyValues(100)}) {
    auto with = [&more](const std::string& values) {
      if (more.empty()) return values;
      return values.substr(0, values.size() - 1) + "," + more.substr(1);
    };
    const auto both = ValueOrDie(CompileJsonSchema("{\"allOf\":[{\"enum\":" + with(few) +
                                                   "},{\"enum\":" + with(same) + "}]}"));
    for (const std::string& text : texts) EXPECT_TRUE(Accepts(both, text)) << text;
    EXPECT_FALSE(Accepts(both, "false"));
    // None is left, and no branch has one of its own.
    for (const std::string& rest :
         {"{\"enum\":" + with(few) + ",\"not\":{\"enum\":" + with(same) + "}}",
          "{\"oneOf\":[{\"enum\":" + with(few) + "},{\"enum\":" + with(same) + "}]}"}) {
      EXPECT_FALSE(CompileJsonSchema(rest).ok()) << rest;
    }
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
  // What is null because it is not there does not count.
  const char* properties = R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"},
                               "c": {"type": "integer"}}, )";
  const auto few = ValueOrDie(CompileExtractionSchema(
      absl::StrCat(properties, R"("required": ["b"], "maxProperties": 2})")));
  for (const char* text :
       {R"({"a":null,"b":1,"c":null})", R"({"a":1,"b":1,"c":null})", R"({"a":null,"b":1,"c":1})"}) {
    EXPECT_TRUE(Accepts(few, text)) << text;
  }
  for (const char* text :
       {R"({"a":1,"b":1,"c":1})", R"({"b":1})", R"({"a":null,"b":null,"c":1})"}) {
    EXPECT_FALSE(Accepts(few, text)) << text;
  }
  const auto some =
      ValueOrDie(CompileExtractionSchema(absl::StrCat(properties, R"("minProperties": 2})")));
  for (const char* text : {R"({"a":1,"b":null,"c":1})", R"({"a":1,"b":1,"c":1})"}) {
    EXPECT_TRUE(Accepts(some, text)) << text;
  }
  for (const char* text : {R"({"a":null,"b":null,"c":1})", R"({"a":1,"b":1})"}) {
    EXPECT_FALSE(Accepts(some, text)) << text;
  }
  // Nor does an additional one that comes again.
  const absl::string_view others = R"("additionalProperties": {"type": "integer"}, )";
  const auto more = ValueOrDie(
      CompileExtractionSchema(absl::StrCat(properties, others, R"("minProperties": 3})")));
  for (const char* text : {R"({"a":1,"b":1,"c":1})", R"({"a":1,"b":null,"c":1,"d":1})",
                           R"({"a":1,"b":1,"c":null,"d":1,"d":2})"}) {
    EXPECT_TRUE(Accepts(more, text)) << text;
  }
  for (const char* text : {R"({"a":1,"b":null,"c":1})", R"({"a":null,"b":null,"c":1,"d":1,"d":2})",
                           R"({"a":null,"b":null,"c":null,"d":1,"d":2,"d":3})"}) {
    EXPECT_FALSE(Accepts(more, text)) << text;
  }
  const absl::Status far =
      CompileExtractionSchema(absl::StrCat(properties, others, R"("minProperties": 5})")).status();
  EXPECT_THAT(std::string(far.message()), HasSubstr("above one more than what is listed"));
  // What may not be there is null, too.
  const auto depends = ValueOrDie(CompileExtractionSchema(
      R"({"properties": {"card": {"type": "integer"}, "town": {"type": "string"}},
          "dependentRequired": {"card": ["town"]}})"));
  for (const char* text : {R"({"card":null,"town":null})", R"({"card":null,"town":"a"})",
                           R"({"card":1,"town":"a"})"}) {
    EXPECT_TRUE(Accepts(depends, text)) << text;
  }
  for (const char* text : {"{}", R"({"town":"a"})", R"({"town":null})", R"({"card":1})",
                           R"({"card":1,"town":null})"}) {
    EXPECT_FALSE(Accepts(depends, text)) << text;
  }
}

}  // namespace
}  // namespace lm

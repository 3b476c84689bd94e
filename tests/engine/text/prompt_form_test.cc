#include "engine/text/chat/prompt_form.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

std::string Filled(const std::string& form_text, const std::string& json,
                   const std::vector<std::string>& first = {}) {
  const absl::StatusOr<PromptForm> form = PromptForm::Parse(form_text);
  if (!form.ok()) return std::string(form.status().message());
  const absl::StatusOr<PromptFields> fields = ReadPromptFields(json);
  if (!fields.ok()) return std::string(fields.status().message());
  const absl::StatusOr<std::string> prompt = form->Fill(*fields, first);
  return prompt.ok() ? *prompt : std::string(prompt.status().message());
}

TEST(PromptFormTest, NamedFieldsStandWhereTheFormNamesThem) {
  EXPECT_EQ(Filled("{{ a }} and {{b}}, {{a}}", R"({"b":"two","a":"one"})"), "one and two, one");
  EXPECT_EQ(Filled("<{{a}}>", R"({"a":null})"), "<>");
  EXPECT_EQ(Filled("none", "{}"), "none");
}

TEST(PromptFormTest, TheOthersAreLines) {
  const std::string row = R"({"x":"1 2","n":null,"y":2.5,"z":[1,{"k":true}],"name":"Moth"})";
  EXPECT_EQ(Filled("Of {{name}}:\n{{*}}\n--", row),
            "Of Moth:\nx: 1 2\ny: 2.5\nz: [1,{\"k\":true}]\n--");
  EXPECT_EQ(Filled("{{*}}", "{}"), "");
}

TEST(PromptFormTest, NumbersAreAsTheyAreWritten) {
  EXPECT_EQ(Filled("{{a}} {{b}}", R"({"a":1.50,"b":100000000000000000000.0})"),
            "1.50 100000000000000000000.0");
  EXPECT_EQ(Filled("{{a}}", R"({"a":1e400})"), "1e400");
  EXPECT_EQ(Filled("{{a}}", R"({"a" : -0})"), "-0");
  EXPECT_EQ(Filled("{{*}}", R"({"1":"2","3":[4, 5.0, {"6":-7E+08}, "9.0\\"],"\"1":1e-400})"),
            R"(1: 2
3: [4,5.0,{"6":-7E+08},"9.0\\"]
"1: 1e-400)");
  for (const char* number : {"01", "--1", "1-2", "1.", ".5", "1e", "1e+", "-", "+1", "1 2", "1a"}) {
    const std::string json = absl::StrCat("{\"a\":", number, "}");
    EXPECT_EQ(Filled("", json),
              absl::StrCat("fields must be a JSON object, name -> value, got ", json));
  }
}

TEST(PromptFormTest, AnOrderPutsFieldsFirst) {
  const std::string row = R"({"a":1,"b":2,"c":3})";
  EXPECT_EQ(Filled("{{*}}", row, {"c", "nobody", "b", "c"}), "c: 3\nb: 2\na: 1");
  EXPECT_EQ(Filled("{{c}} {{*}}", row, {"c", "b"}), "3 b: 2\na: 1");
}

// Minutes, if each field were looked for among all of them.
TEST(PromptFormTest, ManyFieldsTakeTheirTimeOnce) {
  constexpr int kFields = 200'000;
  std::string row = "{";
  std::vector<std::string> order;
  for (int i = 0; i < kFields; ++i) {
    absl::StrAppend(&row, i > 0 ? "," : "", "\"f", i, "\":", i);
    order.push_back(absl::StrCat("f", kFields - 1 - i));
  }
  const std::clock_t begin = std::clock();
  const std::string prompt = Filled("{{f7}}{{f8}}\n{{*}}", absl::StrCat(row, "}"), order);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
  EXPECT_TRUE(absl::StartsWith(prompt, "78\nf199999: 199999\nf199998: 199998\n"));
  EXPECT_TRUE(absl::EndsWith(prompt, "\nf9: 9\nf6: 6\nf5: 5\nf4: 4\nf3: 3\nf2: 2\nf1: 1\nf0: 0"));
}

TEST(PromptFormTest, WhatAFieldHoldsIsNoPlace) {
  EXPECT_EQ(Filled("{{a}}{{*}}", R"({"a":"{{b}}{{*}}","b":"{{a}}"})"), "{{b}}{{*}}b: {{a}}");
  EXPECT_EQ(Filled(R"(\{{a}} {{a}} } { \x)", R"({"a":"A"})"), R"({{a}} A } { \x)");
}

TEST(PromptFormTest, SaysWhatIsWrong) {
  EXPECT_EQ(Filled("ab {{a", "{}"),
            "template: {{ at byte 3 has no }} behind it; \\{{ is two braces");
  EXPECT_EQ(Filled("{{ }}", "{}"), "template: {{}} at byte 0 names no field");
  EXPECT_EQ(Filled("{{c}}", R"({"a":1,"b":2})"),
            "the template's field 'c' is none of the row's: a, b");
  EXPECT_EQ(Filled("", R"(["a"])"), "fields must be a JSON object, name -> value, got [\"a\"]");
  EXPECT_EQ(Filled("", R"({"a":1,"a":2})"), "field 'a' is there twice");
  EXPECT_EQ(Filled("", R"({"":1})"), "a field's name is empty");
}

}  // namespace
}  // namespace lm

#include "engine/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <locale.h>

#include <cfenv>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/checkpoint.h"
#include "engine/base/known_json.h"
#include "tests/engine/base/failing_allocation.h"

static const char* decimal_point = ".";

// A host that has set another locale.
extern "C" lconv* localeconv() noexcept {
  static char point[2], none[1];
  static lconv known = {};
  point[0] = *decimal_point;
  known.decimal_point = point;
  known.thousands_sep = known.grouping = none;
  return &known;
}

namespace lm {
namespace {

TEST(JsonTest, WritesWhatItRead) {
  for (const char* text :
       {"null", "true", "false", "0", "-7", "18446744073709551615", "-9223372036854775808", "1.5",
        "1e+300", "\"\"", "\"a\\\"\\n\\u0001é\"", "[]", "{}", "[1,[2,[]],{\"b\":1,\"a\":null}]"}) {
    const std::optional<Json> value = Json::Parse(text);
    ASSERT_TRUE(value.has_value()) << text;
    EXPECT_EQ(value->Dump(), text);
  }
  EXPECT_EQ(Json("\xff").Dump(), "\"\xEF\xBF\xBD\"");
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  for (const char* text : {"", "[", "[1,]", "{\"a\"}", "nul", "1 2", "\"\xff\"", "'a'"}) {
    EXPECT_FALSE(Json::Parse(text).has_value()) << text;
  }
}

TEST(JsonTest, TellsADepthThatItDoesNotRead) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  int depth = 0;
  EXPECT_TRUE(Json::Parse(nested(Json::kDeepest), &depth).has_value());
  EXPECT_EQ(depth, Json::kDeepest);
  EXPECT_FALSE(Json::Parse(nested(Json::kDeepest + 1), &depth).has_value());
  EXPECT_EQ(depth, Json::kDeepest + 1);
  EXPECT_FALSE(Json::Parse(nested(1000000), &depth).has_value());
  EXPECT_EQ(depth, 1000000);
  EXPECT_EQ(Json::Parse("[[1],[[2]],3]", &depth)->Dump(), "[[1],[[2]],3]");
  EXPECT_EQ(depth, 3);
}

TEST(JsonTest, IntegersBeyond64BitsKeepTheirDigits) {
  for (const char* text : {"18446744073709551616", "-9223372036854775809",
                           "[100000000000000000001,{\"a\":123456789012345678901234567890}]"}) {
    EXPECT_EQ(Json::Parse(text)->Dump(), text);
  }
  const Json long_integer = *Json::Parse("100000000000000000001");
  EXPECT_TRUE(long_integer.is_number() && long_integer.is_float());
  EXPECT_FALSE(long_integer.is_integer());
  EXPECT_EQ(long_integer.number(), 1e20);
  EXPECT_NE(long_integer, *Json::Parse("100000000000000000002"));
  EXPECT_EQ(*Json::Parse("100000000000000000000"), Json(1e20));
  EXPECT_NE(*Json::Parse("18446744073709551616"), *Json::Parse("18446744073709551615"));
}

TEST(JsonTest, FindsTheLastMemberOfAName) {
  const Json object = *Json::Parse(R"({"a":1,"b":2,"a":3})");
  EXPECT_EQ(*object.Find("a"), Json(3));
  EXPECT_EQ(object.Find("c"), nullptr);
  EXPECT_EQ(Json(1).Find("a"), nullptr);
}

TEST(JsonTest, ComparesNumbersByValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json(-1), Json(-1.0));
  EXPECT_NE(Json(1), Json(-1));
  EXPECT_NE(Json(1), Json(true));
  EXPECT_NE(Json("1"), Json(1));
  EXPECT_EQ(*Json::Parse("[1,{\"a\":2}]"), *Json::Parse("[1.0, {\"a\": 2}]"));
  EXPECT_NE(*Json::Parse(R"({"a":1,"b":2})"), *Json::Parse(R"({"b":2,"a":1})"));
}

TEST(JsonTest, QuotesWhatHasToBe) {
  EXPECT_EQ(JsonString(""), R"("")");
  EXPECT_EQ(JsonString("plain ~ text"), R"("plain ~ text")");
  EXPECT_EQ(JsonString("\x7f"), "\"\x7f\"");
  EXPECT_EQ(JsonString("a\"b\\c\n"), R"("a\"b\\c\n")");
}

TEST(JsonTest, IsReadNoFurtherThanAnInterrupt) {
  const std::string text = "[\"" + std::string(1 << 20, 'x') + "\"]";
  int questions = 0;
  CheckpointScope scope([&] { return ++questions == 1; });
  std::this_thread::sleep_for(2 * kCheckpointInterval);
  EXPECT_EQ(Json::Parse(text), std::nullopt);
  EXPECT_EQ(questions, 1);
  EXPECT_EQ(Json::Parse("1"), std::nullopt);  // it stays so
}

#ifdef NDEBUG  // strtod is not deceived, and an assertion would see it
TEST(JsonTest, NumbersAreReadInAnyLocale) {
  decimal_point = ",";
  const std::optional<Json> read = Json::Parse("[0.5,1e-3,1.25e2,-0.1,123456789012345678901234]");
  decimal_point = ".";
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Dump(), "[0.5,0.001,125.0,-0.1,123456789012345678901234]");
  EXPECT_EQ(read->array()[3].number(), -0.1);
}
#endif

TEST(JsonTest, NumbersAreReadHoweverTheThreadRounds) {
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    const std::optional<Json> read = Json::Parse("[0.1,0.3,2.2250738585072014e-308]");
    std::fesetround(FE_TONEAREST);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->Dump(), "[0.1,0.3,2.2250738585072014e-308]");
  }
}

TEST(JsonTest, OnlyAnInterruptKeepsKnownJsonFromBeingRead) {
  EXPECT_EQ(ReadKnownJson("[1, 2]").value().Dump(), "[1,2]");
  EXPECT_TRUE(absl::IsInternal(ReadKnownJson("[1, 2").status()));
  CheckpointScope scope([] { return true; });
  std::this_thread::sleep_for(2 * kCheckpointInterval);
  EXPECT_TRUE(absl::IsCancelled(ReadKnownJson("[1, 2]").status()));
}

TEST(JsonTest, AnyAllocationMayFail) {
  const std::string text(40, 'x'), other(50, 'y');  // longer than a string holds in itself
  Json pair = Json::MakeArray();
  pair.Append(1).Append(text);
  Json object = Json::MakeObject();
  object.Add(text, pair).Add(other, Json::MakeArray().Append(pair).Append(other));
  EXPECT_EQ(FailEachAllocation([&] { const Json copy = pair; }), 2);
  EXPECT_GT(
      FailEachAllocation([&] { Json::MakeObject().Add(text, Json::MakeArray().Append(object)); }),
      10);
  EXPECT_GT(FailEachAllocation([&] {
              Json value = pair;
              Json same = value;
              same = object;
              value.Append(same);
              EXPECT_EQ(value.array()[2], object);
            }),
            20);
  const std::string line = object.Dump();
  EXPECT_GT(FailEachAllocation([&] {
              const std::optional<Json> read = Json::Parse(line);
              ASSERT_TRUE(read.has_value());
              EXPECT_EQ(read->Dump(), line);
            }),
            20);
}

}  // namespace
}  // namespace lm

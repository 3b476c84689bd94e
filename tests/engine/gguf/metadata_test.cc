#include "engine/gguf/metadata.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Metadata SampleMetadata() {
  Metadata metadata;
  metadata.Insert("string", std::string("text"));
  metadata.Insert("unsigned", uint64_t{7});
  metadata.Insert("signed", int64_t{-7});
  metadata.Insert("huge", std::numeric_limits<uint64_t>::max());
  metadata.Insert("float", 0.5);
  metadata.Insert("nan", std::numeric_limits<double>::quiet_NaN());
  metadata.Insert("bool", true);
  metadata.Insert("strings", std::vector<std::string>{"a", "b"});
  metadata.Insert("unsigneds", std::vector<uint64_t>{1, 2});
  metadata.Insert("signeds", std::vector<int64_t>{-1, 2});
  metadata.Insert("huges", std::vector<uint64_t>{1, 1ull << 63});
  metadata.Insert("floats", std::vector<double>{0.5, -2});
  metadata.Insert("bad_floats", std::vector<double>{0.5, 1e300});
  return metadata;
}

template <typename T>
std::string Message(const absl::StatusOr<T>& result) {
  return std::string(result.status().message());
}

TEST(MetadataTest, GetsValuesOfTheirTypes) {
  Metadata metadata = SampleMetadata();
  EXPECT_EQ(metadata.GetString("string").value(), "text");
  EXPECT_EQ(metadata.GetInt("unsigned").value(), 7);
  EXPECT_EQ(metadata.GetInt("signed").value(), -7);
  EXPECT_EQ(metadata.GetFloat("float").value(), 0.5);
  EXPECT_TRUE(metadata.GetBool("bool").value());
  EXPECT_THAT(metadata.GetStrings("strings").value(), ElementsAre("a", "b"));
  EXPECT_THAT(metadata.GetInts("unsigneds").value(), ElementsAre(1, 2));
  EXPECT_THAT(metadata.GetInts("signeds").value(), ElementsAre(-1, 2));
  EXPECT_THAT(metadata.GetFloats("floats").value(), ElementsAre(0.5f, -2.0f));
}

TEST(MetadataTest, AbsentKeysAreNotFoundByName) {
  Metadata metadata = SampleMetadata();
  EXPECT_FALSE(metadata.Has("absent"));
  for (const absl::Status& status :
       {metadata.GetString("absent").status(), metadata.GetInt("absent").status(),
        metadata.GetFloat("absent").status(), metadata.GetBool("absent").status(),
        metadata.GetStrings("absent").status(), metadata.GetInts("absent").status(),
        metadata.GetFloats("absent").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(std::string(status.message()), "key \"absent\" is not in the file");
  }
}

TEST(MetadataTest, WrongTypesSayWhatIsThere) {
  Metadata metadata = SampleMetadata();
  EXPECT_EQ(Message(metadata.GetString("strings")),
            "key \"strings\": wanted a string, the file has an array of 2 strings");
  EXPECT_EQ(Message(metadata.GetInt("float")),
            "key \"float\": wanted an integer, the file has the float 0.5");
  EXPECT_EQ(Message(metadata.GetFloat("signed")),
            "key \"signed\": wanted a float, the file has the integer -7");
  EXPECT_EQ(Message(metadata.GetBool("unsigned")),
            "key \"unsigned\": wanted a bool, the file has the integer 7");
  EXPECT_EQ(Message(metadata.GetStrings("string")),
            "key \"string\": wanted an array of strings, the file has a string");
  EXPECT_EQ(Message(metadata.GetInts("bool")),
            "key \"bool\": wanted an array of integers, the file has a bool");
  EXPECT_EQ(Message(metadata.GetFloats("unsigneds")),
            "key \"unsigneds\": wanted an array of floats, the file has an array of 2 integers");
}

TEST(MetadataTest, NumbersThatDoNotFitAreRefused) {
  Metadata metadata = SampleMetadata();
  EXPECT_THAT(Message(metadata.GetInt("huge")), HasSubstr("18446744073709551615"));
  EXPECT_THAT(Message(metadata.GetInts("huges")), HasSubstr("element 1 is 9223372036854775808"));
  EXPECT_THAT(Message(metadata.GetFloat("nan")), HasSubstr("wanted a finite 32-bit float"));
  EXPECT_TRUE(metadata.Insert("large", 1e300));
  EXPECT_THAT(Message(metadata.GetFloat("large")),
              HasSubstr("\"large\": wanted a finite 32-bit float, the file has the float 1e+300"));
  EXPECT_THAT(Message(metadata.GetFloats("bad_floats")), HasSubstr("element 1 is 1e+300"));
}

TEST(MetadataTest, InsertKeepsTheFirstValue) {
  Metadata metadata;
  EXPECT_TRUE(metadata.Insert("key", true));
  EXPECT_FALSE(metadata.Insert("key", false));
  EXPECT_TRUE(metadata.GetBool("key").value());
}

}  // namespace
}  // namespace lm

// Every refusal by its name: what is wrong with the file, and the key or tensor and the numbers
// that the message must have.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  std::string name;
  std::string file;
  std::vector<std::string> words;  // of the message
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

std::string Join(std::string front, const std::string& back) { return front.append(back); }

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

GgufBuilder Gguf() { return GgufBuilder(); }

std::string Floats(int n) { return std::string(n * sizeof(float), '\0'); }

std::vector<Refusal> HeaderRefusals() {
  return {
      {"Empty", "", {"0 are left", "4 bytes wanted at offset 0"}},
      {"Text", "SQLite format 3", {"not a GGUF file", "\"SQLi\"", "wanted \"GGUF\""}},
      {"ControlBytesInTheMagic", "\x1b[2J....", {"\"\\x1b[2J\""}},
      {"SwappedMagic", Gguf().Magic("FUGG").Build(), {"big-endian"}},
      {"SwappedVersion", Gguf().Version(0x03000000).Build(), {"big-endian"}},
      {"Version1", Gguf().Version(1).Build(), {"version 1 is not supported", "2 or 3"}},
      {"Version0", Gguf().Version(0).Build(), {"version 0"}},
      {"Version4", Gguf().Version(4).Build(), {"version 4"}},
      {"CutInTheHeader",
       Gguf().Build().substr(0, 13),
       {"8 bytes wanted", "offset 8", "5 are left"}},
      {"MorePairsThanBytes",
       Gguf().NumPairs(1000).Add("key", "x").Build(),
       {"1000 metadata pairs"}},
      {"HugePairCount", Gguf().NumPairs(~0ull).Build(), {"18446744073709551615 metadata pairs"}},
      {"MoreTensorsThanBytes", Gguf().NumTensors(3).Build(), {"3 tensors", "0 bytes are left"}},
      {"HugeTensorCount", Gguf().NumTensors(1ull << 63).Build(), {"9223372036854775808 tensors"}},
      {"TooManyTensors",
       Join(Gguf().NumTensors(70000).Build(), std::string(70000 * 33, '\0')),
       {"70000 tensors", "65536"}},
      {"TrailingData",
       Join(Gguf().AddTensor("t", kGgmlF32, {1}, Floats(1)).Build(), std::string(100, 'x')),
       {"bytes belong to nothing"}},
      {"TrailingDataWithoutTensors",
       Join(Gguf().Build(), std::string(100, 'x')),
       {"124 bytes", "ends at 24", "100 bytes belong to nothing"}},
  };
}

std::vector<Refusal> MetadataRefusals() {
  const uint64_t kHuge = ~0ull;
  return {
      {"DuplicateKey", Gguf().Add("a.b", 1).Add("a.b", 2).Build(), {"\"a.b\" appears twice"}},
      {"EmptyKey", Gguf().Add("ok", 1).Add("", 1).Build(), {"metadata pair 1", "empty"}},
      {"LongKey", Gguf().Add(std::string(70000, 'k'), 1).Build(), {"pair 0", "70000", "65535"}},
      {"KeyBeyondTheFile",
       Join(Gguf().NumPairs(1).Build(), Bytes(kHuge) + "1234567890"),
       {"pair 0", "18446744073709551615 bytes", "10 bytes are left"}},
      {"UnknownValueType", Gguf().AddRaw("k", 13, Bytes(1)).Build(), {"\"k\"", "value type 13"}},
      {"UnknownElementType", Gguf().AddRawArray("k", 99, 1, Bytes(1)).Build(), {"type 99"}},
      {"NestedArray",
       Gguf().AddRawArray("k", kGgufArray, 1, Bytes(1)).Build(),
       {"\"k\"", "arrays of arrays"}},
      {"BoolOf2", Gguf().AddRaw("k", 7, "\x02").Build(), {"\"k\"", "a bool of value 2"}},
      {"BoolOf255InAnArray",
       Gguf().AddRawArray("k", 7, 3, "\x01\xff\x01").Build(),
       {"\"k\"", "a bool of value 255"}},
      {"StringBeyondTheFile",
       Gguf().AddRaw("k", 8, Bytes<uint64_t>(6) + "12345").Build(),
       {"\"k\"", "a string of 6 bytes", "5 bytes are left"}},
      {"StringOf2To64Bytes",
       Gguf().AddRaw("k", 8, Bytes(kHuge) + "12345").Build(),
       {"a string of 18446744073709551615 bytes"}},
      {"ElementBeyondTheFile",
       Gguf().AddRawArray("k", 8, 2, StringBytes("one") + Bytes(kHuge)).Build(),
       {"\"k\": element 1", "18446744073709551615", "0 bytes are left"}},
      {"StringsBeyondTheFile",
       Gguf().AddRawArray("k", 8, 5, std::string(32, '\0')).Build(),
       {"\"k\"", "5 strings", "32 bytes are left"}},
      {"NumbersBeyondTheFile",
       Gguf().AddRawArray("k", 5, 4, Bytes(1)).Build(),
       {"\"k\"", "4 values of 4 bytes", "4 bytes are left"}},
      {"ArrayWhoseSizeOverflows",
       Gguf().AddRawArray("k", 12, 1ull << 61, Bytes(1.0)).Build(),
       {"\"k\"", "2305843009213693952 values of 8 bytes"}},
      {"BoolsBeyondTheFile",
       Gguf().AddRawArray("k", 7, 1ull << 40, "\x01").Build(),
       {"\"k\"", "1099511627776 bytes wanted"}},
      {"LargeArrayOutsideTheVocabulary",
       Gguf().Add("big", std::vector<uint8_t>(3 << 20)).Build(),
       {"\"big\"", "more than 16 MiB", "3145728 values"}},
      {"ManyKeys",
       [] {
         GgufBuilder gguf;
         for (int i = 0; i < 100000; ++i) gguf.Add(absl::StrCat("k", i), true);
         return gguf.Build();
       }(),
       {"metadata pair", "more than 16 MiB"}},
      {"ControlBytesInAKey",
       Gguf().AddRaw("a\n\x1b]0;\x07\xff", 77, "").Build(),
       {"\"a\\n\\x1b]0;\\x07\\xff\""}},
      {"LongKeyIsCutInTheMessage",
       Gguf().AddRaw(std::string(500, 'k'), 77, "").Build(),
       {"kkkk\"... (500 bytes)"}},
      {"AlignmentZero", Gguf().Alignment(0).Build(), {"\"general.alignment\"", "got 0"}},
      {"AlignmentOne", Gguf().Alignment(1).Build(), {"from 8 to 65536", "got 1"}},
      {"AlignmentNotAPowerOfTwo", Gguf().Alignment(48).Build(), {"power of two", "got 48"}},
      {"AlignmentHuge", Gguf().Alignment(1 << 17).Build(), {"got 131072"}},
      {"AlignmentNegative", Gguf().Add("general.alignment", int32_t{-32}).Build(), {"got -32"}},
      {"AlignmentOfAnotherType",
       Gguf().Add("general.alignment", "32").Build(),
       {"\"general.alignment\"", "wanted an integer", "a string"}},
  };
}

std::vector<Refusal> TensorRefusals() {
  auto one = [](uint32_t type, std::vector<uint64_t> dims, const std::string& bytes) {
    return GgufBuilder().AddTensor("blk.0.w", type, std::move(dims), bytes).Build();
  };
  const uint64_t k32 = 1ull << 32;
  return {
      {"NoName", Gguf().AddTensor("", kGgmlF32, {1}, Floats(1)).Build(), {"tensor 0 is empty"}},
      {"LongName",
       Gguf().AddTensor(std::string(65, 'n'), kGgmlF32, {1}, Floats(1)).Build(),
       {"name of tensor 0", "65 bytes", "at most 64"}},
      {"NoDims", one(kGgmlF32, {}, Floats(1)), {"\"blk.0.w\"", "0 dimensions, wanted 1 to 4"}},
      {"FiveDims", one(kGgmlF32, {1, 1, 1, 1, 1}, Floats(1)), {"\"blk.0.w\"", "5 dimensions"}},
      {"ZeroDim", one(kGgmlF32, {4, 0}, Floats(1)), {"\"blk.0.w\"", "dimension 1 is 0"}},
      {"NegativeDim", one(kGgmlF32, {~0ull}, Floats(1)), {"[18446744073709551615]", "F32"}},
      {"CountOverflows", one(kGgmlQ4_0, {k32, k32}, Floats(1)), {"[4294967296, 4294967296]"}},
      {"CountWrapsToSmall", one(kGgmlF32, {k32, k32, 1, 3}, Floats(1)), {"takes more than"}},
      {"BytesOverflow", one(kGgmlF32, {1ull << 62, 1}, Floats(1)), {"[4611686018427387904, 1]"}},
      {"RowsNotWholeBlocks",
       one(kGgmlQ8_0, {33, 32}, Floats(500)),
       {"\"blk.0.w\"", "rows of 33 values", "Q8_0 blocks of 32"}},
      {"KRowsNotWholeBlocks",
       one(kGgmlQ4_K, {128, 2}, Floats(500)),
       {"rows of 128 values", "Q4_K blocks of 256"}},
      {"StoredRowsNotWholeBlocks", one(15, {128, 2}, Floats(500)), {"blocks of 256"}},
      {"StoredRowsCutShort", one(15, {256, 4}, std::string(4 * 292 - 1, 0)), {"1168 bytes"}},
      {"UnsupportedType",
       one(9, {256}, Floats(500)),
       {"\"blk.0.w\"", "type 9 (Q8_1)"},
       kUnimplemented},
      {"IntegerType", one(25, {256}, Floats(256)), {"type 25 (I16)"}, kUnimplemented},
      {"UnknownType", one(1000, {256}, Floats(500)), {"type 1000 (unknown)"}, kUnimplemented},
      {"DuplicateTensor",
       Gguf()
           .AddTensor("a", kGgmlF32, {1}, Floats(1))
           .AddTensor("b", kGgmlF32, {1}, Floats(1))
           .AddTensor("a", kGgmlF32, {1}, Floats(1))
           .Build(),
       {"tensor \"a\" appears twice"}},
      {"OffsetNotAligned",
       Gguf().AddTensor("t", kGgmlF32, {1}, Floats(64), 4).Build(),
       {"\"t\"", "offset 4", "alignment 32"}},
      {"OffsetBeyondTheFile",
       Gguf().AddTensor("t", kGgmlF32, {1}, Floats(1), 1 << 20).Build(),
       {"\"t\"", "4 bytes at offset 1048576", "past the end of the file at 68"}},
      {"OffsetOverflows",
       Gguf().AddTensor("t", kGgmlF32, {1}, Floats(1), ~0ull - 31).Build(),
       {"\"t\"", "past the end"}},
      {"SizeBeyondTheFile",
       one(kGgmlF32, {1000}, Floats(999)),
       {"\"blk.0.w\"", "its 4000 bytes", "is the file cut short?"}},
      {"Overlap",
       Gguf()
           .AddTensor("first", kGgmlF32, {16}, Floats(16))
           .AddTensor("second", kGgmlF32, {16}, Floats(16), 32)
           .Build(),
       {"tensors \"first\" (bytes 128 to 192) and \"second\" (bytes 160 to 224) overlap"}},
      {"SameOffset",
       Gguf()
           .AddTensor("first", kGgmlF32, {1}, Floats(1))
           .AddTensor("second", kGgmlF32, {1}, Floats(1), 0)
           .Build(),
       {"overlap"}},
      {"ControlBytesInATensorName",
       one(kGgmlF32, {0}, "").replace(32, 3, "\x1b\n\x07"),
       {"\"\\x1b\\n\\x07.0.w\""}},
  };
}

class GgufRefusalsTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(GgufRefusalsTest, SaysWhatAndWhere) {
  absl::Status status = OpenGguf(GetParam().file).status();
  EXPECT_EQ(status.code(), GetParam().code);
  std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("memory.gguf"));
  for (const std::string& word : GetParam().words) EXPECT_THAT(message, HasSubstr(word));
  for (char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_LT(message.size(), 500u);
}

std::string RefusalName(const ::testing::TestParamInfo<Refusal>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Header, GgufRefusalsTest, ::testing::ValuesIn(HeaderRefusals()),
                         RefusalName);
INSTANTIATE_TEST_SUITE_P(Metadata, GgufRefusalsTest, ::testing::ValuesIn(MetadataRefusals()),
                         RefusalName);
INSTANTIATE_TEST_SUITE_P(Tensors, GgufRefusalsTest, ::testing::ValuesIn(TensorRefusals()),
                         RefusalName);

}  // namespace
}  // namespace lm

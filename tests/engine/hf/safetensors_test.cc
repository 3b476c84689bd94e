// Safetensors headers: what is read, what is refused and by which words, and that none of the bytes
// of a damaged one is believed.
#include "engine/hf/safetensors.h"

#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/gguf/memory_file.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + header + std::string(data_bytes, '\1');
}

absl::StatusOr<std::vector<StoredTensor>> Read(std::string bytes) {
  return ReadSafetensors(std::make_shared<MemoryFile>(std::move(bytes), "x.safetensors"));
}

constexpr char kTwo[] = R"({"__metadata__":{"format":"pt"},)"
                        R"("b":{"dtype":"F16","shape":[4,2],"data_offsets":[12,28]},)"
                        R"("a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";

TEST(SafetensorsTest, ReadsTypesShapesAndPlaces) {
  const auto tensors = Read(File(kTwo, 28));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].Description(), "F16 [4, 2]");
  EXPECT_EQ((*tensors)[0].offset, 8 + sizeof(kTwo) - 1 + 12);
  EXPECT_EQ((*tensors)[0].bytes, 16u);
  EXPECT_EQ((*tensors)[1].Description(), "F32 [3]");
}

TEST(SafetensorsTest, RefusalsNameFileTensorAndNumbers) {
  struct Case {
    const char* header;
    size_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {"[]", 0, "its header is not an object"},
      {"{", 0, "its header: is not JSON"},
      {R"({"a":{"dtype":"F32","shape":[3]}})", 12, "wanted a dtype, a shape and data_offsets"},
      {R"({"a":{"dtype":"F33","shape":[3],"data_offsets":[0,12]}})", 12, "\"F33\" is not known"},
      {R"({"a":{"dtype":"F32","shape":[-3],"data_offsets":[0,12]}})", 12, "got -3"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,12]}})", 12, "got 1.5"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,12]}})", 12,
       "takes 16 bytes, its data_offsets have 12"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,13]}})", 12,
       "0 to 13 are not within the 12 bytes of data"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[12,0]}})", 12, "12 to 0 are not within"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "takes more than 2^64 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,3],"data_offsets":[0,12]}})", 12,
       "9 dimensions"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
       12, "tensor \"b\" begins at byte"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})", 12,
       "the one before it ends at"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 12, "the file at"},
  };
  for (const Case& c : cases) {
    const absl::Status status = Read(File(c.header, c.data_bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.header;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.header;
    EXPECT_THAT(std::string(status.message()), HasSubstr("x.safetensors")) << c.header;
  }
  const std::string many = absl::StrCat("{\"a\":[", std::string(3 << 20, ','), "]}");
  EXPECT_THAT(std::string(Read(File(many, 0)).status().message()),
              HasSubstr("at most 1048576 are read"));
  std::string lie = File("{}", 0);
  lie[6] = '\x7f';  // a header of 2^54 bytes
  EXPECT_THAT(std::string(Read(lie).status().message()), HasSubstr("where 2 are left"));
}

TEST(SafetensorsTest, CutAnywhereOrWithAnyByteChangedItIsRefusedOrWithinTheFile) {
  const std::string whole = File(kTwo, 28);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Read(whole.substr(0, size)).ok()) << "cut at " << size;
  }
  for (size_t at = 0; at + 28 < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      const auto tensors = Read(damaged);
      if (!tensors.ok()) continue;
      for (const StoredTensor& tensor : *tensors) {
        ASSERT_LE(tensor.offset, whole.size());
        ASSERT_LE(tensor.bytes, whole.size() - tensor.offset);
      }
    }
  }
}

}  // namespace
}  // namespace lm

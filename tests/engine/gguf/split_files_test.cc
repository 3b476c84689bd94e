#include "engine/gguf/split_files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
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

// Part `index` of `count`, with one F32 tensor "t<index>" of value `index`; `tensors` is what
// split.tensors.count says.
std::string Part(int index, int count, int tensors) {
  GgufBuilder gguf;
  gguf.Add("split.no", static_cast<uint16_t>(index))
      .Add("split.count", static_cast<uint16_t>(count))
      .Add("split.tensors.count", int32_t{tensors});
  if (index == 0) gguf.Add("general.architecture", "llama");
  gguf.AddTensor(absl::StrCat("t", index), kGgmlF32, {1}, Bytes(static_cast<float>(index)));
  return gguf.Build();
}

class SplitFilesTest : public ::testing::Test {
 protected:
  SplitFilesTest() {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ("lm_split_" +
                  std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~SplitFilesTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ / name; }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }

  std::string Failure(const std::string& name) const {
    return std::string(GgufFile::Open(Path(name)).status().message());
  }

  std::filesystem::path directory_;
};

std::string OpenParts(const std::vector<std::string>& parts) {
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  for (size_t i = 0; i < parts.size(); ++i) {
    files.push_back(std::make_unique<MemoryFile>(parts[i], absl::StrCat("file", i + 1, ".gguf")));
  }
  return std::string(GgufFile::Open(std::move(files)).status().message());
}

TEST_F(SplitFilesTest, OpensAllPartsByThePathOfAny) {
  for (int i = 0; i < 3; ++i) {
    Write(absl::StrCat("m-0000", i + 1, "-of-00003.gguf"), Part(i, 3, 3));
  }
  for (const char* name :
       {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    absl::StatusOr<std::unique_ptr<GgufFile>> gguf = GgufFile::Open(Path(name));
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ((*gguf)->metadata().GetString("general.architecture").value(), "llama");
    EXPECT_EQ((*gguf)->tensors().size(), 3u);
    EXPECT_EQ((*gguf)->bytes(), Part(0, 3, 3).size() + 2 * Part(1, 3, 3).size());
    for (int i = 0; i < 3; ++i) {
      const TensorInfo* info = (*gguf)->FindTensor(absl::StrCat("t", i));
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->split, i);
      float value = -1;
      absl::Span<char> out = absl::MakeSpan(reinterpret_cast<char*>(&value), sizeof(value));
      ASSERT_TRUE((*gguf)->ReadTensor(*info, out).ok());
      EXPECT_EQ(value, static_cast<float>(i));
    }
  }
}

TEST_F(SplitFilesTest, EveryPartIsInTheDigest) {
  std::set<std::string> digests;
  for (int changed = -1; changed < 3; ++changed) {
    for (int i = 0; i < 3; ++i) {
      std::string part = Part(i, 3, 3);
      if (i == changed) part.back() ^= 1;
      Write(absl::StrCat("m-0000", i + 1, "-of-00003.gguf"), part);
    }
    const auto gguf = GgufFile::Open(Path("m-00001-of-00003.gguf")).value();
    digests.insert(gguf->Digest(2).value());
    EXPECT_EQ(gguf->Digest(1).value(), gguf->Digest(2).value());
  }
  EXPECT_EQ(digests.size(), 4u);
}

TEST_F(SplitFilesTest, AMissingPartIsNamed) {
  Write("m-00001-of-00003.gguf", Part(0, 3, 3));
  Write("m-00003-of-00003.gguf", Part(2, 3, 3));
  EXPECT_THAT(Failure("m-00001-of-00003.gguf"),
              HasSubstr("part 2 of 3: '" + Path("m-00002-of-00003.gguf") + "': No such file"));
}

TEST_F(SplitFilesTest, ARenamedPartCannotFindTheOthers) {
  Write("model.gguf", Part(0, 3, 3));
  EXPECT_THAT(Failure("model.gguf"), HasSubstr("part 1 of 3"));
  EXPECT_THAT(Failure("model.gguf"), HasSubstr("\"-00001-of-00003.gguf\""));
}

TEST_F(SplitFilesTest, AFileThatOnlyLooksSplitIsOneModel) {
  std::string path = Write("m-00001-of-00002.gguf", GgufBuilder().Add("key", "x").Build());
  EXPECT_TRUE(GgufFile::Open(path).ok());
  path = Write("one.gguf", Part(0, 1, 1));
  EXPECT_TRUE(GgufFile::Open(path).ok());
}

TEST_F(SplitFilesTest, TheIdentityIsThatOfAllParts) {
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    paths.push_back(Write(absl::StrCat("m-0000", i + 1, "-of-00003.gguf"), Part(i, 3, 3)));
  }
  const ModelIdentity first = IdentifyModel(paths[0]).value();
  EXPECT_EQ(IdentifyModel(paths[2]).value(), first);  // by the path of any
  for (const std::string& path : paths) {
    const ModelIdentity before = IdentifyModel(paths[0]).value();
    std::filesystem::remove(path);
    if (path != paths[0]) {
      const ModelIdentity without = IdentifyModel(paths[0]).value();
      EXPECT_NE(without, before);
      EXPECT_FALSE(IsReplaced(before, without));  // it is still in memory
    }
    Write(std::filesystem::path(path).filename(), Part(0, 3, 33333333));
    const ModelIdentity after = IdentifyModel(paths[0]).value();
    EXPECT_NE(after, before) << path;
    EXPECT_TRUE(IsReplaced(before, after)) << path;
  }
  EXPECT_FALSE(IdentifyModel(Path("none-00001-of-00002.gguf")).ok());
  // Not split, whatever they are called.
  for (const char* name : {"m.gguf", "x-00001-of-00002.gguf", "x-00000-of-00000.gguf",
                           "x-00003-of-00002.gguf", "-00001-of-99999.gguf"}) {
    const ModelIdentity one = IdentifyModel(Write(name, "x")).value();
    EXPECT_EQ(one, IdentifyModel(Path(name)).value());
    EXPECT_FALSE(IsReplaced(one, one));
    Write(name, "xy");
    EXPECT_TRUE(IsReplaced(one, IdentifyModel(Path(name)).value())) << name;
  }
}

TEST_F(SplitFilesTest, ADirectorysIdentityIsThatOfWhatIsReadOfIt) {
  Write("config.json", "{}");
  Write("model.safetensors", "x");
  std::filesystem::create_directories(Path("1_Pooling"));
  std::filesystem::create_directories(Path("modules.json"));
  std::filesystem::create_symlink("nowhere", Path("tokenizer.json"));
  const ModelIdentity first = IdentifyModel(directory_).value();
  Write("notes.txt", "xyz");
  Write("notes.json", "{}");
  EXPECT_EQ(IdentifyModel(directory_).value(), first);
  for (const char* name : {"model.safetensors", "1_Pooling/config.json", "config.json", "nowhere",
                           "chat_template.jinja"}) {
    const ModelIdentity before = IdentifyModel(directory_).value();
    Write(name, "other");
    EXPECT_TRUE(IsReplaced(before, IdentifyModel(directory_).value())) << name;
  }
  std::filesystem::remove(Path("config.json"));
  EXPECT_FALSE(IdentifyModel(directory_).ok());
}

TEST_F(SplitFilesTest, ADirectorysWeightsMayGoAndOthersMayCome) {
  Write("config.json", "{}");
  for (const char* name : {"a.safetensors", "b.safetensors", "c.safetensors"}) Write(name, "x");
  const ModelIdentity loaded = IdentifyModel(directory_).value();
  std::filesystem::remove(Path("a.safetensors"));
  Write("adapter.safetensors", "x");
  EXPECT_FALSE(IsReplaced(loaded, IdentifyModel(directory_).value()));
  Write("c.safetensors", "other");
  EXPECT_TRUE(IsReplaced(loaded, IdentifyModel(directory_).value()));
}

TEST_F(SplitFilesTest, OtherWeightsInThePlaceOfAllAreAnotherModel) {
  Write("config.json", "{}");
  Write("a.safetensors", "x");
  const ModelIdentity loaded = IdentifyModel(directory_).value();
  std::filesystem::remove(Path("a.safetensors"));
  EXPECT_FALSE(IsReplaced(loaded, IdentifyModel(directory_).value()));  // it is in memory
  Write("b.safetensors", "x");
  EXPECT_TRUE(IsReplaced(loaded, IdentifyModel(directory_).value()));
  Write("a.safetensors", "x");
  EXPECT_TRUE(IsReplaced(loaded, IdentifyModel(directory_).value()));
}

TEST_F(SplitFilesTest, PartsInTheWrongPlaceAreRefused) {
  EXPECT_EQ(OpenParts({Part(0, 2, 2), Part(1, 2, 2)}), "");
  EXPECT_EQ(OpenParts({Part(1, 2, 2), Part(0, 2, 2)}),
            "'file1.gguf': wanted part 1 of 2, but its metadata says part 2 of 2");
  EXPECT_EQ(OpenParts({Part(0, 2, 2), Part(1, 3, 3)}),
            "'file2.gguf': wanted part 2 of 2, but its metadata says part 2 of 3");
  EXPECT_EQ(OpenParts({Part(0, 2, 2)}),
            "'file1.gguf': wanted part 1 of 1, but its metadata says part 1 of 2");
  EXPECT_EQ(OpenParts({}), "no file given");
}

TEST_F(SplitFilesTest, TheTensorCountMustAgree) {
  EXPECT_EQ(OpenParts({Part(0, 2, 5), Part(1, 2, 5)}),
            "'file1.gguf': key \"split.tensors.count\" says 5 tensors, the parts have 2");
  std::string no_count =
      GgufBuilder().Add("split.no", uint16_t{0}).Add("split.count", uint16_t{2}).Build();
  EXPECT_THAT(OpenParts({no_count, Part(1, 2, 1)}), HasSubstr("\"split.tensors.count\" is not in"));
}

TEST_F(SplitFilesTest, ATensorInTwoPartsIsRefused) {
  GgufBuilder second;
  second.Add("split.no", uint16_t{1}).Add("split.count", uint16_t{2});
  second.AddTensor("t0", kGgmlF32, {1}, Bytes(1.0f));
  EXPECT_EQ(OpenParts({Part(0, 2, 2), second.Build()}),
            "'file2.gguf': tensor \"t0\" appears twice");
}

TEST_F(SplitFilesTest, BadPositionsAreRefused) {
  auto position = [](auto index, auto count) {
    return OpenParts({GgufBuilder().Add("split.no", index).Add("split.count", count).Build()});
  };
  EXPECT_THAT(position(uint16_t{2}, uint16_t{2}), HasSubstr("\"split.no\": part 2 of 2"));
  EXPECT_THAT(position(int32_t{-1}, uint16_t{2}), HasSubstr("\"split.no\": part -1 of 2"));
  EXPECT_THAT(position(uint16_t{0}, uint16_t{65535}), HasSubstr("\"split.count\": wanted 1 to"));
  EXPECT_THAT(position(uint16_t{0}, int32_t{-2}), HasSubstr("got -2"));
  EXPECT_THAT(position(uint16_t{0}, 2.0f), HasSubstr("\"split.count\": wanted an integer"));
  EXPECT_THAT(OpenParts({GgufBuilder().Add("split.count", uint16_t{2}).Build()}),
              HasSubstr("\"split.no\" is not in the file"));
}

}  // namespace
}  // namespace lm

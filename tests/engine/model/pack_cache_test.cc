// Which files of a folder of packed weights a new one takes away. What becomes of those that are in
// use, damaged or cut: tests/extension/pack_cache_test.py.
#include "engine/model/pack_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/packed_file.h"
#include "tests/engine/model/small_model.h"

namespace lm {
namespace {

class PackCacheTest : public testing::Test {
 protected:
  PackCacheTest() {
    std::filesystem::create_directories(folder_);
    SmallModel().Write(folder_ + "/m.gguf");
  }
  ~PackCacheTest() override { std::filesystem::remove_all(folder_); }

  // Loads the model, which writes its packed weights; their path.
  std::string Pack() const {
    const auto model = Model::Load(folder_ + "/m.gguf", {.kv_bytes = 1 << 20,
                                                         .pack_cache = folder_ + "/packs"});
    EXPECT_EQ(model.value()->info().pack_cache, "written");
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/packs")) {
      if (absl::StartsWith(file.path().filename().string(), "m-")) return file.path();
    }
    return "";
  }
  std::string Write(const std::string& name, const PackedSource& source) const {
    const std::string path = absl::StrCat(folder_, "/packs/", name, ".pack");
    EXPECT_TRUE(PackedFileWriter::Create(path).value()->Finish(source).ok());
    return path;
  }

  const std::string folder_ = absl::StrCat(testing::TempDir(), "/pack_cache_test_", getpid());
};

TEST_F(PackCacheTest, WhatOlderReleasesPackedGoes) {
  const std::string own = Pack();
  PackedSource source = PackedFile::SourceOf(own).value();
  std::filesystem::remove(own);
  const std::string plan = source.layout.substr(source.layout.find(' '));
  const std::string same = Write("same", source);
  source.layout = "0.0.9.1" + plan;
  const std::string older = Write("older", source);
  source.layout = "1000.0.0.1" + plan;
  const std::string newer = Write("newer", source);
  source.layout = "no version";
  const std::string unknown = Write("unknown", source);
  source.layout = "0.0.9.1" + plan;
  source.path = "/another/model.gguf";
  const std::string of_another = Write("of_another", source);
  EXPECT_EQ(Pack(), own);
  EXPECT_FALSE(std::filesystem::exists(older));
  for (const std::string& kept : {same, newer, unknown, of_another}) {
    EXPECT_TRUE(std::filesystem::exists(kept)) << kept;
  }
}

}  // namespace
}  // namespace lm

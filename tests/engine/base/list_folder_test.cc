#include "engine/base/list_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/engine/base/failing_allocation.h"

namespace lm {
namespace {

TEST(ListFolderTest, HasAllThatIsThereInOrder) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/list-", getpid());
  std::filesystem::create_directories(folder + "/within");
  std::ofstream(folder + "/b.txt") << "b";
  std::ofstream(folder + "/.a") << "a";
  const auto paths = ListFolder(folder);
  ASSERT_TRUE(paths.ok()) << paths.status();
  EXPECT_THAT(*paths, testing::ElementsAre(folder + "/.a", folder + "/b.txt", folder + "/within"));
  EXPECT_GT(FailEachAllocation([&] { ListFolder(folder).IgnoreError(); }), 3);
  std::filesystem::remove_all(folder);
}

TEST(ListFolderTest, SaysWhatCannotBeRead) {
  EXPECT_EQ(ListFolder("/nowhere/at/all").status().message(),
            "'/nowhere/at/all': No such file or directory");
}

}  // namespace
}  // namespace lm

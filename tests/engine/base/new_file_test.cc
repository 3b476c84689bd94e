// Files that appear when they are complete, and what is left of those that were opened when memory
// ran out: nothing.
#include "engine/base/new_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/base/file.h"
#include "engine/base/scratch_file.h"
#include "gtest/gtest.h"
#include "tests/engine/base/failing_allocation.h"

namespace lm {
namespace {

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("lm_new_file_" + std::to_string(getpid()))),
        path_(folder_ / "model.gguf") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~NewFileTest() override { std::filesystem::remove_all(folder_); }

  bool HasFiles() const { return !std::filesystem::is_empty(folder_); }
  static auto OpenDescriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }

  const std::filesystem::path folder_, path_;
};

TEST_F(NewFileTest, AppearsWhenItIsFinishedOrNotAtAll) {
  {
    const auto file = NewFile::Create(path_).value();
    ASSERT_TRUE(file->Append("half").ok());
    EXPECT_EQ(file->part(), path_.string() + ".part");
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_TRUE(absl::IsAlreadyExists(NewFile::CheckFree(path_)));
    for (const absl::Status& status :
         {NewFile::Create(path_).status(), NewFile::CheckFree(path_)}) {
      EXPECT_TRUE(absl::IsAlreadyExists(status));
      EXPECT_NE(
          status.message().find(".part' exists, and is not written over: somebody is writing"),
          absl::string_view::npos);
    }
    EXPECT_TRUE(std::filesystem::exists(file->part()));
  }
  EXPECT_FALSE(HasFiles());
  ASSERT_TRUE(NewFile::CheckFree(path_).ok());
  const auto file = NewFile::Create(path_).value();
  ASSERT_TRUE(file->Append("whole").ok());
  ASSERT_TRUE(file->Finish().ok());
  EXPECT_EQ(std::filesystem::file_size(path_), 5u);
  EXPECT_FALSE(std::filesystem::exists(file->part()));
  EXPECT_TRUE(absl::IsAlreadyExists(NewFile::CheckFree(path_)));
  EXPECT_TRUE(absl::IsNotFound(NewFile::Create("/no/such/folder/x").status()));
}

TEST_F(NewFileTest, FailedAllocationsLeaveNoDescriptorsAndNoFiles) {
  const std::string path = path_;
  const auto before = OpenDescriptors();
  EXPECT_GT(FailEachAllocation([&] { EXPECT_TRUE(NewFile::Create(path).ok()); }), 2);
  EXPECT_FALSE(HasFiles());
  EXPECT_GT(FailEachAllocation([&] { EXPECT_TRUE(ScratchFile::Create().ok()); }), 2);
  std::ofstream(path_) << "x";
  EXPECT_GT(FailEachAllocation([&] { EXPECT_TRUE(OpenFile(path).ok()); }), 0);
  EXPECT_GT(FailEachAllocation([&] { EXPECT_FALSE(OpenFile(folder_).ok()); }), 2);
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace lm

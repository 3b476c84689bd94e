#include "engine/tensor/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace lm {
namespace {

// Pages that the system has given to a buffer. Memory that is a hole yet is not counted.
int64_t CommittedPages(const Buffer& buffer) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there((buffer.bytes() + page - 1) / page);
  EXPECT_EQ(mincore(buffer.data(), buffer.bytes(), there.data()), 0);
  return std::count_if(there.begin(), there.end(), [](unsigned char byte) { return byte & 1; });
}

TEST(BufferTest, MemoryIsCommittedWhereItIsAskedForAndKeepsWhatItHas) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Buffer buffer = Buffer::AllocateHost(4096 * page).value();
  EXPECT_EQ(CommittedPages(buffer), 0);
  buffer.chars()[7] = 'x';
  CommitHost(buffer.chars().subspan(0, 2000 * page + 1));
  EXPECT_EQ(buffer.chars()[7], 'x');
  EXPECT_EQ(buffer.chars()[2000 * page], '\0');
  const int64_t committed = CommittedPages(buffer);
  EXPECT_GE(committed, 2001);  // from Linux 5.14 on
  EXPECT_LT(committed, 4096);  // a huge page has 512
  CommitHost({});
}

TEST(BufferTest, MemoryOfAnySizeIsZeroAndBeginsWithACacheLine) {
  for (const size_t bytes : {size_t{1}, size_t{100}, (size_t{64} << 10) - 1, size_t{64} << 10}) {
    for (int i = 0; i < 3; ++i) {  // also where something was before
      const Buffer buffer = Buffer::AllocateHost(bytes).value();
      ASSERT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
      EXPECT_EQ(std::count(buffer.chars().begin(), buffer.chars().end(), '\0'), bytes);
      std::memset(buffer.data(), 0x55, bytes);
    }
  }
  EXPECT_EQ(Buffer::AllocateHost(0).value().data(), nullptr);
}

}  // namespace
}  // namespace lm

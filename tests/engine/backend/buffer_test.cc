#include "engine/tensor/buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace
}  // namespace lm

#include "engine/base/line_reader.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lm {
namespace {

using testing::ElementsAre;

std::string Path() { return testing::TempDir() + "/line_reader_test.txt"; }

absl::StatusOr<std::vector<std::string>> Lines(const std::string& text, size_t most) {
  std::ofstream(Path(), std::ios::binary) << text;
  LineReader reader(*OpenFile(Path()), most);
  std::vector<std::string> lines;
  for (absl::string_view line;;) {
    absl::StatusOr<bool> more = reader.Next(&line);
    if (!more.ok()) return more.status();
    if (!*more) return lines;
    lines.emplace_back(line);
    EXPECT_EQ(reader.number(), static_cast<int64_t>(lines.size()));
  }
}

TEST(LineReaderTest, GivesEachLineWithoutItsEnd) {
  EXPECT_THAT(*Lines("", 10), ElementsAre());
  EXPECT_THAT(*Lines("a\n\nb\r\nc", 10), ElementsAre("a", "", "b", "c"));
  EXPECT_THAT(*Lines("\n", 10), ElementsAre(""));
}

TEST(LineReaderTest, ReadsLinesThatAreLongerThanItsBuffer) {
  const std::string line(700'000, 'x');
  EXPECT_THAT(*Lines(line + "\n" + line + "\ny", 700'000), ElementsAre(line, line, "y"));
}

TEST(LineReaderTest, RefusesALineThatIsTooLong) {
  const absl::Status status = Lines("short\nmuch too long", 8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), testing::HasSubstr("line 2 has more than 8 bytes"));
}

}  // namespace
}  // namespace lm

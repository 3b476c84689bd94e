#include "engine/base/printable.h"

#include <gtest/gtest.h>

namespace lm {
namespace {

TEST(PrintableTest, EscapesWhatCannotBeShownAndNothingElse) {
  EXPECT_EQ(Printable(R"({"name":"O'Hara\"})"), R"({"name":"O'Hara\"})");
  EXPECT_EQ(Printable("Gr\xc3\xbc\xc3\x9f"
                      "e \xf0\x9f\x99\x82"),
            "Gr\xc3\xbc\xc3\x9f"
            "e \xf0\x9f\x99\x82");
  EXPECT_EQ(Printable("a\n\tb\x1b[0m\x7f"), "a\\n\\tb\\x1b[0m\\x7f");
  EXPECT_EQ(Printable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
  // The control characters above ASCII: one begins a terminal's command, as ESC [ does.
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J\xc2\xa0"),
            "\\xc2\\x9b2J\xc2\xa0");
  EXPECT_EQ(Printable(absl::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable(""), "");
}

}  // namespace
}  // namespace lm

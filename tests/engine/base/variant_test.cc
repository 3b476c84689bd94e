#include "engine/base/variant.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lm {
namespace {

struct ThrowsWhenCopied {
  ThrowsWhenCopied() = default;
  ThrowsWhenCopied(const ThrowsWhenCopied&) { throw std::runtime_error("copied"); }
  bool operator==(const ThrowsWhenCopied&) const = default;
};

// More alternatives than the switch of std::visit has cases, so that a value that was never made
// is destroyed through a table's end.
using Value = Variant<std::monostate, bool, char, short, int, long, unsigned, float, double,
                      std::string, std::vector<int>, std::vector<ThrowsWhenCopied>>;

TEST(VariantTest, IsWhatItIsACopyOf) {
  Value text = std::string("text");
  const Value copy = text;
  EXPECT_EQ(copy, text);
  text = 7;
  EXPECT_EQ(std::get<int>(text), 7);
  text = copy;
  EXPECT_EQ(std::get<std::string>(text), "text");
  const Value moved = std::move(text);
  EXPECT_EQ(moved, copy);
  EXPECT_EQ(Value(Value()), Value());
}

TEST(VariantTest, IsNoneWhereACopyThrows) {
  const Value throws = std::vector<ThrowsWhenCopied>(1);
  EXPECT_THROW(Value{throws}, std::runtime_error);
  Value other = std::string("stays");
  EXPECT_THROW(other = throws, std::runtime_error);
  EXPECT_EQ(std::get<std::string>(other), "stays");
}

}  // namespace
}  // namespace lm

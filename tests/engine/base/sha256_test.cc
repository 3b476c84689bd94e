#include "engine/base/sha256.h"

#include <string>

#include "gtest/gtest.h"

namespace lm {
namespace {

std::string Of(absl::string_view text, size_t piece) {
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += piece) hash.Add(text.substr(at, piece));
  return hash.Hex();
}

// FIPS 180-4's examples.
TEST(Sha256Test, IsWhatTheStandardSays) {
  EXPECT_EQ(Of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Of(std::string(1000000, 'a'), 1000000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, DoesNotMindThePieces) {
  for (size_t bytes : {0, 1, 55, 56, 63, 64, 65, 119, 128, 1000}) {
    const std::string text(bytes, 'x');
    for (size_t piece : {1, 7, 64, 100}) EXPECT_EQ(Of(text, piece), Of(text, bytes + 1)) << bytes;
  }
}

}  // namespace
}  // namespace lm

#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include "engine/base/utf8.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

// A "llama" vocabulary has a token for every byte, so any bytes can be made of tokens.
class DetokenizerTest : public ::testing::Test {
 protected:
  int32_t Byte(uint8_t byte) const {
    const char* const kHex = "0123456789ABCDEF";
    return tokenizer_->FindToken(
        absl::string_view(std::string({'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'})));
  }

  // The pieces that come of some bytes; the last is Finish's.
  std::vector<std::string> Pieces(absl::string_view bytes) const {
    Detokenizer detokenizer(tokenizer_.get());
    std::vector<std::string> pieces;
    for (char byte : bytes) pieces.push_back(detokenizer.Append(Byte(static_cast<uint8_t>(byte))));
    pieces.push_back(detokenizer.Finish());
    return pieces;
  }

  std::string Joined(absl::string_view bytes) const {
    std::string text;
    for (const std::string& piece : Pieces(bytes)) text += piece;
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = TestTokenizer("llama");
};

TEST_F(DetokenizerTest, ACharacterComesWhole) {
  EXPECT_EQ(Pieces("a\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x99"),
            (std::vector<std::string>{"a", "", "é", "", "", "€", "", "", "", "🦙", ""}));
}

TEST_F(DetokenizerTest, BrokenCharactersBecomeReplacementCharacters) {
  const std::string r = kReplacement;
  EXPECT_EQ(Joined("a\xff"
                   "b"),
            "a" + r + "b");
  EXPECT_EQ(Joined("\x80\x80"), r + r);
  EXPECT_EQ(Joined("\xe2\x82"), r);  // cut short: one
  EXPECT_EQ(Joined("\xe2\x82"
                   "a"),
            r + "a");
  EXPECT_EQ(Joined("\xf0\x9f\xa6"
                   "\xf0\x9f\xa6\x99"),
            r + "🦙");
  EXPECT_EQ(Joined("\xc0\x80"), r + r);          // overlong
  EXPECT_EQ(Joined("\xed\xa0\x80"), r + r + r);  // surrogate
  EXPECT_EQ(Pieces("\xe2\x82"), (std::vector<std::string>{"", "", r}));
  EXPECT_EQ(Pieces("\xe2"
                   "a"),
            (std::vector<std::string>{"", r + "a", ""}));
}

TEST_F(DetokenizerTest, ControlTokensAddNothing) {
  Detokenizer detokenizer(tokenizer_.get());
  EXPECT_EQ(detokenizer.Append(tokenizer_->FindToken("</s>")), "");
  EXPECT_EQ(detokenizer.Append(-1), "");
  EXPECT_EQ(detokenizer.Append(tokenizer_->FindToken("▁")), " ");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(DetokenizerTest, PiecesAreValidAndJoinToTheTextForAnyBytes) {
  std::mt19937 random(1);
  const std::string kBytes = "a\x7f\x80\xa0\xbf\xc2\xc3\xe0\xe2\xed\xef\xf0\xf4\xf5\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (int i = random() % 12; i > 0; --i) bytes.push_back(kBytes[random() % kBytes.size()]);
    std::string joined;
    for (const std::string& piece : Pieces(bytes)) {
      ASSERT_EQ(ValidUtf8Prefix(piece), piece.size());
      joined += piece;
    }
    // All at once: what is valid stays, each maximal broken part is one U+FFFD.
    std::string whole;
    for (size_t pos = 0; pos < bytes.size();) {
      const absl::string_view rest = absl::string_view(bytes).substr(pos);
      size_t size = 1;
      bool valid = false;
      for (size_t n = 1; n <= 4 && n <= rest.size() && !valid; ++n) {
        valid = ValidUtf8Prefix(rest.substr(0, n)) == n;
        if (valid || IncompleteUtf8Suffix(rest.substr(0, n)) == n) size = n;
      }
      if (valid) {
        whole.append(rest.data(), size);
      } else {
        whole += kReplacement;
      }
      pos += size;
    }
    ASSERT_EQ(joined, whole);
  }
}

TEST_F(DetokenizerTest, TokensOfATextGiveTheTextPieceByPiece) {
  std::mt19937 random(2);
  for (const char* model : {"gpt2", "llama"}) {
    const auto tokenizer = TestTokenizer(model, "gpt-2", /*add_space_prefix=*/false);
    for (int round = 0; round < 2000; ++round) {
      const std::string text = RandomText(random, 12);
      if (text.find("\xe2\x96\x81") != std::string::npos) continue;  // becomes a space
      Detokenizer detokenizer(tokenizer.get());
      std::string joined;
      for (int32_t id : EncodePlainOrDie(*tokenizer, text)) {
        const std::string piece = detokenizer.Append(id);
        ASSERT_EQ(ValidUtf8Prefix(piece), piece.size());
        joined += piece;
      }
      ASSERT_EQ(detokenizer.Finish(), "");
      ASSERT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace lm

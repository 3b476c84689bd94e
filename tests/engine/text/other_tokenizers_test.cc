// The tokenizers of RWKV and PLaMo 2, and of texts whose white space is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            TextKind kind = TextKind::kInput) {
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer.Encode({{text, kind}}, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::vector<std::string> TokenNames(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> names;
  for (int32_t id : Encode(tokenizer, text)) names.emplace_back(tokenizer.TokenName(id));
  return names;
}

// Token 0 is <s>, the next 256 are the bytes, then come `names`.
Vocabulary RwkvVocabulary(const std::vector<std::string>& names) {
  Vocabulary vocabulary;
  vocabulary.model = "rwkv";
  vocabulary.tokens = {"<s>"};
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = byte > 32 && byte < 127 && byte != '\\';
    vocabulary.tokens.push_back(plain ? std::string(1, static_cast<char>(byte))
                                      : absl::StrFormat("\\x%02x", byte));
  }
  vocabulary.tokens.insert(vocabulary.tokens.end(), names.begin(), names.end());
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  vocabulary.types[0] = TokenType::kControl;
  vocabulary.eos = 0;
  return vocabulary;
}

TEST(LongestTokenTest, TakesTheLongestTokenAtEachPlace) {
  const auto t = Tokenizer::Create(RwkvVocabulary({"ab", "abcd", " a", "\\n\\n", "\\t\\\\", "é"}));
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(TokenNames(**t, "abcabcd"), ElementsAre("ab", "c", "abcd"));
  EXPECT_THAT(TokenNames(**t, " ab\n\n\n"), ElementsAre(" a", "b", "\\n\\n", "\\x0a"));
  EXPECT_THAT(TokenNames(**t, "\t\\é\u00ea"), ElementsAre("\\t\\\\", "é", "\\xc3", "\\xaa"));
  EXPECT_THAT(TokenNames(**t, ""), IsEmpty());
  // A row's text never becomes a control token; a template's may.
  EXPECT_THAT(TokenNames(**t, "<s>"), ElementsAre("<", "s", ">"));
  EXPECT_THAT(Encode(**t, "<s>", TextKind::kMarkup), ElementsAre(0));
  const std::string text = "abcd \u00ea\n\n\t\\ab";
  EXPECT_EQ((*t)->DecodePlain(Encode(**t, text)), text);
}

TEST(LongestTokenTest, RefusesAVocabularyWithoutAByte) {
  Vocabulary vocabulary = RwkvVocabulary({});
  vocabulary.types[1 + 'k'] = TokenType::kControl;
  EXPECT_THAT(std::string(Tokenizer::Create(vocabulary).status().message()),
              HasSubstr("there is no token for the byte 0x6b"));
  vocabulary = RwkvVocabulary({});
  vocabulary.types[1 + 0xff] = TokenType::kControl;  // which UTF-8 has not
  EXPECT_TRUE(Tokenizer::Create(vocabulary).ok());
}

// Token 0 is unknown, the next 256 are the bytes, then come names with their scores.
Vocabulary Plamo2Vocabulary(const std::vector<std::pair<std::string, float>>& names) {
  Vocabulary vocabulary;
  vocabulary.model = "plamo2";
  vocabulary.add_space_prefix = false;
  vocabulary.tokens = {"<|plamo:unk|>"};
  vocabulary.types = {TokenType::kUnknown};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    vocabulary.types.push_back(TokenType::kByte);
  }
  vocabulary.scores.resize(vocabulary.tokens.size());
  for (const auto& [name, score] : names) {
    vocabulary.tokens.push_back(name);
    vocabulary.types.push_back(TokenType::kNormal);
    vocabulary.scores.push_back(score);
  }
  return vocabulary;
}

TEST(CheapestTokensTest, TakesThoseWhoseScoresAreTheGreatest) {
  const auto t = Tokenizer::Create(Plamo2Vocabulary(
      {{"a", -5}, {"b", -5}, {"ab", -9}, {"abc", -20}, {"c", -10}, {"bc", -3}, {"é", -1}}));
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(TokenNames(**t, "abc"), ElementsAre("a", "bc"));  // -8, and not -19 or -20
  EXPECT_THAT(TokenNames(**t, "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(TokenNames(**t, ""), IsEmpty());
  // What has no token is its bytes; a mark of the byte order is nothing.
  EXPECT_THAT(TokenNames(**t, "\xef\xbb\xbfé\u00ea b"),
              ElementsAre("é", "<0xC3>", "<0xAA>", "<0x20>", "b"));
  const std::string text = "abc \u00ea\U0001F600";
  EXPECT_EQ((*t)->DecodePlain(Encode(**t, text)), text);
}

TEST(CheapestTokensTest, OfEqualSumsTheLongestFirstTokenCounts) {
  const auto t = Tokenizer::Create(
      Plamo2Vocabulary({{"a", -1}, {"aa", -2}, {"aaa", -3}, {"x", -1500}, {"y", -2000}}));
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(TokenNames(**t, "aaaa"), ElementsAre("aaa", "a"));
  // A byte is dearer than no token but these; the second is never taken.
  EXPECT_THAT(TokenNames(**t, "xy"), ElementsAre("<0x78>", "<0x79>"));
}

TEST(CheapestTokensTest, RefusesAVocabularyWithoutAByteOrAScore) {
  Vocabulary vocabulary = Plamo2Vocabulary({{"a", -1}});
  vocabulary.types[1 + 'k'] = TokenType::kNormal;
  EXPECT_THAT(std::string(Tokenizer::Create(vocabulary).status().message()),
              HasSubstr("there is no token for the byte 0x6b"));
  vocabulary = Plamo2Vocabulary({{"a", -1}});
  vocabulary.scores.pop_back();
  EXPECT_THAT(std::string(Tokenizer::Create(vocabulary).status().message()),
              HasSubstr("tokenizer.ggml.scores has 257 entries for 258 tokens"));
}

TEST(WhiteSpaceTest, NothingMergesAcrossSpacesAndTheyAreLeftOut) {
  Vocabulary vocabulary;
  vocabulary.model = "whitespace";
  vocabulary.pre = "whitespace";
  vocabulary.tokens = {"a", "b", "ab", "abab", "é", "<0xC3>"};
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  vocabulary.types.back() = TokenType::kByte;
  vocabulary.merges = {"a b", "ab ab"};
  vocabulary.add_space_prefix = false;
  vocabulary.lower_case = false;
  auto t = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(TokenNames(**t, "abab ab\n\u3000 a b"), ElementsAre("abab", "ab", "a", "b"));
  // What has no token is left out, but for bytes that have one.
  EXPECT_THAT(TokenNames(**t, "aXé\u00ea\x1f"), ElementsAre("a", "é", "<0xC3>"));
  EXPECT_THAT(TokenNames(**t, "ABé"), ElementsAre("é"));
  vocabulary.lower_case = true;
  t = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(TokenNames(**t, "AB\u00c9"), ElementsAre("ab", "é"));
}

}  // namespace
}  // namespace lm

// The tokenizers of RWKV, and of texts whose white space is left out.
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

std::vector<std::string> Names(const Tokenizer& tokenizer, const std::string& text) {
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
  EXPECT_THAT(Names(**t, "abcabcd"), ElementsAre("ab", "c", "abcd"));
  EXPECT_THAT(Names(**t, " ab\n\n\n"), ElementsAre(" a", "b", "\\n\\n", "\\x0a"));
  EXPECT_THAT(Names(**t, "\t\\é\u00ea"), ElementsAre("\\t\\\\", "é", "\\xc3", "\\xaa"));
  EXPECT_THAT(Names(**t, ""), IsEmpty());
  // A row's text never becomes a control token; a template's may.
  EXPECT_THAT(Names(**t, "<s>"), ElementsAre("<", "s", ">"));
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
  EXPECT_THAT(Names(**t, "abab ab\n\u3000 a b"), ElementsAre("abab", "ab", "a", "b"));
  // What has no token is left out, but for bytes that have one.
  EXPECT_THAT(Names(**t, "aXé\u00ea\x1f"), ElementsAre("a", "é", "<0xC3>"));
  EXPECT_THAT(Names(**t, "ABé"), ElementsAre("é"));
  vocabulary.lower_case = true;
  t = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(t.ok()) << t.status();
  EXPECT_THAT(Names(**t, "AB\u00c9"), ElementsAre("ab", "é"));
}

}  // namespace
}  // namespace lm

// What Tokenizer::Create says to vocabularies that a broken or hostile file may have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "engine/text/tokenizer.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

struct RefusedVocabulary {
  const char* name;
  const char* model;
  std::function<void(Vocabulary&)> damage;
  absl::StatusCode code;
  const char* message;
};

class VocabularyRefusalsTest : public ::testing::TestWithParam<RefusedVocabulary> {};

TEST_P(VocabularyRefusalsTest, NamesWhatIsWrong) {
  Vocabulary vocabulary = TestVocabulary(GetParam().model);
  ASSERT_TRUE(Tokenizer::Create(vocabulary).ok());
  GetParam().damage(vocabulary);
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), GetParam().code);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(GetParam().message));
}

void AddToken(Vocabulary& v, const std::string& name, TokenType type) {
  v.tokens.push_back(name);
  v.types.push_back(type);
  if (v.model == "llama") v.scores.push_back(0);
}

int32_t IdOf(const Vocabulary& v, const std::string& name) {
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.tokens[i] == name) return static_cast<int32_t>(i);
  }
  return -1;
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

const RefusedVocabulary kRefusedVocabularies[] = {
    {"UnknownModel", "gpt2", [](Vocabulary& v) { v.model = "b\x01rt"; }, kUnimplemented,
     "tokenizer.ggml.model \"b\\x01rt\" is not supported"},
    {"UnknownSplit", "gpt2", [](Vocabulary& v) { v.pre = "elvish"; }, kUnimplemented,
     "tokenizer.ggml.pre \"elvish\" is not supported"},
    {"NoTokens", "gpt2", [](Vocabulary& v) { v.tokens.clear(); }, kInvalid,
     "tokenizer.ggml.tokens has 0 entries"},
    {"NothingToSay", "gpt2",
     [](Vocabulary& v) {
       for (size_t i = 0; i < v.tokens.size(); ++i) v.suppressed.push_back(static_cast<int32_t>(i));
     },
     kInvalid, "tokenizer.ggml.suppress_tokens has all"},
    {"TypesOfAnotherLength", "gpt2", [](Vocabulary& v) { v.types.pop_back(); }, kInvalid,
     "tokenizer.ggml.token_type has"},
    {"TypeOutOfRange", "gpt2", [](Vocabulary& v) { v.types[9] = static_cast<TokenType>(7); },
     kInvalid, "has type 7, wanted 1 to 6"},
    {"BosOutside", "gpt2", [](Vocabulary& v) { v.bos = 1000000; }, kInvalid,
     "tokenizer.ggml.bos_token_id is 1000000"},
    {"EosNegative", "gpt2", [](Vocabulary& v) { v.eos = -2; }, kInvalid,
     "tokenizer.ggml.eos_token_id is -2"},
    {"AnotherEosOutside", "gpt2",
     [](Vocabulary& v) {
       v.more_eos = {1, 1000000};
     },
     kInvalid, "tokenizer.ggml.eos_token_ids is 1000000"},
    {"AddsABosThatIsNotThere", "gpt2",
     [](Vocabulary& v) {
       v.bos = -1;
       v.add_bos = true;
     },
     kInvalid, "add_bos_token"},
    {"SameNameTwice", "gpt2", [](Vocabulary& v) { v.tokens[20] = v.tokens[21]; }, kInvalid,
     "tokens 20 and 21 are both"},
    {"NameNotUtf8", "gpt2", [](Vocabulary& v) { AddToken(v, "\xff\xfe", TokenType::kNormal); },
     kInvalid, "is not valid UTF-8"},
    {"NameTooLong", "gpt2",
     [](Vocabulary& v) { AddToken(v, std::string(5000, 'x'), TokenType::kNormal); }, kInvalid,
     "is 5000 bytes long, at most 4096"},
    {"ControlNameTooLong", "gpt2",
     [](Vocabulary& v) { AddToken(v, std::string(257, '<'), TokenType::kControl); }, kInvalid,
     "is 257 bytes long, at most 256"},
    {"MissingByte", "gpt2", [](Vocabulary& v) { v.tokens[IdOf(v, "q")] = "another"; }, kInvalid,
     "no token for the byte 0x71"},
    {"ByteIsControl", "gpt2", [](Vocabulary& v) { v.types[IdOf(v, "q")] = TokenType::kControl; },
     kInvalid, "no token for the byte 0x71"},
    {"MergeWithoutSpace", "gpt2", [](Vocabulary& v) { v.merges[5] = "ab"; }, kInvalid,
     "tokenizer.ggml.merges[5] is \"ab\": wanted two tokens"},
    {"MergeOfNothing", "gpt2", [](Vocabulary& v) { v.merges[5] = ""; }, kInvalid,
     "tokenizer.ggml.merges[5] is \"\""},
    {"MergeWithoutRightSide", "gpt2", [](Vocabulary& v) { v.merges[5] = "a "; }, kInvalid,
     "wanted two tokens"},
    {"MergesOfAnother", "gpt2",
     [](Vocabulary& v) { v.merges.insert(v.merges.end(), v.merges.size() + 1, "qqqq q"); },
     kInvalid, "there is no token \"qqqq\""},
    {"MergesIntoMissingTokens", "gpt2",
     [](Vocabulary& v) { v.merges.insert(v.merges.begin() + 5, v.merges.size() + 1, "q z"); },
     kInvalid, "tokenizer.ggml.merges[5] is \"q z\": there is no token \"qz\""},
    {"ScoresOfAnotherLength", "llama", [](Vocabulary& v) { v.scores.push_back(0); }, kInvalid,
     "tokenizer.ggml.scores has"},
    {"ScoreNotANumber", "llama",
     [](Vocabulary& v) { v.scores[7] = std::numeric_limits<float>::quiet_NaN(); }, kInvalid,
     "tokenizer.ggml.scores[7] is nan"},
    {"MissingByteToken", "llama",
     [](Vocabulary& v) {
       const int32_t id = IdOf(v, "<0x80>");
       v.tokens[id] = "another";
       v.types[id] = TokenType::kNormal;
     },
     kInvalid, "there is no token \"<0x80>\""},
    {"ByteTokenOfAnotherType", "llama",
     [](Vocabulary& v) { v.types[IdOf(v, "<0x80>")] = TokenType::kNormal; }, kInvalid,
     "wanted 6 (byte)"},
    {"MalformedByteToken", "llama", [](Vocabulary& v) { v.types[IdOf(v, "a")] = TokenType::kByte; },
     kInvalid, "is a byte token"},
    {"StripsWhitespaceOutside", "llama", [](Vocabulary& v) { v.strip_after = {-1}; }, kInvalid,
     "has id -1"},
};

INSTANTIATE_TEST_SUITE_P(All, VocabularyRefusalsTest, ::testing::ValuesIn(kRefusedVocabularies),
                         [](const auto& info) { return info.param.name; });

TEST(VocabularyTest, AMergeOfWhatIsNoTokenNeverRuns) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  const auto whole = Tokenizer::Create(vocabulary);
  vocabulary.merges.insert(vocabulary.merges.begin(), {"q z", "qqqq q", "h qqqq"});
  const auto more = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(whole.ok() && more.ok()) << more.status();
  for (const char* text : {"qz", "hello qqqqq", "the quick brown fox"}) {
    EXPECT_EQ((*more)->EncodePlain(text).value(), (*whole)->EncodePlain(text).value()) << text;
  }
}

TEST(VocabularyTest, AMergeThatWouldSpellAControlTokenNeverRuns) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  AddToken(vocabulary, "qz", TokenType::kControl);
  AddToken(vocabulary, "qzq", TokenType::kNormal);
  vocabulary.merges.insert(vocabulary.merges.begin(), {"q z", "qz q"});
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (int32_t id : EncodePlainOrDie(**tokenizer, "qzq")) EXPECT_FALSE((*tokenizer)->IsControl(id));
  EXPECT_EQ((*tokenizer)->DecodePlain(EncodePlainOrDie(**tokenizer, "qzq")), "qzq");
}

TEST(VocabularyTest, BytesThatAVocabularyLacksAreLeftOut) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  vocabulary.tokens[IdOf(vocabulary, "ñ")] = "another";  // 0xf1, the lead of U+40000
  std::vector<std::string> merges;
  for (const std::string& merge : vocabulary.merges) {
    if (merge.find("ñ") == std::string::npos) merges.push_back(merge);
  }
  vocabulary.merges = merges;
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->DecodePlain(EncodePlainOrDie(**tokenizer, "a\xf1\x80\x80\x80z")),
            "a\x80\x80\x80z");
}

}  // namespace
}  // namespace lm

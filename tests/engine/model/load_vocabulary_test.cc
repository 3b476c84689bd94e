#include "engine/model/load_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace lm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Strings = std::vector<std::string>;
using Pairs = std::vector<std::pair<std::string, MetadataValue>>;

// The keys that a vocabulary must have, and `more` of tokenizer.ggml.*; of a key given twice the
// value in `more` counts.
Metadata Make(const std::string& model, const Pairs& more) {
  Metadata metadata;
  for (const auto& [key, value] : more) {
    metadata.Insert(key.find('.') == std::string::npos ? "tokenizer.ggml." + key : key, value);
  }
  metadata.Insert("tokenizer.ggml.model", model);
  metadata.Insert("tokenizer.ggml.tokens", Strings{"<unk>", "<s>", "</s>", "a", "b", "ab"});
  if (model == "llama") {
    metadata.Insert("tokenizer.ggml.scores", std::vector<double>{0, 0, 0, -1, -2, -3});
  } else {
    metadata.Insert("tokenizer.ggml.merges", Strings{"a b"});
  }
  return metadata;
}

TEST(LoadVocabularyTest, FillsInWhatALlamaTokenizerMeansByDefault) {
  auto v = LoadVocabulary(Make("llama", {}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->model, "llama");
  EXPECT_EQ(v->tokens.size(), 6u);
  EXPECT_EQ(v->types, std::vector<TokenType>(6, TokenType::kNormal));
  EXPECT_THAT(v->scores, ElementsAre(0, 0, 0, -1, -2, -3));
  EXPECT_EQ(v->bos, 1);
  EXPECT_EQ(v->eos, 2);
  EXPECT_EQ(v->unknown, 0);
  EXPECT_EQ(v->eot, -1);
  EXPECT_TRUE(v->add_bos);
  EXPECT_FALSE(v->add_eos);
  EXPECT_TRUE(v->add_space_prefix);
}

TEST(LoadVocabularyTest, ScoresMayBeWholeNumbers) {
  const auto v =
      LoadVocabulary(Make("llama", {{"scores", std::vector<int64_t>{0, 0, 0, -1, -2, 5}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->scores, ElementsAre(0, 0, 0, -1, -2, 5));
  const auto texts = LoadVocabulary(Make("llama", {{"scores", Strings{"0"}}}));
  EXPECT_THAT(std::string(texts.status().message()), HasSubstr("tokenizer.ggml.scores"));
}

TEST(LoadVocabularyTest, KnowsWhatOfTheEndsTheFileHasStated) {
  const auto neither = LoadVocabulary(Make("llama", {}));
  EXPECT_FALSE(neither->states_bos || neither->states_eos);
  const auto end = LoadVocabulary(Make("llama", {{"eos_token_id", uint64_t{2}}}));
  EXPECT_TRUE(!end->states_bos && end->states_eos);
  EXPECT_TRUE(LoadVocabulary(Make("llama", {{"bos_token_id", uint64_t{1}}}))->states_bos);
}

TEST(LoadVocabularyTest, NoBosDoesNotTakeThePlaceOfCls) {
  for (const int64_t none : {int64_t{-1}, int64_t{4294967295}}) {
    const auto v =
        LoadVocabulary(Make("bert", {{"cls_token_id", uint64_t{2}}, {"bos_token_id", none}}));
    ASSERT_TRUE(v.ok()) << v.status();
    EXPECT_EQ(v->bos, 2);
  }
  EXPECT_EQ(
      LoadVocabulary(Make("bert", {{"cls_token_id", uint64_t{2}}, {"bos_token_id", int64_t{3}}}))
          ->bos,
      3);
}

TEST(LoadVocabularyTest, FillsInWhatAByteLevelTokenizerMeansByDefault) {
  auto v = LoadVocabulary(Make("gpt2", {}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->merges, ElementsAre("a b"));
  EXPECT_EQ(v->bos, -1);  // 11 by convention, which these six tokens do not reach
  EXPECT_EQ(v->eos, -1);
  EXPECT_FALSE(v->add_bos);
  EXPECT_FALSE(v->add_space_prefix);
  EXPECT_TRUE(LoadVocabulary(Make("gpt2", {{"pre", std::string("llama-bpe")}}))->add_bos);
}

TEST(LoadVocabularyTest, SomePutASeparatorBetweenTwoTexts) {
  auto adds = [](const std::string& pre, const Pairs& more) {
    Pairs keys = more;
    keys.push_back({"pre", pre});
    auto v = LoadVocabulary(Make("gpt2", keys));
    EXPECT_TRUE(v.ok()) << v.status();
    return v.ok() && v->add_separator;
  };
  for (const char* pre : {"jina-v1-en", "jina-v2-code", "roberta-bpe"}) {
    EXPECT_TRUE(adds(pre, {})) << pre;
    EXPECT_FALSE(adds(pre, {{"add_sep_token", false}})) << pre;
  }
  for (const char* pre : {"gpt-2", "jina-v2-es", "jina-v2-de", "modern-bert"}) {
    EXPECT_FALSE(adds(pre, {})) << pre;
  }
}

// The ids of "a" and "b" as a pair.
std::vector<int32_t> PairOf(const Metadata& metadata) {
  auto v = LoadVocabulary(metadata);
  EXPECT_TRUE(v.ok()) << v.status();
  if (!v.ok()) return {};
  auto tokenizer = Tokenizer::Create(*std::move(v));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  if (!tokenizer.ok()) return {};
  return (*tokenizer)->EncodePair("a", "b").value();
}

TEST(LoadVocabularyTest, OneSeparatorEndsEachTextOfAPairOfWordPieces) {
  Pairs keys = {{"tokens", Strings{"[UNK]", "[CLS]", "[SEP]", "▁a", "▁b"}},
                {"token_type", std::vector<int64_t>{2, 3, 3, 1, 1}},
                {"unknown_token_id", uint64_t{0}},
                {"cls_token_id", uint64_t{1}},
                {"seperator_token_id", uint64_t{2}}};
  EXPECT_THAT(PairOf(Make("bert", keys)), ElementsAre(1, 3, 2, 4, 2));
  keys.push_back({"add_sep_token", true});
  EXPECT_THAT(PairOf(Make("bert", keys)), ElementsAre(1, 3, 2, 4, 2));
}

TEST(LoadVocabularyTest, PairsOfXlmRobertaHaveASeparatorBesidesTheEnd) {
  const Pairs keys = {{"tokens", Strings{"<unk>", "<s>", "</s>", "a", "b"}},
                      {"token_type", std::vector<int64_t>{2, 3, 3, 1, 1}},
                      {"scores", std::vector<double>{0, 0, 0, -1, -1}},
                      {"bos_token_id", uint64_t{1}},
                      {"eos_token_id", uint64_t{2}},
                      {"seperator_token_id", uint64_t{2}},
                      {"unknown_token_id", uint64_t{0}},
                      {"add_bos_token", true},
                      {"add_eos_token", true},
                      {"add_sep_token", true}};
  EXPECT_THAT(PairOf(Make("t5", keys)), ElementsAre(1, 3, 2, 2, 4, 2));
}

TEST(LoadVocabularyTest, TheFilesOwnValuesCount) {
  auto v = LoadVocabulary(Make("llama", {{"token_type", std::vector<int64_t>{2, 3, 3, 1, 6, 5}},
                                         {"bos_token_id", uint64_t{3}},
                                         {"eos_token_id", uint64_t{4}},
                                         {"eot_token_id", int64_t{5}},
                                         {"padding_token_id", uint64_t{4294967295}},
                                         {"add_bos_token", false},
                                         {"add_eos_token", true},
                                         {"add_space_prefix", false},
                                         {"tokenizer.chat_template", std::string("{{ x }}")}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->types[4], TokenType::kByte);
  EXPECT_EQ(v->bos, 3);
  EXPECT_EQ(v->eos, 4);
  EXPECT_EQ(v->eot, 5);
  EXPECT_EQ(v->padding, -1);
  EXPECT_FALSE(v->add_bos);
  EXPECT_TRUE(v->add_eos);
  EXPECT_FALSE(v->add_space_prefix);
  EXPECT_EQ(v->chat_template, "{{ x }}");
}

TEST(LoadVocabularyTest, AnIdOutsideOfTheVocabularyIsNone) {
  for (const std::string name : {"padding", "seperator", "unknown", "eot", "eom", "mask", "eos"}) {
    for (const int64_t id : {int64_t{6}, int64_t{32000}, int64_t{-5}, int64_t{1} << 40}) {
      auto v = LoadVocabulary(Make("llama", {{name + "_token_id", id}}));
      ASSERT_TRUE(v.ok()) << name << ": " << v.status();
      EXPECT_EQ(v->eos, name == "eos" ? -1 : 2);
      EXPECT_EQ(v->unknown, name == "unknown" ? -1 : 0);
      EXPECT_THAT((std::vector<int32_t>{v->padding, v->separator, v->eot, v->eom}),
                  ElementsAre(-1, -1, -1, -1));
    }
  }
  auto v = LoadVocabulary(Make("llama", {{"bos_token_id", uint64_t{6}}, {"add_bos_token", false}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(v->bos, -1);
}

TEST(LoadVocabularyTest, ATypeThatNobodyKnowsIsNormal) {
  auto v = LoadVocabulary(Make("llama", {{"token_type", std::vector<int64_t>{0, 7, -1, 1, 6, 5}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->types, ElementsAre(TokenType::kNormal, TokenType::kNormal, TokenType::kNormal,
                                    TokenType::kNormal, TokenType::kByte, TokenType::kUnused));
}

TEST(LoadVocabularyTest, Phi3sMarkersSwallowTheWhitespaceBehindThem) {
  auto v = LoadVocabulary(Make("llama", {{"general.name", std::string("Phi-3 mini")},
                                         {"token_type", std::vector<int64_t>{2, 3, 4, 1, 1, 3}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->strip_after, ElementsAre(2, 5));
  EXPECT_THAT(v->strip_before, ElementsAre());
}

TEST(LoadVocabularyTest, ADirectorySaysWhereASpaceIsPutBeforeWords) {
  auto prefix = [](const std::string& scheme) {
    return LoadVocabulary(Make("llama", {{"sqlite_lm.tokenizer.prepend_scheme", scheme}}))
        ->space_prefix;
  };
  EXPECT_EQ(prefix("first"), SpacePrefix::kFirst);
  EXPECT_EQ(prefix("always"), SpacePrefix::kMissing);
  EXPECT_EQ(LoadVocabulary(Make("llama", {}))->space_prefix, SpacePrefix::kEach);
}

TEST(LoadVocabularyTest, ADirectorySaysWhichMarkersSwallowWhitespace) {
  auto v = LoadVocabulary(Make(
      "llama", {{"general.name", std::string("Phi-3 mini")},
                {"token_type", std::vector<int64_t>{2, 3, 4, 1, 1, 3}},
                {"sqlite_lm.tokenizer.strip_before", std::vector<int64_t>{2, 6, -1}},
                {"sqlite_lm.tokenizer.strip_after", std::vector<int64_t>{5, int64_t{1} << 40}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->strip_before, ElementsAre(2));
  EXPECT_THAT(v->strip_after, ElementsAre(5));
}

TEST(LoadVocabularyTest, KnowsWhatIsNeverSaid) {
  EXPECT_THAT(LoadVocabulary(Make("llama", {}))->suppressed, ElementsAre());
  auto v = LoadVocabulary(
      Make("gpt2", {{"suppress_tokens", std::vector<int64_t>{5, 3, -1, 6, int64_t{1} << 40}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->suppressed, ElementsAre(5, 3));
}

TEST(LoadVocabularyTest, AnswersEndWithEachOfOllamasEnds) {
  const std::vector<int64_t> ends = {3, 2, -1, 6, int64_t{1} << 40};
  auto v = LoadVocabulary(Make("t5", {{"scores", std::vector<double>(6)},
                                      {"unknown_token_id", uint64_t{0}},
                                      {"eos_token_id", uint64_t{2}},
                                      {"eos_token_ids", ends}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->more_eos, ElementsAre(3, 2));
  auto tokenizer = Tokenizer::Create(*std::move(v));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (int32_t id = 0; id < 6; ++id) {
    EXPECT_EQ((*tokenizer)->IsEndOfGeneration(id), id == 2 || id == 3) << id;
  }
}

TEST(LoadVocabularyTest, AnswersEndWhereAnotherFileBegins) {
  auto v = LoadVocabulary(Make("t5", {{"scores", std::vector<double>(6)},
                                      {"unknown_token_id", uint64_t{0}},
                                      {"eos_token_id", uint64_t{2}},
                                      {"fim_pre_token_id", uint64_t{1}},
                                      {"fim_pad_token_id", uint64_t{5}},
                                      {"fim_rep_token_id", uint64_t{6}},
                                      {"fim_sep_token_id", uint64_t{3}}}));
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_THAT(v->more_eos, ElementsAre(5, 3));
  auto tokenizer = Tokenizer::Create(*std::move(v));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (int32_t id = 0; id < 6; ++id) {
    EXPECT_EQ((*tokenizer)->IsEndOfGeneration(id), id == 2 || id == 3 || id == 5) << id;
  }
}

void ExpectRefusal(const Metadata& metadata, absl::StatusCode code, const std::string& message) {
  auto v = LoadVocabulary(metadata);
  ASSERT_FALSE(v.ok());
  EXPECT_EQ(v.status().code(), code) << v.status();
  EXPECT_THAT(std::string(v.status().message()), HasSubstr(message));
}

TEST(LoadVocabularyTest, RefusalsNameTheKey) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefusal(Metadata(), absl::StatusCode::kNotFound, "tokenizer.ggml.model");
  ExpectRefusal(
      Make("plamo9", {}), absl::StatusCode::kUnimplemented,
      "tokenizer.ggml.model \"plamo9\" is not supported (known: \"gpt2\", \"llama\", \"gemma4\", "
      "\"bert\", \"t5\", \"rwkv\", \"whitespace\", \"plamo2\")");
  ExpectRefusal(Make("gpt2", {{"pre", std::string("klingon")}}), absl::StatusCode::kUnimplemented,
                "tokenizer.ggml.pre \"klingon\" is not supported");
  ExpectRefusal(Make("llama", {{"bos_token_id", uint64_t{6}}}), kInvalid,
                "tokenizer.ggml.bos_token_id is 6, the vocabulary has 6 tokens");
  ExpectRefusal(Make("llama", {{"eos_token_id", int64_t{-5}}, {"add_eos_token", true}}), kInvalid,
                "tokenizer.ggml.eos_token_id is -5");
  ExpectRefusal(Make("llama", {{"eos_token_ids", std::string("2")}}), kInvalid,
                "tokenizer.ggml.eos_token_ids");
  ExpectRefusal(Make("llama", {{"add_bos_token", std::string("yes")}}), kInvalid,
                "tokenizer.ggml.add_bos_token");
  ExpectRefusal(Make("llama", {{"tokens", std::string("a")}}), kInvalid, "tokenizer.ggml.tokens");
}

}  // namespace
}  // namespace lm

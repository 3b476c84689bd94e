// How the opening of a directory is given up. What directories mean: tests/extension/hf_test.py.
#include "engine/hf/hf_directory.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/hf/hf_tokenizer.h"
#include "engine/hf/row_file.h"
#include "gtest/gtest.h"
#include "tests/engine/hf/hf_folder.h"

namespace lm {
namespace {

TEST(HfDirectoryTest, ACancelledOneIsNotReadToItsEnd) {
  const HfFolder folder;
  folder.Write("config.json",
               R"({"model_type":"llama","hidden_size":32,"num_hidden_layers":1,)"
               R"("num_attention_heads":2,"intermediate_size":64,"vocab_size":600000,)"
               R"("max_position_embeddings":64})");
  std::string vocabulary;  // takes longer to read than the time between two looks at `cancel`
  for (int i = 0; i < 600000; ++i) {
    absl::StrAppend(&vocabulary, i == 0 ? "" : ",", "\"token", i, "\":", i);
  }
  folder.Write("tokenizer.json",
               absl::StrCat(R"({"pre_tokenizer":{"type":"ByteLevel"},"model":)",
                            R"({"type":"BPE","merges":[],"vocab":{)", vocabulary, "}}}"));
  std::atomic<bool> cancel{false};
  // There are no weights: what is read to its end finds none.
  EXPECT_TRUE(absl::IsNotFound(OpenModelFile(folder.path(), &cancel).status()));
  cancel = true;
  EXPECT_TRUE(absl::IsCancelled(OpenModelFile(folder.path(), &cancel).status()));
}

// Nothing would tell that one of its files was written over, and its rows may be made anew for each
// read.
TEST(HfDirectoryTest, ItsWeightsAreNotReadLater) {
  EXPECT_FALSE(MakeRowFile("model", Metadata(), {})->lasts());
}

TEST(HfTokenizerTest, WhatIsNeverSaidStandsBesideTheEnds) {
  const HfFolder folder;
  folder.Write("tokenizer.json", R"({"pre_tokenizer":{"type":"ByteLevel"},"model":)"
                                 R"({"type":"BPE","merges":[],"vocab":{"a":0,"b":1,"c":2}}})");
  const Json config = Json::MakeObject();
  auto read = [&](const char* key) {
    Metadata metadata;
    const absl::Status status = AddHfTokenizer(folder.path(), HfObject(config, "config.json"),
                                               /*vocab=*/3, /*embeds=*/false, &metadata);
    EXPECT_TRUE(status.ok()) << status;
    return metadata.GetInts(key).value_or(std::vector<int64_t>());
  };
  auto suppressed = [&] { return read("tokenizer.ggml.suppress_tokens"); };
  auto ends = [&] { return read("tokenizer.ggml.eos_token_ids"); };
  EXPECT_EQ(suppressed(), std::vector<int64_t>());
  folder.Write("generation_config.json", R"({"suppress_tokens":[2,"b",0]})");
  EXPECT_EQ(suppressed(), (std::vector<int64_t>{2, 0}));
  folder.Write("generation_config.json", R"({"suppress_tokens":null})");
  EXPECT_EQ(suppressed(), std::vector<int64_t>());
  // As many as it says, be it one or a list.
  EXPECT_EQ(ends(), std::vector<int64_t>());
  folder.Write("generation_config.json", R"({"eos_token_id":[1,"b",0,2,9]})");
  EXPECT_EQ(ends(), (std::vector<int64_t>{1, 0, 2}));
  folder.Write("generation_config.json", R"({"eos_token_id":2})");
  EXPECT_EQ(ends(), std::vector<int64_t>{2});
}

struct TokenizerCase {
  std::string normalizer, pre_tokenizer;
  std::string refused;  // the part that is named; "" where all is followed
};

void CheckTokenizers(const std::string& model, const std::vector<TokenizerCase>& cases) {
  const HfFolder folder;
  folder.Write("config.json", R"({"model_type":"llama","hidden_size":32,"num_hidden_layers":1,)"
                              R"("num_attention_heads":2,"intermediate_size":64,"vocab_size":3,)"
                              R"("max_position_embeddings":64})");
  for (const TokenizerCase& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.normalizer, " ", c.pre_tokenizer));
    folder.Write("tokenizer.json",
                 absl::StrCat(R"({"normalizer":)", c.normalizer, R"(,"pre_tokenizer":)",
                              c.pre_tokenizer, R"(,"model":)", model, "}"));
    const absl::Status status = OpenModelFile(folder.path()).status();
    // There are no weights.
    EXPECT_EQ(status.code(),
              c.refused.empty() ? absl::StatusCode::kNotFound : absl::StatusCode::kUnimplemented)
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.refused)) << status;
  }
}

std::string Sequence(const std::string& member, const std::vector<std::string>& parts) {
  return absl::StrCat(R"({"type":"Sequence",")", member, R"(":[)", absl::StrJoin(parts, ","), "]}");
}

constexpr char kPrepend[] = R"({"type":"Prepend","prepend":"\u2581"})";
constexpr char kReplace[] = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
constexpr char kOtherReplace[] = R"({"type":"Replace","pattern":{"String":"o"},"content":"0"})";
constexpr char kSeveral[] = R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"\u2581"})";
constexpr char kLowercase[] = R"({"type":"Lowercase"})";
constexpr char kDigits[] = R"({"type":"Digits","individual_digits":true})";
constexpr char kSplit[] =
    R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false})";
constexpr char kMetaspace[] =
    R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":false})";

TEST(HfDirectoryTest, APartOfASentencePieceTokenizerThatIsNotFollowedIsRefused) {
  const std::string usual = Sequence("normalizers", {kPrepend, kReplace});
  CheckTokenizers(
      R"({"type":"BPE","byte_fallback":true,"merges":[],"vocab":{"a":0,"b":1,"c":2}})",
      {{usual, "null", ""},
       {kReplace, "null", ""},
       {kReplace, kSplit, ""},
       {"null", kMetaspace, ""},
       {"null", Sequence("pretokenizers", {kMetaspace}), ""},
       {Sequence("normalizers", {kLowercase, kPrepend, kReplace}), "null", "\"Lowercase\""},
       {Sequence("normalizers", {R"({"type":"NFKC"})", kReplace}), "null", "\"NFKC\""},
       {Sequence("normalizers", {kReplace, kOtherReplace}), "null", R"("pattern": {"String":"o"})"},
       {Sequence("normalizers", {kSeveral}), "null", R"("pattern": {"Regex":" {2,}"})"},
       {Sequence("normalizers", {R"({"type":"Prepend","prepend":"x"})", kReplace}), "null",
        R"("prepend": "x")"},
       {Sequence("normalizers", {usual}), "null", "\"Sequence\""},
       {kLowercase, kMetaspace, "\"Lowercase\""},
       {"null", Sequence("pretokenizers", {kDigits, kMetaspace}), "\"Digits\""},
       {"null", R"({"type":"Metaspace","replacement":"_"})", R"("replacement": "_")"},
       {kReplace, R"({"type":"Split","pattern":{"Regex":"\\d"}})", "\"pattern\""}});
}

TEST(HfDirectoryTest, APartOfAByteLevelTokenizerThatIsNotFollowedIsRefused) {
  const std::string nfc = R"({"type":"NFC"})", bytes = R"({"type":"ByteLevel"})";
  CheckTokenizers(R"({"type":"BPE","merges":[],"vocab":{"a":0,"b":1,"c":2}})",
                  {{"null", bytes, ""},
                   {nfc, bytes, ""},
                   {Sequence("normalizers", {}), bytes, ""},
                   {Sequence("normalizers", {Sequence("normalizers", {nfc})}), bytes, ""},
                   {kLowercase, bytes, "normalizer"},
                   {Sequence("normalizers", {nfc, kLowercase}), bytes, "normalizer"}});
}

TEST(HfDirectoryTest, APartOfAUnigramTokenizerThatIsNotFollowedIsRefused) {
  const std::string precompiled = R"({"type":"Precompiled","precompiled_charsmap":""})";
  const std::string whitespace = R"({"type":"WhitespaceSplit"})";
  const std::string usual = Sequence("pretokenizers", {whitespace, kMetaspace});
  CheckTokenizers(
      R"({"type":"Unigram","unk_id":0,"vocab":[["a",0],["b",-1],["c",-2]]})",
      {{precompiled, usual, ""},
       {Sequence("normalizers", {precompiled, R"({"type":"Strip"})", kSeveral}), kMetaspace, ""},
       {Sequence("normalizers", {precompiled, kLowercase}), usual, "\"Lowercase\""},
       {Sequence("normalizers", {precompiled, kOtherReplace}), usual, R"({"String":"o"})"},
       {precompiled, Sequence("pretokenizers", {kDigits, kMetaspace}), "\"Digits\""}});
}

TEST(HfDirectoryTest, APartOfAWordPieceTokenizerThatIsNotFollowedIsRefused) {
  const std::string bert = R"({"type":"BertNormalizer"})";
  const std::string words = R"({"type":"BertPreTokenizer"})";
  CheckTokenizers(R"({"type":"WordPiece","vocab":{"[UNK]":0,"b":1,"##c":2}})",
                  {{bert, words, ""},
                   {Sequence("normalizers", {bert, kLowercase}), words, "\"Lowercase\""},
                   {bert, Sequence("pretokenizers", {words, kDigits}), "\"Digits\""}});
}

}  // namespace
}  // namespace lm

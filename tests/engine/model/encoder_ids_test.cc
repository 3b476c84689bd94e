// The ids that llama.cpp gives to texts, control tokens included, in the vocabularies of two
// encoders (tests/testdata/models/encoder_ids.tsv: the model, the text with C escapes, the ids).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/load_vocabulary.h"
#include "engine/text/tokenizer.h"
#include "tests/testdata.h"

namespace lm {
namespace {

TEST(EncoderIdsTest, WordPieceAndUnigramGiveThePeersIds) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::ifstream file(absl::StrCat(LM_TESTDATA, "/models/encoder_ids.tsv"));
  int compared = 0;
  for (std::string line; std::getline(file, line); ++compared) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 3u) << line;
    auto& tokenizer = tokenizers[fields[0]];
    if (tokenizer == nullptr) {
      auto gguf = GgufFile::Open(absl::StrCat(LM_TESTDATA, "/models/", fields[0], ".gguf"));
      ASSERT_TRUE(gguf.ok()) << gguf.status();
      tokenizer = Tokenizer::Create(LoadVocabulary((*gguf)->metadata()).value()).value();
    }
    std::string text;
    ASSERT_TRUE(absl::CUnescape(fields[1], &text)) << line;
    const auto ids = tokenizer->EncodePlain(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(absl::StrJoin(*ids, " "), fields[2]) << fields[0] << ": " << fields[1];
  }
  EXPECT_EQ(tokenizers.size(), 2u);
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace lm

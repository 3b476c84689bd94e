#include "test_vocabulary.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/utf8.h"
#include "tests/testdata.h"

namespace lm {
namespace {

std::string Unescape(absl::string_view escaped) {
  std::string text;
  EXPECT_TRUE(absl::CUnescape(escaped, &text)) << escaped;
  return text;
}

}  // namespace

std::vector<std::string> TestDataLines(absl::string_view name) {
  std::ifstream file(std::string(LM_SOURCE_DIR "/tests/engine/text/testdata/") + std::string(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

Vocabulary TestVocabulary(absl::string_view model, absl::string_view pre, bool add_space_prefix) {
  Vocabulary vocabulary;
  vocabulary.model = std::string(model);
  vocabulary.pre = std::string(pre);
  vocabulary.add_space_prefix = add_space_prefix;
  const bool llama = model == "llama";
  const bool raw = model == "gemma4" || pre == "sarvam-moe";
  for (const std::string& line : TestDataLines(llama ? "sentencepiece.vocab"
                                               : raw ? "raw.vocab"
                                                     : "byte_level.vocab")) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (fields[0] == "merge") {
      vocabulary.merges.push_back(Unescape(line.substr(6)));
      continue;
    }
    int type = 0;
    float score = 0;
    EXPECT_TRUE(absl::SimpleAtoi(fields[1], &type)) << line;
    vocabulary.types.push_back(static_cast<TokenType>(type));
    vocabulary.tokens.push_back(Unescape(fields[2]));
    if (!llama) continue;
    EXPECT_TRUE(absl::SimpleAtof(fields[3], &score)) << line;
    vocabulary.scores.push_back(score);
  }
  if (model == "gemma4") vocabulary.pre = "gemma4";
  vocabulary.bos = llama ? 1 : 0;
  vocabulary.eos = llama ? 2 : 0;
  return vocabulary;
}

std::unique_ptr<Tokenizer> TestTokenizer(absl::string_view model, absl::string_view pre,
                                         bool add_space_prefix) {
  auto tokenizer = Tokenizer::Create(TestVocabulary(model, pre, add_space_prefix));
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    std::abort();
  }
  return *std::move(tokenizer);
}

std::string RandomText(std::mt19937& random, int characters) {
  static const char* const kParts[] = {
      "the",    " of",  "Don't",  "'ll", " ",   "  ",     "\n",     "\r\n", "\t",   "12",
      "3",      "...",  "<|",     "|>",  "im_", "end",    "<sep>",  "é",    "你好", "한국",
      "\u0301", "🦙", "\u200d", "ø",   "ſ",   "\u00a0", "<0x41>", "</s>"};
  std::string text;
  for (int i = random() % (characters + 1); i > 0; --i) {
    if (random() % 3 != 0) {
      text += kParts[random() % std::size(kParts)];
      continue;
    }
    uint32_t c = random() % 0x110000;
    if (c >= 0xd800 && c < 0xe000) c = 'x';
    AppendUtf8(c, &text);
  }
  return text;
}

std::vector<std::string> SpecialNames(const Vocabulary& vocabulary) {
  std::vector<std::string> names;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::kControl || type == TokenType::kUnknown ||
        type == TokenType::kUserDefined) {
      names.push_back(vocabulary.tokens[i]);
    }
  }
  return names;
}

std::vector<int32_t> EncodeOrDie(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces) {
  std::vector<int32_t> ids;
  absl::Status status = tokenizer.Encode(pieces, &ids);
  EXPECT_TRUE(status.ok()) << status;
  return ids;
}

std::vector<int32_t> EncodePlainOrDie(const Tokenizer& tokenizer, absl::string_view text) {
  return EncodeOrDie(tokenizer, {{std::string(text), TextKind::kPlain}});
}

}  // namespace lm

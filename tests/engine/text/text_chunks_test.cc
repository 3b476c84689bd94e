#include "engine/text/text_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/text_breaks.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

std::vector<TextChunk> Chunks(const Tokenizer& tokenizer, absl::string_view text,
                              const ChunkLimits& limits) {
  std::vector<TextChunk> chunks;
  for (TextChunk chunk; chunk.end < text.size();) {
    absl::StatusOr<TextChunk> next = NextChunk(TokenizerSizes(tokenizer), text, chunk, limits);
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok()) break;
    chunks.push_back(chunk = *next);
  }
  return chunks;
}

bool BeginsCharacter(absl::string_view text, size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

int NumCharacters(absl::string_view text) {
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) count += BeginsCharacter(text, i);
  return count;
}

// Of "bert" or "t5": it knows small letters and "the".
std::unique_ptr<Tokenizer> EncoderTokenizer(const std::string& model) {
  Vocabulary vocabulary;
  vocabulary.model = model;
  vocabulary.tokens = {"[UNK]", "[CLS]", "[SEP]", "▁the", "▁", "▁."};
  vocabulary.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  for (char c = 'a'; c <= 'z'; ++c) {
    vocabulary.tokens.push_back(std::string(1, c));
    vocabulary.tokens.push_back("▁" + std::string(1, c));
  }
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  if (model == "t5") vocabulary.scores.resize(vocabulary.tokens.size());
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = vocabulary.separator = 2;
  vocabulary.add_bos = vocabulary.add_eos = true;
  vocabulary.merge_spaces = true;
  auto tokenizer = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<std::unique_ptr<Tokenizer>> Tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(EncoderTokenizer("bert"));
  tokenizers.push_back(EncoderTokenizer("t5"));
  tokenizers.push_back(TestTokenizer("gpt2", "qwen2"));
  tokenizers.push_back(TestTokenizer("llama", "", true));
  tokenizers.push_back(TestTokenizer("llama", "", false));
  return tokenizers;
}

// A token for each byte.
class ByteSizes : public TokenSizes {
 public:
  absl::StatusOr<std::vector<size_t>> Of(absl::string_view text) const override {
    return std::vector<size_t>(text.size(), 1);
  }
};

TEST(TextChunksTest, ChunksOfSoManyBytesAreWholeCharactersAndAllOfTheText) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    std::string text = RandomText(random, 60) + ". " + RandomText(random, 60);
    const ChunkLimits limits = {.tokens = 1 + static_cast<int32_t>(random() % 40)};
    std::string together;
    for (TextChunk chunk; chunk.end < text.size();) {
      const absl::StatusOr<TextChunk> next = NextChunk(ByteSizes(), text, chunk, limits);
      ASSERT_TRUE(next.ok()) << next.status();
      chunk = *next;
      ASSERT_TRUE(BeginsCharacter(text, chunk.end));
      ASSERT_EQ(chunk.tokens, chunk.Of(text).size());
      ASSERT_TRUE(chunk.tokens <= limits.tokens || NumCharacters(chunk.Of(text)) == 1);
      absl::StrAppend(&together, chunk.Of(text));
    }
    ASSERT_EQ(together, text);
  }
}

TEST(TextChunksTest, EveryByteIsInAChunkAndNoChunkIsTooLong) {
  std::mt19937 random(3);
  for (const auto& tokenizer : Tokenizers()) {
    for (int i = 0; i < 400; ++i) {
      std::string text;
      for (int part = random() % 20; part >= 0; --part) {
        absl::StrAppend(&text, RandomText(random, 12), part % 4 == 0 ? ".\n\n" : ". ");
      }
      const ChunkLimits limits = {.tokens = 1 + static_cast<int32_t>(random() % 60)};
      size_t covered = 0;
      for (const TextChunk& chunk : Chunks(*tokenizer, text, limits)) {
        ASSERT_EQ(chunk.begin, covered);
        ASSERT_GT(chunk.end, chunk.begin);
        ASSERT_TRUE(BeginsCharacter(text, chunk.end));
        ASSERT_EQ(chunk.tokens, tokenizer->EncodePlain(chunk.Of(text))->size());
        ASSERT_TRUE(chunk.tokens <= limits.tokens || NumCharacters(chunk.Of(text)) == 1)
            << chunk.tokens << " > " << limits.tokens << ": " << chunk.Of(text);
        covered = chunk.end;
      }
      ASSERT_EQ(covered, text.size());
    }
  }
}

TEST(TextChunksTest, EndsWithSentencesAndFillsChunks) {
  std::mt19937 random(4);
  for (const auto& tokenizer : Tokenizers()) {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      absl::StrAppend(&text, "The ", std::vector{"cat", "dog", "old house"}[random() % 3],
                      " is number ", random() % 1000, i % 10 == 9 ? ".\n\n" : ". ");
    }
    const ChunkLimits limits = {.tokens = 150};
    const std::vector<TextChunk> chunks = Chunks(*tokenizer, text, limits);
    ASSERT_GT(chunks.size(), 10);
    for (const TextChunk& chunk : chunks) {
      EXPECT_GE(BreakAt(text, chunk.end), TextBreak::kSentence) << chunk.Of(text);
      EXPECT_TRUE(chunk.tokens >= limits.tokens / 2 - 12 || chunk.end == text.size());
    }
  }
}

TEST(TextChunksTest, OverlapsRepeatWholeWordsAndGoForward) {
  std::mt19937 random(5);
  for (const auto& tokenizer : Tokenizers()) {
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (int part = 30; part >= 0; --part) absl::StrAppend(&text, RandomText(random, 12), ". ");
      const int32_t tokens = 2 + random() % 60;
      const ChunkLimits limits = {.tokens = tokens,
                                  .overlap = static_cast<int32_t>(random() % tokens)};
      TextChunk last;
      for (const TextChunk& chunk : Chunks(*tokenizer, text, limits)) {
        ASSERT_LE(chunk.begin, last.end);
        ASSERT_GT(chunk.end, last.end);
        ASSERT_TRUE(chunk.begin == 0 || chunk.begin > last.begin);
        for (size_t at = chunk.begin; at < last.end; ++at) {
          if (!BeginsCharacter(text, at) || BreakAt(text, at) == TextBreak::kInside) continue;
          ASSERT_NE(BreakAt(text, chunk.begin), TextBreak::kInside);
          break;
        }
        last = chunk;
      }
      ASSERT_EQ(last.end, text.size());
    }
  }
}

TEST(TextChunksTest, OverlapBeginsWithASentence) {
  const auto tokenizer = TestTokenizer("gpt2", "qwen2");
  std::string text;
  for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "Now we are at ", i, ". ");
  const std::vector<TextChunk> chunks = Chunks(*tokenizer, text, {.tokens = 100, .overlap = 40});
  ASSERT_GT(chunks.size(), 5);
  for (size_t i = 1; i < chunks.size(); ++i) {
    EXPECT_LT(chunks[i].begin, chunks[i - 1].end);
    EXPECT_EQ(BreakAt(text, chunks[i].begin), TextBreak::kSentence);
  }
}

// Tokens that are shorter than what they stand for, or longer.
TEST(TextChunksTest, EncodersFillTheirChunks) {
  for (const char* model : {"bert", "t5"}) {
    const auto tokenizer = EncoderTokenizer(model);
    for (const char* unit : {"Привет мир как дела ", "total            ab,                  cd\n",
                             "a世界 世 ", "ⅷ½ ㌔㌔ ", "the the. "}) {
      std::string text;
      for (int i = 0; i < 400; ++i) text += unit;
      for (int32_t overlap : {0, 20}) {
        size_t chunks = 0, shared = 0;
        TextChunk last;
        for (const TextChunk& chunk :
             Chunks(*tokenizer, text, {.tokens = 64, .overlap = overlap})) {
          EXPECT_TRUE(chunk.tokens >= 48 || chunk.end == text.size()) << chunk.Of(text);
          EXPECT_LE(chunk.tokens, 64);
          EXPECT_LE(chunk.begin, last.end);
          const absl::string_view again = text;
          const size_t repeated =
              EncodePlainOrDie(*tokenizer, again.substr(chunk.begin, last.end - chunk.begin))
                  .size();
          if (chunks++ > 0 && overlap > 0) shared += repeated;
          EXPECT_LE(repeated, overlap + 3);
          last = chunk;
        }
        EXPECT_EQ(last.end, text.size());
        EXPECT_GT(chunks, 8) << unit;
        EXPECT_GE(shared, (chunks - 1) * overlap / 2) << model << ": " << unit;
      }
    }
  }
}

// Less than a word is asked for.
TEST(TextChunksTest, OverlapBeginsInNoUsualWord) {
  for (const auto& tokenizer : Tokenizers()) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 9 == 0 ? "zzzqqq.\n\n" : "zzzqqq  kkkwww ";
    for (int32_t overlap : {1, 2, 4}) {
      for (const TextChunk& chunk : Chunks(*tokenizer, text, {.tokens = 50, .overlap = overlap})) {
        EXPECT_TRUE(chunk.begin == 0 || BreakAt(text, chunk.begin) != TextBreak::kInside)
            << chunk.Of(text);
      }
    }
  }
}

TEST(TextChunksTest, WhatHasNoWordsOverlapsByCharacters) {
  for (const auto& tokenizer : Tokenizers()) {
    for (const char* unit : {"世界", "QUJD", "ภาษา"}) {
      std::string text;
      for (int i = 0; i < 500; ++i) text += unit;
      TextChunk last;
      for (const TextChunk& chunk : Chunks(*tokenizer, text, {.tokens = 90, .overlap = 45})) {
        ASSERT_TRUE(BeginsCharacter(text, chunk.begin));
        if (last.end > 0) {
          EXPECT_LT(chunk.begin, last.end);
          EXPECT_GT(chunk.begin, last.begin);
          EXPECT_GT(chunk.end, last.end);
          const size_t shared =
              EncodePlainOrDie(*tokenizer, text.substr(chunk.begin, last.end - chunk.begin)).size();
          EXPECT_TRUE(shared >= 30 && shared <= 50) << shared << ": " << unit;
        }
        last = chunk;
      }
      EXPECT_EQ(last.end, text.size());
    }
  }
}

// Quadratic time would take minutes.
TEST(TextChunksTest, TakesTimeThatGrowsWithTheText) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(TestTokenizer("gpt2", "qwen2"));
  tokenizers.push_back(EncoderTokenizer("bert"));
  tokenizers.push_back(EncoderTokenizer("t5"));
  for (const auto& tokenizer : tokenizers) {
    for (const char* unit : {"a", " ", "\n", ")", "。", ". ", "1. ", "é", "🦙", "世 "}) {
      std::string text;
      while (text.size() < 1 << 19) text += unit;
      size_t covered = 0;
      for (const TextChunk& chunk : Chunks(*tokenizer, text, {.tokens = 1000})) covered = chunk.end;
      EXPECT_EQ(covered, text.size());
    }
  }
}

}  // namespace
}  // namespace lm

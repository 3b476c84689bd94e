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

std::vector<std::unique_ptr<Tokenizer>> Tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
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
        ASSERT_EQ(chunk.tokens, EncodePlainOrDie(*tokenizer, chunk.Of(text)).size());
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
        ASSERT_TRUE(chunk.begin == last.end || BreakAt(text, chunk.begin) != TextBreak::kInside);
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

// Quadratic time would take minutes.
TEST(TextChunksTest, TakesTimeThatGrowsWithTheText) {
  const auto tokenizer = TestTokenizer("gpt2", "qwen2");
  for (const char* unit : {"a", " ", "\n", ")", "。", ". ", "1. ", "é", "🦙"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    size_t covered = 0;
    for (const TextChunk& chunk : Chunks(*tokenizer, text, {.tokens = 1000})) covered = chunk.end;
    EXPECT_EQ(covered, text.size());
  }
}

}  // namespace
}  // namespace lm

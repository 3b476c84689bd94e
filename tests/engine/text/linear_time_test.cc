// A million equal characters, or ten: time grows with the text, the stack does not.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdint>
#include <functional>

#include "engine/text/split_family.h"
#include "engine/text/text_splitter.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kLongBytes = 10 << 20;

// Runs `body` in a thread with a small stack.
void RunOnASmallStack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  auto call = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

std::string Repeat(const std::string& unit, size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

// One class of characters each, and what makes an expression look far ahead or back.
const std::vector<std::string>& Units() {
  static const auto* const kUnits = new std::vector<std::string>{
      "a",      "A",          "7",  " ",  "\n",   "\r\n",   "\t",   "!",
      "<",      "'",          "é",  "你", "한",   "\u0301", "🦙", "\u200d",
      "\u00a0", "\U0001f6dc", "Aa", "a ", "   x", " \n",    "'s",   "<|im_end|"};
  return *kUnits;
}

// Quadratic time would take seconds for this much, linear time takes some milliseconds.
constexpr size_t kShortBytes = 64 << 10;
constexpr double kShortSeconds = 0.7;

double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

constexpr const char* kFamilies[] = {"default",
                                     "gpt-2",
                                     "starcoder",
                                     "falcon",
                                     "llama-bpe",
                                     "qwen2",
                                     "qwen35",
                                     "minicpm5",
                                     "bailingmoe",
                                     "seed-coder",
                                     "tekken",
                                     "gpt-4o",
                                     "bloom",
                                     "viking",
                                     "deepseek-llm",
                                     "deepseek-coder",
                                     "deepseek-v3",
                                     "ufakzeka",
                                     "exaone-moe",
                                     "tiny_aya",
                                     "youtu",
                                     "kimi-k2",
                                     "granite-embed-multi-97m",
                                     "laguna",
                                     "chameleon",
                                     "spark2_5",
                                     "afmoe",
                                     "jais-2",
                                     "superbpe"};

TEST(LinearTimeTest, EveryFamilySplitsEveryClassOfCharacters) {
  for (const char* pre : kFamilies) {
    auto family = FindSplitFamily(pre);
    ASSERT_TRUE(family.ok());
    auto splitter = TextSplitter::Create(family->patterns);
    ASSERT_TRUE(splitter.ok()) << splitter.status();
    RunOnASmallStack([&] {
      for (const std::string& unit : Units()) {
        for (const char* end : {"", "."}) {
          const std::string text = Repeat(unit, kShortBytes) + end;
          const double begin = ThreadSeconds();
          std::vector<TextSplitter::Piece> pieces;
          absl::Status status = (*splitter)->Split(text, &pieces);
          EXPECT_TRUE(status.ok()) << pre << " " << unit << " " << status;
          EXPECT_LT(ThreadSeconds() - begin, kShortSeconds) << pre << " " << unit;
          size_t covered = 0;
          for (const auto& piece : pieces) {
            EXPECT_EQ(piece.begin, covered);
            EXPECT_GT(piece.end, piece.begin);
            covered = piece.end;
          }
          EXPECT_EQ(covered, text.size());
        }
      }
    });
  }
}

// Runs of these are cut into many pieces, none of which may look to the run's end.
TEST(LinearTimeTest, AMegabyteOfSpacesTakesNoLonger) {
  for (const char* pre : kFamilies) {
    const auto splitter = TextSplitter::Create(FindSplitFamily(pre)->patterns).value();
    for (const char* unit : {" ", "\n", "\t"}) {
      const std::string text = Repeat(unit, 1 << 20) + "a";
      const double begin = ThreadSeconds();
      std::vector<TextSplitter::Piece> pieces;
      EXPECT_TRUE(splitter->Split(text, &pieces).ok());
      EXPECT_LT(ThreadSeconds() - begin, kShortSeconds) << pre << " " << *unit;
    }
  }
}

// The most that this process has had.
int64_t MemoryBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(LinearTimeTest, AWordOfAnyLengthTakesTheSameMemory) {
  constexpr size_t kWordBytes = 2 << 20;
  constexpr int64_t kMostBytes = 16 * kWordBytes;
  for (const char* pre : kFamilies) {
    const auto splitter = TextSplitter::Create(FindSplitFamily(pre)->patterns).value();
    for (const char* unit : {"a", "A", "é", "한", "ไ", "\u0301"}) {
      const std::string text = Repeat(unit, kWordBytes);
      const int64_t before = MemoryBytes();
      std::vector<TextSplitter::Piece> pieces;
      EXPECT_TRUE(splitter->Split(text, &pieces).ok());
      EXPECT_LT(MemoryBytes() - before, kMostBytes) << pre << " " << unit;
    }
  }
}

TEST(LinearTimeTest, EveryClassOfCharactersIsEncoded) {
  for (const char* model : {"gpt2", "llama"}) {
    const auto tokenizer = TestTokenizer(model, "qwen2");
    RunOnASmallStack([&] {
      for (const std::string& unit : Units()) {
        const std::string text = Repeat(unit, kShortBytes);
        for (TextKind kind : {TextKind::kPlain, TextKind::kMarkup}) {
          const double begin = ThreadSeconds();
          const std::vector<int32_t> ids = EncodeOrDie(*tokenizer, {{text, kind}});
          EXPECT_LT(ThreadSeconds() - begin, kShortSeconds) << model << " " << unit;
          EXPECT_EQ(tokenizer->DecodePlain(ids), text) << model << " " << unit;
        }
      }
    });
  }
}

TEST(LinearTimeTest, TenMegabytesOfOneCharacterAreEncoded) {
  for (const char* model : {"gpt2", "llama"}) {
    const auto tokenizer = TestTokenizer(model, "qwen2");
    RunOnASmallStack([&] {
      for (const char* unit : {"a", " "}) {
        const std::string text = Repeat(unit, kLongBytes);
        const std::vector<int32_t> ids = EncodePlainOrDie(*tokenizer, text);
        EXPECT_TRUE(tokenizer->DecodePlain(ids) == text) << model << " " << unit;
      }
    });
  }
}

}  // namespace
}  // namespace lm

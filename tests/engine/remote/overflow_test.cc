#include "engine/remote/overflow.h"

#include <gtest/gtest.h>

#include "engine/remote/embedding_api.h"

namespace lm {
namespace {

TEST(ShareThatFitsTest, ReadsTheServersNumbers) {
  // Of 4,096 tokens 256 are the answer's; two in a hundred are kept back.
  EXPECT_NEAR(
      ShareThatFits(
          "This model's maximum context length is 4096 tokens. However, you requested 8000 tokens "
          "(7744 in the messages, 256 in the completion).",
          256),
      0.98 * 3840 / 8000, 1e-9);
  EXPECT_NEAR(ShareThatFits("request (5000 tokens) exceeds the available context size (2000 "
                            "tokens), try increasing it",
                            3000),
              0.98 * 1000 / 5000, 1e-9);
  EXPECT_NEAR(
      ShareThatFits(
          "The input (5000 tokens) is longer than the model's context length (4000 tokens).", 0),
      0.98 * 3999 / 5000, 1e-9);
  for (const char* words : {"", "too long", "context", "the context is 7 and the prompt 5",
                            "99999999999999999999 context"}) {
    EXPECT_EQ(ShareThatFits(words, 10), 0.75) << words;
  }
}

RequestSpec Cut(OnOverflow how, int64_t kept_end) {
  RequestSpec spec{.kept_end = kept_end};
  spec.options.on_overflow = how;
  return spec;
}

TEST(CutTextTest, LeavesTheSystemPromptAndTheQuestion) {
  const std::string text =
      R"([{"role":"system","content":"S"},{"role":"user","content":"abcdefgh?!"}])";
  EXPECT_EQ(CutText(Cut(OnOverflow::kTruncateEnd, 2), text, 0.5),
            R"([{"role":"system","content":"S"},{"role":"user","content":"abcd?!"}])");
  EXPECT_EQ(CutText(Cut(OnOverflow::kTruncateStart, 2), text, 0.5),
            R"([{"role":"system","content":"S"},{"role":"user","content":"efgh?!"}])");
  EXPECT_EQ(CutText(Cut(OnOverflow::kError, 2), text, 0.5), std::nullopt);
  RequestSpec whole = Cut(OnOverflow::kTruncateEnd, 2);
  whole.kept_end.reset();
  EXPECT_EQ(CutText(whole, text, 0.5), std::nullopt);
  EXPECT_EQ(CutText(Cut(OnOverflow::kTruncateEnd, 10), text, 0.5), std::nullopt);
}

// Whatever the share, and whatever the characters.
TEST(CutTextTest, EndsWithNothing) {
  for (OnOverflow how : {OnOverflow::kTruncateStart, OnOverflow::kTruncateEnd}) {
    RequestSpec spec = Cut(how, 0);
    spec.embed = Pooling::kMean;
    std::string text = "aé漢🌧";
    int cuts = 0;
    while (std::optional<std::string> shorter = CutText(spec, text, 1.0)) {
      EXPECT_LT(shorter->size(), text.size());
      EXPECT_TRUE(shorter->empty() || (static_cast<unsigned char>((*shorter)[0]) & 0xc0) != 0x80)
          << *shorter;
      text = *shorter;
      ++cuts;
    }
    EXPECT_EQ(text, "");
    EXPECT_EQ(cuts, 4);
  }
}

TEST(CutTextTest, LeavesWhatStandsBeforeATextThatIsEmbedded) {
  for (OnOverflow how : {OnOverflow::kTruncateStart, OnOverflow::kTruncateEnd}) {
    RequestSpec spec = Cut(how, 7);
    spec.embed = Pooling::kMean;
    EXPECT_EQ(CutText(spec, "query: abcd", 0.5),
              how == OnOverflow::kTruncateStart ? "query: cd" : "query: ab");
    EXPECT_EQ(CutText(spec, "query: a", 0.9), "query: ");
    EXPECT_EQ(CutText(spec, "query: ", 0.9), std::nullopt);
  }
}

TEST(CutTextTest, CutsTheRankedTextAndNotTheQuery) {
  RequestSpec spec = Cut(OnOverflow::kTruncateEnd, 0);
  spec.embed = Pooling::kMean;
  spec.ranks = true;
  EXPECT_EQ(CutText(spec, RankedPair("query", "text"), 0.5), RankedPair("query", "te"));
}

}  // namespace
}  // namespace lm

#include "engine/remote/embedding_api.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

TEST(EmbeddingApiTest, ReadsScoresOfEveryForm) {
  constexpr char kJina[] = R"({"model":"m","results":[{"index":0,"relevance_score":-2.5}]})";
  EXPECT_EQ(ReadScore(kJina, Dialect::kLlamaServer)->numbers, std::vector<float>{-2.5});
  // Of a probability there is the other label's, too.
  EXPECT_EQ(ReadScore(R"([{"score":0.25,"document":"x","index":0}])", Dialect::kSglang)->numbers,
            (std::vector<float>{0.25, 0.75}));
  for (const char* body :
       {"", "{}", "[]", R"({"results":[]})", R"({"results":[{"index":0}]})",
        R"({"results":[{"relevance_score":"high"}]})",
        R"({"results":[{"relevance_score":1e39}]})", R"({"results":[{"relevance_score":1},{"relevance_score":2}]})", "<html>"}) {
    EXPECT_TRUE(absl::IsUnavailable(ReadScore(body, Dialect::kVllm).status())) << body;
  }
}

TEST(EmbeddingApiTest, ReadsEmbeddings) {
  EXPECT_EQ(ReadEmbedding(R"({"data":[{"embedding":[1,-2.5]}]})")->numbers,
            (std::vector<float>{1, -2.5}));
  for (const char* body : {"", "{}", R"({"data":[]})", R"({"data":[{"embedding":"AAAA"}]})",
                           R"({"data":[{"embedding":[1,"x"]}]})",
                           R"({"data":[{"embedding":[]}]})",
                           R"({"data":[{"embedding":[1e39,1]}]})"}) {
    EXPECT_TRUE(absl::IsUnavailable(ReadEmbedding(body).status())) << body;
  }
}

TEST(EmbeddingApiTest, CountsTokensAsTheServerDoes) {
  EXPECT_EQ(ReadEmbedding(R"({"data":[{"embedding":[1]}],"usage":{"prompt_tokens":7}})")->tokens_in,
            7);
  EXPECT_EQ(ReadScore(R"({"results":[{"relevance_score":1}],"usage":{"total_tokens":9}})",
                      Dialect::kVllm)
                ->tokens_in,
            9);
  EXPECT_EQ(ReadEmbedding(R"({"data":[{"embedding":[1]}],"usage":null})")->tokens_in, 0);
}

TEST(EmbeddingApiTest, ExtraGoesBeforeWhatIsOurs) {
  RemoteOptions options;
  options.extra = *Json::Parse(R"({"encoding_format":null,"user":"u"})");
  EXPECT_EQ(EmbeddingBody("t", {.name = "m"}, options), R"({"model":"m","input":"t","user":"u"})");
  EXPECT_EQ(RerankBody(RankedPair("q", "t"), {.name = "m"}, RemoteOptions()).value(),
            R"({"model":"m","query":"q","documents":["t"]})");
}

// However short it is, the pair may be where an interrupt is noticed.
TEST(EmbeddingApiTest, APairIsNotReadForWhoIsInterrupted) {
  const CheckpointScope scope([] { return true; });
  absl::SleepFor(absl::FromChrono(2 * kCheckpointInterval));
  const absl::Status status =
      RerankBody(RankedPair("q", "t"), {.name = "m"}, RemoteOptions()).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace lm

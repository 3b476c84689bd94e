// Answers that are handed out token by token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/time/clock.h"
#include "engine/base/utf8.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

class StreamingTest : public testing::Test {
 protected:
  std::shared_ptr<Request> Stream(const std::string& answer, GenerationOptions options = {}) {
    script_->says = {{Bytes("say:"), Bytes(answer)}};
    engine_ = StartScripted(script_);
    return engine_
        ->Submit({.prompt = Bytes("say:"),
                  .options = std::move(options),
                  .stream = true,
                  .wants_logprob = true})
        .value();
  }
  // All of a stream, to its end.
  static std::vector<StreamedToken> Drain(Request& request) {
    std::vector<StreamedToken> tokens;
    for (;;) {
      EXPECT_TRUE(request.WaitForToken(absl::Seconds(30)));
      std::optional<StreamedToken> token = request.TakeToken();
      if (!token.has_value()) return tokens;
      tokens.push_back(*std::move(token));
    }
  }
  static std::vector<std::string> Pieces(const std::vector<StreamedToken>& tokens) {
    std::vector<std::string> pieces;
    for (const StreamedToken& token : tokens) pieces.push_back(token.piece);
    return pieces;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

using testing::ElementsAre;

TEST_F(StreamingTest, APieceForEachToken) {
  auto request = Stream("abc");
  const std::vector<StreamedToken> tokens = Drain(*request);
  EXPECT_THAT(Pieces(tokens), ElementsAre("a", "b", "c"));
  EXPECT_EQ(request->result().text, "abc");
  absl::Duration before;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].token, "abc"[i]);
    // The script's logit of 100 against 299 between -4 and 4.
    EXPECT_LE(tokens[i].logprob, 0);
    EXPECT_GT(tokens[i].logprob, -1e-6);
    EXPECT_GE(tokens[i].since_submission, before);
    before = tokens[i].since_submission;
  }
  EXPECT_EQ(tokens[0].since_submission, request->result().time_to_first_token);
}

TEST_F(StreamingTest, ATokenIsThereBeforeTheNextIsComputed) {
  script_->most_forwards = 0;
  auto request = Stream("abc");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(request->WaitForToken(absl::Milliseconds(10)));
    EXPECT_FALSE(request->TakeToken().has_value());
    ++script_->most_forwards;  // the next pass goes through, the one after it does not
    ASSERT_TRUE(request->WaitForToken(absl::Seconds(30)));
    EXPECT_EQ(request->TakeToken()->piece, std::string(1, "abc"[i]));
  }
  ++script_->most_forwards;
  EXPECT_TRUE(Drain(*request).empty());
}

TEST_F(StreamingTest, ThePiecesAreTheText) {
  struct Case {
    std::string answer;
    GenerationOptions options;
  };
  const std::vector<Case> cases = {
      {"", {}},
      {"Hello, Wörld €!", {}},
      {"caf\xc3", {}},
      {"€uro", {.max_tokens = 2}},
      {"one\n\ntwo", {.stop = {"\n\n"}}},
      {"one\n", {.stop = {"\n\n"}}},
      {"aé€b", {.stop = {"x", "é€"}}},
      {"ab", {.max_tokens = 1, .stop = {"abc"}}},
      {"abcd", {.max_tokens = 0}},
  };
  for (const Case& c : cases) {
    auto request = Stream(c.answer, c.options);
    const std::vector<StreamedToken> tokens = Drain(*request);
    const Generation& result = request->result();
    std::string text;
    std::vector<int32_t> ids;
    for (const StreamedToken& token : tokens) {
      EXPECT_EQ(ValidUtf8Prefix(token.piece), token.piece.size());
      text += token.piece;
      if (token.token >= 0) ids.push_back(token.token);
    }
    EXPECT_EQ(text, result.text) << c.answer;
    EXPECT_EQ(ids, result.tokens) << c.answer;
    EXPECT_EQ(Generate(*engine_, {.prompt = Bytes("say:"), .options = c.options}).text, text);
  }
}

TEST_F(StreamingTest, WhatWasHeldBackComesWithoutAToken) {
  auto request = Stream("a\n", {.stop = {"\n\n"}});
  const std::vector<StreamedToken> tokens = Drain(*request);
  EXPECT_THAT(Pieces(tokens), ElementsAre("a", "", "\n"));
  EXPECT_EQ(tokens[2].token, -1);
}

TEST_F(StreamingTest, AFailureEndsTheStreamAndKeepsWhatCame) {
  script_->nan_token = 'c';
  auto request = Stream("abcd");
  const std::vector<StreamedToken> tokens = Drain(*request);
  EXPECT_THAT(Pieces(tokens), ElementsAre("a", "b", "c"));
  EXPECT_EQ(request->result().status.code(), absl::StatusCode::kInternal);
}

TEST_F(StreamingTest, CancellingStopsTheStepUnderWay) {
  script_->step_time = absl::Seconds(20);
  auto request = Stream("abc");
  script_->AwaitForward(1);
  const absl::Time start = absl::Now();
  request->Cancel();
  Drain(*request);
  EXPECT_TRUE(absl::IsCancelled(request->result().status));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(script_->cancelled_forwards, 1);
}

TEST_F(StreamingTest, TimeoutMsEndsTheWait) {
  script_->step_time = absl::Seconds(20);
  auto request = Stream("abc", {.timeout_ms = 30});
  EXPECT_TRUE(Drain(*request).empty());
  EXPECT_EQ(request->result().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(StreamingTest, WhoDoesNotStreamGetsNothing) {
  engine_ = StartScripted(script_);
  auto request = engine_->Submit({.prompt = {1}, .options = {.max_tokens = 3}}).value();
  EXPECT_TRUE(Drain(*request).empty());
  EXPECT_EQ(request->result().tokens_out, 3);
}

}  // namespace
}  // namespace lm

// Whose work a row's answer was, and whether an interrupt is heard, also where answers are there as
// soon as they are asked for.
#include "extension/batch/pending_answer.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "extension/connection/await.h"
#include "tests/engine/runtime/held_generator.h"

namespace lm {
namespace {

// Has answered before Submit() returns, as a small model may where the caller's thread has to wait
// for a processor.
class QuickGenerator : public HeldGenerator {
 public:
  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener) override {
    if (refuses) return absl::InvalidArgumentError("not this one");
    absl::StatusOr<std::shared_ptr<Request>> request =
        HeldGenerator::Submit(std::move(spec), std::move(listener));
    if (request.ok()) {
      Generation answer{.text = "yes", .finish = FinishReason::kStop, .tokens_out = 2};
      answer.remembered = remembers;
      (*request)->Finish(std::move(answer));
    }
    return request;
  }

  bool refuses = false;
  bool remembers = false;
};

class PendingAnswerTest : public testing::Test {
 protected:
  // A row whose answer is looked at as soon as it is submitted, since another model may be asked.
  PendingAnswer Ask(std::optional<std::string> prompt) {
    PendingAnswer pending(
        {.prompt = std::move(prompt), .options = options_, .escalation = escalation_});
    EXPECT_TRUE(pending.Submit());
    EXPECT_TRUE(pending.answered());
    return pending;
  }

  std::shared_ptr<QuickGenerator> generator_ = std::make_shared<QuickGenerator>();
  std::shared_ptr<const CallOptions> options_ = std::make_shared<CallOptions>(
      CallOptions{std::make_shared<ModelUse>(ModelUse{Session(generator_, "")}), {}});
  std::shared_ptr<const Escalation> escalation_ = std::make_shared<Escalation>(Escalation{
      .options = options_, .below = 0.5, .confidence = [](const Generation&) { return 1.0; }});
};

TEST_F(PendingAnswerTest, WhatTheModelHasAnsweredAtOnceWasTheModelsToAnswer) {
  const PendingAnswer pending = Ask("Is it dry?");
  EXPECT_EQ(pending.answer().generation.text, "yes");
  EXPECT_TRUE(pending.NeedsModel());
}

TEST_F(PendingAnswerTest, WhatIsRememberedWasNot) {
  generator_->remembers = true;
  EXPECT_FALSE(Ask("Is it dry?").NeedsModel());
}

TEST_F(PendingAnswerTest, NorWasARowWithoutAPromptOrOneThatIsRefused) {
  EXPECT_FALSE(Ask(std::nullopt).NeedsModel());
  generator_->refuses = true;
  EXPECT_FALSE(Ask("Is it dry?").NeedsModel());
}

TEST_F(PendingAnswerTest, AnInterruptIsHeardBetweenAnswersThatAreAlwaysReady) {
  bool interrupted = false;
  const CheckpointScope scope([&interrupted] { return interrupted; });
  const std::shared_ptr<Request> ready = *generator_->Submit({}, nullptr);
  EXPECT_TRUE(Await(nullptr, *ready, NothingMeanwhile).ok());
  interrupted = true;
  absl::SleepFor(2 * absl::FromChrono(kCheckpointInterval));
  EXPECT_TRUE(absl::IsCancelled(Await(nullptr, *ready, NothingMeanwhile)));
}

}  // namespace
}  // namespace lm

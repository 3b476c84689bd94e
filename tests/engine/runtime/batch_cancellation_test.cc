#include "engine/runtime/batch_cancellation.h"
#include "engine/base/monotonic_time.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime/request.h"

namespace lm {
namespace {

class BatchCancellationTest : public testing::Test {
 protected:
  std::unique_ptr<Request> Make(int64_t timeout_ms = 0) {
    auto request = std::make_unique<Request>(
        RequestSpec{.prompt = {1}, .options = {.timeout_ms = timeout_ms}});
    request->set_cancellation(cancellation_);
    return request;
  }
  void Begin(std::vector<const Request*> requests) {
    step_.emplace(cancellation_.get(), std::move(requests));
  }
  std::shared_ptr<BatchCancellation> cancellation_ = std::make_shared<BatchCancellation>();
  std::optional<BatchCancellation::Step> step_;
};

TEST_F(BatchCancellationTest, TheFlagRisesWithTheLastOne) {
  auto a = Make(), b = Make();
  Begin({a.get(), b.get()});
  EXPECT_FALSE(cancellation_->flag());
  a->Cancel();
  a->Cancel();
  EXPECT_FALSE(cancellation_->flag());
  b->Cancel();
  EXPECT_TRUE(cancellation_->flag());
  EXPECT_EQ(cancellation_->num_cancels(), 2u);
  step_.reset();
  EXPECT_FALSE(cancellation_->flag());
}

TEST_F(BatchCancellationTest, AStepOfCancelledOnesBeginsRaised) {
  auto a = Make();
  a->Cancel();
  Begin({a.get()});
  EXPECT_TRUE(cancellation_->flag());
  step_.reset();
}

TEST_F(BatchCancellationTest, StopIsForGood) {
  cancellation_->Stop();
  auto a = Make();
  Begin({a.get()});
  EXPECT_TRUE(cancellation_->flag());
  step_.reset();
  EXPECT_TRUE(cancellation_->flag());
}

TEST_F(BatchCancellationTest, WaitingBeyondTheDeadlineGivesUp) {
  auto a = Make(/*timeout_ms=*/5);
  Begin({a.get()});
  EXPECT_FALSE(a->WaitFor(absl::Milliseconds(20)));
  EXPECT_FALSE(a->abandoned());  // it has had nothing of the model yet
  a->set_deadline(MonotonicTime::Now() + absl::Milliseconds(5));
  EXPECT_FALSE(a->WaitFor(absl::Milliseconds(50)));
  EXPECT_TRUE(a->abandoned());
  EXPECT_FALSE(a->cancelled());
  EXPECT_TRUE(cancellation_->flag());
  step_.reset();
  a->Cancel();  // too late to change why it ends
  EXPECT_EQ(a->AbandonedStatus().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(a->AbandonedStatus().message(), "the generation took longer than timeout_ms = 5");
}

TEST_F(BatchCancellationTest, FinishWakesTheWaiter) {
  auto a = Make();
  std::thread finisher([&] {
    Generation result;
    result.text = "done";
    a->Finish(std::move(result));
  });
  EXPECT_TRUE(a->WaitFor(absl::Seconds(20)));
  EXPECT_EQ(a->result().text, "done");
  finisher.join();
  EXPECT_TRUE(a->WaitFor(absl::ZeroDuration()));
}

}  // namespace
}  // namespace lm

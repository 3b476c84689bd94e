// What an engine does when things go wrong: it says so to those concerned, gives their memory back,
// and goes on for the others.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/runtime/engine.h"
#include "engine/runtime/trouble.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

class EngineFaultsTest : public testing::Test {
 protected:
  void Start(const EngineOptions& options = {}) { engine_ = StartScripted(script_, options); }

  std::shared_ptr<Request> Submit(RequestSpec spec) {
    return engine_->Submit(std::move(spec)).value();
  }
  RequestSpec Long(int32_t first = 1) {
    RequestSpec spec{.prompt = {first, 2, 3}, .options = {.max_tokens = 1000}};
    spec.options.logit_bias = {{kImEnd, -1000}};
    return spec;
  }
  void ExpectBaseline() {
    const EngineStats stats = engine_->Stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.queued, 0);
    EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    EXPECT_EQ(script_->violation(), "");
  }
  // Right, whatever happened before.
  void ExpectHealthy() {
    const RequestSpec spec{.prompt = {9, 8, 7}, .options = {.max_tokens = 40}};
    auto fresh = StartScripted(std::make_shared<Script>());
    EXPECT_EQ(Generate(*engine_, spec).tokens, Generate(*fresh, spec).tokens);
    ExpectBaseline();
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
};

TEST_F(EngineFaultsTest, CancelEndsAForwardPassThatNobodyWaitsFor) {
  script_->step_time = absl::Seconds(60);
  Start();
  auto a = Submit(Long(1)), b = Submit(Long(2));
  script_->AwaitForward(1);
  const absl::Time start = absl::Now();
  a->Cancel();
  b->Cancel();
  const Generation result = Await(a);
  Await(b);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(result.finish, FinishReason::kError);
  EXPECT_EQ(script_->cancelled_forwards, 1);
  EXPECT_EQ(engine_->Stats().kv_blocks_free, engine_->Stats().kv_blocks_total);
  EXPECT_EQ(engine_->Stats().failed, 0);  // nobody wanted them
}

TEST_F(EngineFaultsTest, WhoWaitsIsToldWhatIsWrongWithWeightsThatAreLaidOut) {
  script_->lay_out = [this]() -> absl::StatusOr<bool> {
    if (script_->forwards < 5) return true;
    return absl::DataLossError("the file was changed");
  };
  Start();
  const auto request = Submit(Long());
  ASSERT_TRUE(request->WaitFor(absl::Seconds(10)));
  const absl::Status told = Await(request).status;
  EXPECT_EQ(told.message(), "the file was changed");
  EXPECT_EQ(TroubleOf(told), Trouble::kLoss);
  const auto next = engine_->Submit(Long());
  EXPECT_TRUE(absl::IsUnavailable(next.status())) << next.status();
  EXPECT_EQ(TroubleOf(next.status()), Trouble::kLoss);
}

TEST_F(EngineFaultsTest, TellsTheWorkAsideThatWasDoneBesideLayingWeightsOut) {
  std::atomic<bool> more{true};
  script_->lay_out = [&more]() -> absl::StatusOr<bool> {
    absl::SleepFor(absl::Milliseconds(1));
    return more.load();
  };
  Start();
  const RequestSpec spec{.prompt = {9, 8, 7}, .options = {.max_tokens = 4}};
  ASSERT_TRUE(Generate(*engine_, spec).status.ok());
  const EngineStats before = engine_->Stats();
  EXPECT_FALSE(before.laid_out);
  EXPECT_GT(before.tokens_prefilled, 0);
  more = false;
  for (int i = 0; i < 1000 && !engine_->Stats().laid_out; ++i)
    absl::SleepFor(absl::Milliseconds(5));
  ASSERT_TRUE(engine_->Stats().laid_out);
  EXPECT_EQ(engine_->StatsSinceLaidOut().tokens_prefilled, 0);
  EXPECT_EQ(engine_->StatsSinceLaidOut().prefill_time, absl::ZeroDuration());
  const RequestSpec other{.prompt = {5, 6, 7, 8, 9}, .options = {.max_tokens = 6}};
  ASSERT_TRUE(Generate(*engine_, other).status.ok());
  const EngineStats all = engine_->Stats(), after = engine_->StatsSinceLaidOut();
  EXPECT_EQ(after.tokens_prefilled, 5);
  EXPECT_EQ(after.tokens_decoded, all.tokens_decoded - before.tokens_decoded);
  EXPECT_EQ(after.decode_steps, all.decode_steps - before.decode_steps);
  EXPECT_EQ(after.prefill_time, all.prefill_time - before.prefill_time);
  EXPECT_EQ(after.inter_token_latency.count,
            all.inter_token_latency.count - before.inter_token_latency.count);
}

TEST_F(EngineFaultsTest, WhereNothingWasToBeLaidOutAllWorkCounts) {
  Start();
  const RequestSpec spec{.prompt = {9, 8, 7}, .options = {.max_tokens = 4}};
  ASSERT_TRUE(Generate(*engine_, spec).status.ok());
  EXPECT_EQ(engine_->StatsSinceLaidOut().tokens_prefilled, 3);
  EXPECT_EQ(engine_->StatsSinceLaidOut().tokens_decoded, engine_->Stats().tokens_decoded);
}

TEST_F(EngineFaultsTest, WithoutMemoryToLayWeightsOutItGoesOnAndTriesAgain) {
  std::atomic<int> tries{0};
  script_->lay_out = [&tries]() -> absl::StatusOr<bool> {
    if (++tries < 2) return absl::ResourceExhaustedError("no memory");
    return false;
  };
  Start();
  ExpectHealthy();
  for (int i = 0; i < 500 && tries < 2; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(tries, 2);
  ExpectHealthy();
  EXPECT_EQ(tries, 2);
}

TEST_F(EngineFaultsTest, CancelDoesNotDisturbANeighbour) {
  Start();
  script_->Pause();
  auto a = Submit(Long(1)), b = Submit({.prompt = {5}, .options = {.max_tokens = 30}});
  script_->AwaitForward(1);
  a->Cancel();
  script_->Resume();
  EXPECT_EQ(Await(a).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Await(b).status.ok());
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, CancelInTheQueue) {
  Start({.max_sequences = 1});
  script_->Pause();
  auto running = Submit({.prompt = {1}, .options = {.max_tokens = 3}});
  script_->AwaitForward(1);
  auto waiting = Submit(Long());
  waiting->Cancel();
  script_->Resume();
  EXPECT_EQ(Await(waiting).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Await(running).status.ok());
  ExpectHealthy();
}

// Wherever the engine's thread is just then: a missed one would answer to its end.
TEST_F(EngineFaultsTest, CancelRightAfterSubmitIsNeverMissed) {
  Start();
  auto neighbour = Submit(Long(9));  // keeps the engine stepping
  for (int i = 0; i < 2000; ++i) {
    if (neighbour->WaitFor(absl::ZeroDuration())) neighbour = Submit(Long(9));
    auto request = Submit(Long(i % 256));
    request->Cancel();
    ASSERT_EQ(Await(request).status.code(), absl::StatusCode::kCancelled);
  }
  neighbour->Cancel();
  Await(neighbour);
  ExpectBaseline();
}

TEST_F(EngineFaultsTest, RandomCancelsBringEveryBlockBack) {
  script_->num_blocks = 40;
  Start({.step_tokens = 60});
  std::mt19937 random(1);
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 2000; ++i) {
    RequestSpec spec{.prompt = std::vector<int32_t>(1 + random() % 200, 'p'),
                     .options = {.max_tokens = static_cast<int32_t>(random() % 60)},
                     .salt = std::string(1, 'a' + random() % 2)};
    spec.prompt.back() = static_cast<int32_t>(random() % 256);
    requests.push_back(Submit(std::move(spec)));
    if (random() % 3 != 0) requests[random() % requests.size()]->Cancel();
    if (random() % 8 == 0) absl::SleepFor(absl::Microseconds(random() % 100));
  }
  for (const auto& request : requests) request->Cancel();
  for (const auto& request : requests) Await(request);
  ExpectBaseline();
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, TimeoutsNameTheMilliseconds) {
  script_->step_time = absl::Seconds(60);
  Start();
  RequestSpec spec = Long();
  spec.options.timeout_ms = 30;
  const absl::Time start = absl::Now();
  auto waited = Submit(spec);
  const Generation result = Await(waited);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result.status.message(), "the generation took longer than timeout_ms = 30");
}

TEST_F(EngineFaultsTest, TimeoutsHoldWithoutAWaiterToo) {
  script_->step_time = absl::Milliseconds(1);
  Start();
  RequestSpec spec = Long();
  spec.options.timeout_ms = 20;
  auto request = Submit(spec);
  // Nobody looks at the request while it runs; that it is over is counted before it is told.
  const absl::Time give_up = absl::Now() + absl::Seconds(10);
  while (engine_->Stats().requests == 0 && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_TRUE(request->WaitFor(absl::Seconds(10)));
  EXPECT_EQ(request->result().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(request->result().total, absl::Seconds(5));
}

TEST_F(EngineFaultsTest, TimeInTheQueueDoesNotCount) {
  script_->step_time = absl::Milliseconds(5);
  Start({.max_sequences = 1});
  auto running = Submit(Long());
  RequestSpec spec{.prompt = {5}, .options = {.max_tokens = 3, .timeout_ms = 1000}};
  auto waiting = Submit(spec);
  EXPECT_FALSE(waiting->WaitFor(absl::Milliseconds(1200)));
  EXPECT_FALSE(waiting->abandoned());
  running->Cancel();
  Await(running);
  EXPECT_TRUE(Await(waiting).status.ok());
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, TimeIsSharedByThoseWhoHaveIt) {
  script_->step_time = absl::Milliseconds(20);
  Start();
  RequestSpec spec = Long();
  spec.options.max_tokens = 10;
  spec.options.timeout_ms = 150;  // of 200 that it would take alone
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(Submit(spec)).status));
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t i = 0; i < 40; ++i) {
    spec.prompt[0] = i;
    requests.push_back(Submit(spec));
  }
  script_->Resume();
  int answered = 0;
  for (const auto& request : requests) {
    const Generation result = Await(request);
    answered += result.status.ok();
    EXPECT_GT(result.total, absl::Milliseconds(150));
  }
  EXPECT_EQ(answered, 40);
}

TEST_F(EngineFaultsTest, ABadRowFailsOnlyItsOwnRequest) {
  script_->nan_token = 99;
  Start();
  script_->Pause();
  auto bad = Submit({.prompt = {1, 99}}),
       good = Submit({.prompt = {5}, .options = {.max_tokens = 30}});
  auto scored = Submit({.prompt = {99, 4, 5}, .score_prompt = true});
  script_->Resume();
  for (const auto& request : {bad, scored}) {
    const Generation result = Await(request);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(result.status.message(), "the model's logit of token 150 must be finite, got nan");
    EXPECT_EQ(result.text, "");
    EXPECT_TRUE(result.prompt_logprobs.empty());
  }
  EXPECT_TRUE(Await(good).status.ok());
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, AFailedForwardFailsItsBatchAndNoMore) {
  script_->error_token = 99;
  Start();
  script_->Pause();
  auto before = Submit({.prompt = {3}, .options = {.max_tokens = 5}});
  script_->AwaitForward(1);
  std::vector<std::shared_ptr<Request>> batch = {Submit({.prompt = {1, 99}}), Submit(Long(5))};
  script_->Resume();
  for (const auto& request : batch) {
    const Generation result = Await(request);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(result.status.message(), "the device failed");
  }
  Await(before);
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, AFailedBlockOperationFailsItsStep) {
  Start();
  RequestSpec spec{.prompt = std::vector<int32_t>(40, 6), .options = {.max_tokens = 2}};
  Generate(*engine_, spec);
  script_->block_errors = 1;
  spec.prompt.back() = 7;
  EXPECT_EQ(Generate(*engine_, spec).status.message(), "the copy failed");
  const int64_t zeroed = script_->zeroed;
  ExpectHealthy();
  EXPECT_GT(script_->zeroed, zeroed);  // nothing is trusted to be clear any more
}

// One that was admitted, and has to wait for its grammar, has a part of its prompt copied in a step
// that it has no tokens in.
TEST_F(EngineFaultsTest, AFailedBlockOperationFailsWhoCountsOnItInLaterSteps) {
  Start({.grammar_work = 1});
  const RequestSpec spec{.prompt = std::vector<int32_t>(41, 6), .options = {.max_tokens = 2}};
  RequestSpec constrained = spec;
  constrained.options.constraint = {AnswerConstraint::Kind::kRegex, "[a-c]{3}[a-z0-9]*"};
  Generate(*engine_, spec);
  script_->Pause();
  const int64_t forwards = script_->forwards;
  auto before = Submit({.prompt = {3}, .options = {.max_tokens = 5}});
  script_->AwaitForward(forwards + 1);
  auto in_step = Submit(spec), behind = Submit(constrained);
  script_->block_errors = 1;
  script_->Resume();
  EXPECT_EQ(Await(before).status.message(), "the copy failed");
  EXPECT_EQ(Await(in_step).status.message(), "the copy failed");
  EXPECT_EQ(Await(behind).status.message(), "the copy failed");
  ExpectHealthy();
}

TEST_F(EngineFaultsTest, MemoryThatRunsOutIsAnErrorForThoseUnderWay) {
  Start();
  for (int n : {1, 2, 5}) {
    script_->Pause();
    auto a = Submit(Long(1)), b = Submit(Long(2));
    script_->throw_in = n + 1;  // after the step that may have begun without b
    script_->Resume();
    for (const auto& request : {a, b}) {
      const Generation result = Await(request);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << result.status;
      EXPECT_EQ(TroubleOf(result.status), Trouble::kMemory);
      a->Cancel();
      b->Cancel();
    }
    ExpectHealthy();
  }
}

TEST_F(EngineFaultsTest, TheDestructorCancelsWhatIsLeft) {
  script_->step_time = absl::Seconds(60);
  Start({.max_sequences = 1});
  auto running = Submit(Long()), waiting = Submit(Long());
  script_->AwaitForward(1);
  engine_.reset();
  for (const auto& request : {running, waiting}) {
    ASSERT_TRUE(request->WaitFor(absl::ZeroDuration()));
    EXPECT_EQ(request->result().status.message(), "the engine was stopped");
  }
  running->Cancel();  // after its engine's end
}

TEST_F(EngineFaultsTest, NothingIsTakenAfterStop) {
  Start();
  engine_->Stop();
  engine_->Stop();
  EXPECT_EQ(engine_->Submit({.prompt = {1}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(EngineFaultsTest, TenThousandOpenCloseCycles) {
  script_->num_blocks = 4;
  for (int i = 0; i < 10000; ++i) {
    Start();
    if (i % 4 == 0) Submit({.prompt = {1}, .options = {.max_tokens = 1 + i % 3}});
    engine_.reset();
  }
  EXPECT_EQ(script_->violation(), "");
}

}  // namespace
}  // namespace lm

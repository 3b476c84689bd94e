#include "engine/runtime/memo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "engine/base/checkpoint.h"
#include "engine/base/monotonic_time.h"
#include "engine/runtime/local_generator.h"
#include "tests/engine/runtime/held_generator.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

// All of them, where they are few.
std::vector<MemoEntryInfo> EntriesOf(const Memo& memo, absl::string_view owner) {
  MemoRange all;
  return memo.Entries(owner, &all);
}

using testing::ElementsAre;

// A store in memory that tells what it was asked.
class FakeStore : public MemoStore {
 public:
  std::optional<RememberedAnswer> Find(const MemoKey& key) override {
    absl::MutexLock lock(&mutex);
    for (const auto& [known, answer] : kept) {
      if (known == key) return answer;
    }
    return std::nullopt;
  }
  void Add(const MemoKey& key, const RememberedAnswer& answer) noexcept override {
    absl::MutexLock lock(&mutex);
    pending.emplace_back(key, answer);
  }
  void Flush() noexcept override {
    absl::MutexLock lock(&mutex);
    for (auto& entry : pending) kept.push_back(std::move(entry));
    pending.clear();
  }
  size_t Kept() {
    absl::MutexLock lock(&mutex);
    return kept.size();
  }

  absl::Mutex mutex;
  std::vector<std::pair<MemoKey, RememberedAnswer>> pending, kept;
};

RequestSpec Spec(const std::string& prompt, const GenerationOptions& options = {}) {
  return {.prompt = Bytes(prompt), .text = prompt, .options = options};
}

class MemoTest : public testing::Test {
 protected:
  std::shared_ptr<Request> Submit(const std::string& prompt, const GenerationOptions& options = {},
                                  const std::string& owner = "me") {
    auto request = memo_.Submit(generator_, Spec(prompt, options), {owner, store_});
    EXPECT_TRUE(request.ok()) << request.status();
    return *request;
  }
  Generation Ask(const std::string& prompt, const GenerationOptions& options = {},
                 const std::string& owner = "me") {
    return Await(Submit(prompt, options, owner));
  }
  int64_t generated() const { return engine_->Stats().requests; }

  Memo memo_{1 << 20, 1 << 20};  // the engine's thread may tell it of what is cancelled
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_ = StartScripted(script_);
  LocalGenerator generator_{engine_};
  std::shared_ptr<FakeStore> store_;
};

TEST_F(MemoTest, EqualCallsAreOneGeneration) {
  const Generation first = Ask("hello");
  const Generation second = Ask("hello");
  EXPECT_EQ(generated(), 1);
  EXPECT_EQ(second.text, first.text);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.finish, first.finish);
  EXPECT_EQ(second.tokens_in, first.tokens_in);
  EXPECT_EQ(second.tokens_cached, second.tokens_in);
  EXPECT_EQ(second.tokens_out, first.tokens_out);
  EXPECT_EQ(memo_.Stats("", "").hits, 1);
  EXPECT_EQ(memo_.Stats("", "").misses, 1);
}

TEST_F(MemoTest, EverythingThatMattersTellsCallsApart) {
  const GenerationOptions plain{.max_tokens = 8};
  std::vector<GenerationOptions> others(6, plain);
  others[0].max_tokens = 9;
  others[1].repeat_penalty = 1.5;
  others[2].stop = {"x"};
  others[3].logit_bias = {{7, 1.0}};
  others[4].temperature = 1;
  others[5] = others[4];
  others[5].seed = 5;
  Ask("hello", plain);
  for (const GenerationOptions& other : others) Ask("hello", other);
  Ask("hellO", plain);
  Ask("hello", plain, "somebody else");
  EXPECT_EQ(generated(), 9);
}

TEST_F(MemoTest, WhatIsNotRememberedOfAnAnswerIsNotAnsweredFromMemory) {
  const Generation first = Ask("hello");
  RequestSpec spec = Spec("hello");
  spec.wants_logprob = true;
  auto request = memo_.Submit(generator_, spec, {"me"});
  ASSERT_TRUE(request.ok()) << request.status();
  const Generation second = Await(*request);
  EXPECT_EQ(second.text, first.text);
  EXPECT_LT(second.mean_logprob, 0);
}

// Whose name for all processes takes a pass over a file.
class NamedGenerator : public LocalGenerator {
 public:
  using LocalGenerator::LocalGenerator;
  std::string identity() const override { return "here"; }
  absl::StatusOr<std::string> lasting_identity() const override {
    ++asked;
    return lasting;
  }

  mutable int asked = 0;
  absl::StatusOr<std::string> lasting = "everywhere";
};

TEST_F(MemoTest, AModelsLastingNameIsAskedForOnlyWhereAnAnswerLasts) {
  NamedGenerator generator(engine_);
  auto ask = [&](const MemoAccess& access, const GenerationOptions& options = {}) {
    const auto request = memo_.Submit(generator, Spec("hello", options), access);
    return request.ok() ? Await(*request).status : request.status();
  };
  const auto store = std::make_shared<FakeStore>();
  EXPECT_TRUE(ask({"me"}).ok());
  EXPECT_TRUE(ask({"file", store}, {.cache = false}).ok());
  EXPECT_EQ(EntriesOf(memo_, "me").front().model, "here");
  EXPECT_EQ(generator.asked, 0);
  EXPECT_TRUE(ask({"file", store}).ok());
  EXPECT_EQ(generator.asked, 1);
  EXPECT_EQ(EntriesOf(memo_, "file").front().model, "everywhere");
  generator.lasting = absl::DataLossError("it has changed");
  EXPECT_TRUE(ask({"me"}).ok());
  EXPECT_EQ(ask({"file", store}), absl::DataLossError("it has changed"));
}

TEST_F(MemoTest, FirstChoicesAreRememberedToTheBit) {
  const GenerationOptions options{.max_tokens = 8,
                                  .constraint = {AnswerConstraint::Kind::kRegex, "[ab]"}};
  auto ask = [&](bool wants) {
    RequestSpec spec = Spec("?", options);
    spec.wants_first_choices = wants;
    auto request = memo_.Submit(generator_, spec, {"me"});
    EXPECT_TRUE(request.ok()) << request.status();
    return Await(*request);
  };
  const Generation first = ask(true);
  const Generation second = ask(true);
  EXPECT_EQ(generated(), 1);
  EXPECT_FALSE(first.remembered);
  EXPECT_TRUE(second.remembered);
  ASSERT_EQ(first.first_choices.size(), 2u);
  ASSERT_EQ(second.first_choices.size(), 2u);
  for (int i : {0, 1}) {
    EXPECT_EQ(second.first_choices[i].text, first.first_choices[i].text);
    EXPECT_EQ(second.first_choices[i].logprob, first.first_choices[i].logprob);
  }
  EXPECT_TRUE(ask(false).first_choices.empty());  // another question
  EXPECT_EQ(generated(), 2);
}

TEST_F(MemoTest, ALongConstraintTakesTheRoomOfADigest) {
  const std::string many(20000, 'x');
  auto answer = [](std::string regex) {
    return GenerationOptions{
        .max_tokens = 8, .constraint = {AnswerConstraint::Kind::kRegex, absl::StrCat("a|", regex)}};
  };
  Ask("hello", answer(many));
  Ask("hello", answer(many));
  EXPECT_EQ(generated(), 1);
  Ask("hello", answer(absl::StrCat(many, "y")));
  EXPECT_EQ(generated(), 2);
  for (const MemoEntryInfo& entry : EntriesOf(memo_, "me")) EXPECT_LT(entry.bytes, 2000);
}

TEST_F(MemoTest, WhatDoesNotMatterDoesNot) {
  Ask("hello", {.max_tokens = 8});
  GenerationOptions same{.max_tokens = 8, .top_k = 3, .seed = 9};  // nothing is drawn at 0
  same.on_error = OnError::kJson;
  Ask("hello", same);
  EXPECT_EQ(generated(), 1);
}

TEST_F(MemoTest, WhatIsNotToBeRememberedIsNot) {
  for (int i = 0; i < 2; ++i) {
    Ask("hello", {.cache = false});
    Ask("hello", {.temperature = 1, .cache = false});
  }
  EXPECT_EQ(generated(), 4);
  EXPECT_TRUE(EntriesOf(memo_, "me").empty());
}

TEST_F(MemoTest, OneUnderWayIsWaitedFor) {
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(Submit("hello"));
  script_->Resume();
  std::set<std::string> texts;
  int remembered = 0;
  for (const auto& request : requests) {
    const Generation answer = Await(request);
    texts.insert(answer.text);
    remembered += answer.remembered;
    EXPECT_EQ(answer.tokens_cached, answer.remembered ? answer.tokens_in : 0);
  }
  EXPECT_EQ(generated(), 1);
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_EQ(remembered, 4);
  EXPECT_EQ(memo_.Stats("", "").shared, 4);
}

TEST_F(MemoTest, OneUnderWayGoesBeforeBatchOnceAnInteractiveCallWaitsForIt) {
  auto engine = StartScripted(script_, {.max_sequences = 1});
  LocalGenerator generator(engine);
  auto submit = [&](const std::string& prompt, const GenerationOptions& options) {
    return memo_.Submit(generator, Spec(prompt, options), {"me"}).value();
  };
  for (const bool votes : {false, true}) {
    GenerationOptions options{.max_tokens = 8};
    if (votes) options.vote = 2;
    script_->Pause();
    std::vector<std::shared_ptr<Request>> batch;
    for (int i = 0; i < 20; ++i) {
      GenerationOptions longest{.max_tokens = 64 + votes};
      longest.logit_bias = {{kImEnd, -1000}};
      batch.push_back(submit(std::to_string(i), longest));
    }
    const auto last = submit("hello", options);
    options.priority = Priority::kInteractive;
    const auto joined = submit("hello", options);
    script_->most_forwards = script_->forwards + 200;  // of the batch's more than a thousand
    script_->Resume();
    const std::vector<Generation> answers = {Await(joined), Await(last)};
    EXPECT_EQ(answers[0].text, answers[1].text);
    script_->most_forwards = std::numeric_limits<int64_t>::max();
    for (const auto& other : batch) Await(other);
  }
  EXPECT_EQ(memo_.Stats("", "").shared, 2);
}

TEST_F(MemoTest, OneWhoLeavesDoesNotDisturbTheOthers) {
  script_->Pause();
  const auto leaves = Submit("hello");
  const auto stays = Submit("hello");
  leaves->Cancel();
  EXPECT_TRUE(absl::IsCancelled(Await(leaves).status));
  script_->Resume();
  const Generation answer = Await(stays);
  EXPECT_TRUE(answer.status.ok());
  EXPECT_FALSE(answer.remembered);
  EXPECT_EQ(generated(), 1);
}

TEST_F(MemoTest, OneUnderWayElsewhereIsNotWaitedFor) {
  script_->Pause();
  auto other_script = std::make_shared<Script>();
  std::shared_ptr<Engine> other_engine = StartScripted(other_script);
  LocalGenerator other(other_engine);
  const auto theirs = Submit("hello");
  const auto ours = memo_.Submit(other, Spec("hello"), {"me", store_});
  ASSERT_TRUE(ours.ok());
  const Generation answer = Await(*ours);  // while the first engine stands still
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(other_engine->Stats().requests, 1);
  script_->Resume();
  EXPECT_EQ(Await(theirs).text, answer.text);
}

TEST_F(MemoTest, TheLastOneToLeaveStopsIt) {
  script_->Pause();
  const auto one = Submit("hello");
  const auto two = Submit("hello");
  script_->AwaitForward(1);
  one->Cancel();
  two->Cancel();
  EXPECT_TRUE(absl::IsCancelled(Await(two).status));
  script_->Resume();
  // Whoever comes now does not join what is being stopped.
  EXPECT_TRUE(Ask("hello").status.ok());
  EXPECT_GE(script_->cancelled_forwards, 1);
}

// Requests that are over before they have been submitted, or refused; something else may happen
// meanwhile.
class HastyGenerator : public LocalGenerator {
 public:
  using LocalGenerator::LocalGenerator;

  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener) override {
    ++submitted;
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    if (!refusal.ok()) {
      absl::Status status = refusal;
      if (refused) refused();
      return status;
    }
    last = std::make_shared<Request>(std::move(spec));
    last->set_listener(std::move(listener));
    if (finishes) last->Finish({.text = "at once", .finish = FinishReason::kStop, .tokens = {1}});
    return last;
  }

  int submitted = 0;
  bool finishes = true;
  absl::Status refusal;
  std::function<void()> meanwhile, refused;
  std::shared_ptr<Request> last;
};

TEST_F(MemoTest, WhatIsOverBeforeItIsSubmittedIsAnsweredAndRemembered) {
  HastyGenerator hasty(engine_);
  for (const int64_t timeout_ms : {0, 60'000}) {
    for (const int32_t votes : {0, 2}) {
      GenerationOptions options{.max_tokens = 5 + votes, .timeout_ms = timeout_ms};
      options.vote = votes;
      for (const bool remembered : {false, true}) {
        const auto request = memo_.Submit(hasty, Spec(std::to_string(timeout_ms), options), {"me"});
        ASSERT_TRUE(request.ok()) << request.status();
        EXPECT_EQ(Await(*request).text, "at once");
        EXPECT_EQ(Await(*request).remembered, remembered);
      }
    }
  }
  EXPECT_EQ(hasty.submitted, 6);
}

TEST_F(MemoTest, OneMayJoinAndLeaveWhileItIsSubmitted) {
  HastyGenerator hasty(engine_);
  auto submit = [&](Priority priority) {
    return memo_.Submit(hasty, Spec("hello", {.priority = priority}), {"me"});
  };
  absl::StatusOr<std::shared_ptr<Request>> joined;
  hasty.meanwhile = [&] { joined = submit(Priority::kInteractive); };
  const auto first = submit(Priority::kBatch);
  EXPECT_EQ(Await(first.value()).text, "at once");
  EXPECT_EQ(Await(joined.value()).text, "at once");
  EXPECT_EQ(hasty.submitted, 1);

  hasty.finishes = false;
  memo_.Forget("me", memo_.last_id());
  hasty.meanwhile = [&] { joined = submit(Priority::kInteractive); };
  const auto slow = submit(Priority::kBatch);
  EXPECT_EQ(hasty.last->priority(), Priority::kInteractive);
  (*slow)->Cancel();
  EXPECT_FALSE(hasty.last->abandoned());
  (*joined)->Cancel();
  EXPECT_TRUE(hasty.last->abandoned());
  EXPECT_TRUE(absl::IsCancelled(Await(*joined).status));

  // A refusal is everybody's who has joined from within.
  hasty.meanwhile = [&] {
    joined = submit(Priority::kBatch);
    hasty.refusal = absl::UnavailableError("no room");
  };
  EXPECT_EQ(submit(Priority::kBatch).status().message(), "no room");
  EXPECT_EQ(Await(joined.value()).status.message(), "no room");
  hasty.refusal = absl::OkStatus();
  hasty.finishes = true;
  EXPECT_EQ(Await(submit(Priority::kBatch).value()).text, "at once");
}

TEST_F(MemoTest, WhoComesWhileItIsSubmittedIsNotRefusedForTheOther) {
  HastyGenerator hasty(engine_);
  absl::StatusOr<std::shared_ptr<Request>> joined;
  std::thread other;
  auto ask_elsewhere = [&](const std::string& prompt) {
    absl::Notification begun;
    other = std::thread([&begun, &joined, &hasty, this, prompt] {
      begun.Notify();
      joined = memo_.Submit(hasty, Spec(prompt), {"me"});
    });
    begun.WaitForNotification();
    absl::SleepFor(absl::Milliseconds(30));
  };
  hasty.meanwhile = [&] {
    hasty.refusal = absl::ResourceExhaustedError("the queue is full");
    ask_elsewhere("hello");
    EXPECT_EQ(hasty.submitted, 1);
  };
  // There is room again when the other one asks, who has waited for the first one to be refused.
  hasty.refused = [&] { hasty.refusal = absl::OkStatus(); };
  EXPECT_TRUE(absl::IsResourceExhausted(memo_.Submit(hasty, Spec("hello"), {"me"}).status()));
  other.join();
  EXPECT_EQ(Await(joined.value()).text, "at once");
  EXPECT_EQ(hasty.submitted, 2);
  const MemoStats stats = memo_.Stats(hasty.info().identity, "");
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.shared, 0);

  // Once it is submitted, it is joined.
  hasty.finishes = false;
  hasty.meanwhile = [&] { ask_elsewhere("again"); };
  const auto first = memo_.Submit(hasty, Spec("again"), {"me"});
  other.join();
  hasty.last->Finish({.text = "later", .finish = FinishReason::kStop, .tokens = {1}});
  EXPECT_EQ(Await(first.value()).text, "later");
  EXPECT_EQ(Await(joined.value()).text, "later");
  EXPECT_EQ(hasty.submitted, 3);
}

TEST_F(MemoTest, WhoWaitsForASubmissionCanBeInterrupted) {
  HastyGenerator hasty(engine_);
  absl::Status waited;
  hasty.meanwhile = [&] {
    std::thread other([&] {
      const CheckpointScope scope([] { return true; });
      waited = memo_.Submit(hasty, Spec("hello"), {"me"}).status();
    });
    other.join();
  };
  EXPECT_EQ(Await(memo_.Submit(hasty, Spec("hello"), {"me"}).value()).text, "at once");
  EXPECT_TRUE(absl::IsCancelled(waited)) << waited;
}

// Its answer came between the look at the memo and that at the file.
TEST_F(MemoTest, WhatIsAnsweredWhileTheStoreIsAskedIsNotGeneratedAgain) {
  class SlowStore : public FakeStore {
   public:
    std::optional<RememberedAnswer> Find(const MemoKey& key) override {
      std::optional<RememberedAnswer> found = FakeStore::Find(key);
      if (meanwhile) std::exchange(meanwhile, nullptr)();
      return found;
    }
    std::function<void()> meanwhile;
  };
  const auto slow = std::make_shared<SlowStore>();
  store_ = slow;
  slow->meanwhile = [&] { Ask("hello"); };
  EXPECT_TRUE(Ask("hello").remembered);
  EXPECT_EQ(generated(), 1);
}

// Closing a file is nothing for the engine's thread.
TEST_F(MemoTest, TheStoreGoesWithTheLastOneWhoLeaves) {
  store_ = std::make_shared<FakeStore>();
  const std::weak_ptr<FakeStore> store = store_;
  script_->Pause();
  for (const int64_t timeout_ms : {0, 60'000}) {
    auto request = Submit("hello", {.max_tokens = 1000, .timeout_ms = timeout_ms});
    request->Cancel();
    EXPECT_TRUE(absl::IsCancelled(Await(request).status));
  }
  store_.reset();
  EXPECT_TRUE(store.expired());
  script_->Resume();
}

TEST_F(MemoTest, ErrorsAreNotRemembered) {
  script_->error_token = 'e';
  EXPECT_FALSE(Ask("e").status.ok());
  EXPECT_FALSE(Ask("e").status.ok());
  EXPECT_EQ(generated(), 2);
  EXPECT_TRUE(EntriesOf(memo_, "me").empty());
  EXPECT_FALSE(memo_.Submit(generator_, {.prompt = {}}, {"me"}).ok());
  EXPECT_FALSE(memo_.Submit(generator_, {.prompt = {}}, {"me"}).ok());
}

TEST_F(MemoTest, AnErrorThatManyWaitForIsPaidOnce) {
  script_->error_token = 'e';
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(Submit("e"));
  script_->Resume();
  int32_t paid = 0;
  for (const auto& request : requests) {
    const Generation answer = Await(request);
    EXPECT_FALSE(answer.status.ok());
    paid += !answer.remembered;
    // What is said of a row is the same in each of them.
    EXPECT_GT(answer.tokens_in, 0);
    EXPECT_EQ(answer.tokens_in, Await(requests[0]).tokens_in);
    EXPECT_EQ(answer.tokens_out, Await(requests[0]).tokens_out);
  }
  EXPECT_EQ(paid, 1);
}

TEST_F(MemoTest, ATimeoutIsItsOwnersOnly) {
  script_->step_time = absl::Milliseconds(5);
  script_->Pause();
  const auto patient = Submit("hello");
  const auto hurried = Submit("hello", {.timeout_ms = 1});
  script_->Resume();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(hurried).status));
  EXPECT_TRUE(Await(patient).status.ok());
}

TEST_F(MemoTest, EqualCallsWithADeadlineAreOneGeneration) {
  const GenerationOptions options{.max_tokens = 8, .timeout_ms = 60'000};
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(Submit("hello", options));
  requests[0]->Cancel();  // which disturbs nobody
  script_->Resume();
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(Await(requests[i]).status.ok());
  EXPECT_EQ(generated(), 1);
  EXPECT_EQ(memo_.Stats("", "").shared, 4);
}

// All who wait for it have had its time of the model; it is paid once, and not remembered.
TEST_F(MemoTest, ADeadlineIsThatOfAllWhoShareIt) {
  script_->step_time = absl::Milliseconds(5);
  for (const int32_t votes : {0, 2}) {
    const int64_t before = generated();
    script_->Pause();
    GenerationOptions options{.max_tokens = 64 + votes, .timeout_ms = 1};
    options.vote = votes;
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < 3; ++i) requests.push_back(Submit("hello", options));
    script_->Resume();
    for (const auto& request : requests) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(Await(request).status));
    }
    EXPECT_EQ(generated(), before + std::max(votes, 1));
    options.timeout_ms = 60'000;
    EXPECT_FALSE(absl::IsDeadlineExceeded(Ask("hello", options).status));
  }
}

// Who waits has no deadline of his own request to look at, but that of the one he waits for, which
// its step does not end for.
TEST_F(MemoTest, ADeadlineHoldsWithinAStep) {
  HeldGenerator held;
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 2; ++i) {
    requests.push_back(memo_.Submit(held, Spec("hello", {.timeout_ms = 1}), {"me"}).value());
  }
  ASSERT_EQ(held.asked.size(), 1u);
  EXPECT_FALSE(requests[1]->WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(held.asked[0]->abandoned());
  held.asked[0]->set_deadline(MonotonicTime::Now());
  EXPECT_FALSE(requests[1]->WaitFor(absl::ZeroDuration()));
  ASSERT_TRUE(held.asked[0]->abandoned());
  held.asked[0]->Finish({.status = held.asked[0]->AbandonedStatus()});
  for (const auto& request : requests) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(Await(request).status));
  }
}

TEST_F(MemoTest, KeepsWithinItsBytes) {
  Memo small(8000, 0);
  auto ask = [&](int i) {
    auto request = small.Submit(generator_, Spec(std::to_string(i)), {"me"});
    return Await(*request);
  };
  for (int i = 0; i < 100; ++i) {
    ask(i);
    ask(0);  // used all the time: it stays
    EXPECT_LE(small.bytes().answers, 8000);
  }
  EXPECT_GT(EntriesOf(small, "me").size(), 1u);
  EXPECT_EQ(EntriesOf(small, "me").front().hits, 100);
}

// One that asks for more rows than there is room for, and another that asks for the same.
TEST_F(MemoTest, TheSameRowsInTheSameOrderAreFoundAgainAsFarAsThereIsRoom) {
  constexpr int64_t kMost = 40'000;
  for (const bool embeds : {false, true}) {
    Memo small(kMost, kMost);
    const auto scan = [&](const MemoAccess& access) {
      int found = 0;
      for (int i = 1000; i < 1300; ++i) {
        const std::string text = std::to_string(i);
        RequestSpec spec = Spec(text, {.max_tokens = 1});
        if (embeds) spec.embed = Pooling::kMean;
        found += Await(small.Submit(generator_, std::move(spec), access).value()).remembered;
      }
      return found;
    };
    const MemoAccess first = {.owner = "me", .scan = std::make_shared<MemoScan>()};
    const MemoAccess second = {.owner = "me", .scan = std::make_shared<MemoScan>()};
    EXPECT_EQ(scan(first), 0);
    const Memo::Bytes bytes = small.bytes();
    EXPECT_GT(embeds ? bytes.vectors : bytes.answers, kMost * 9 / 10);
    const auto kept = static_cast<int>(EntriesOf(small, "me").size());
    ASSERT_LT(kept, 200);
    EXPECT_EQ(first.scan->num_forgotten, 300 - kept);
    EXPECT_GE(scan(second), kept - 1);
    EXPECT_EQ(small.Stats("", "").misses, 600 - small.Stats("", "").hits);
  }
}

TEST_F(MemoTest, EntriesAreTheirOwnersAndCanBeForgotten) {
  Ask("hello");
  Ask("hello");
  Ask("bye", {}, "you");
  ASSERT_EQ(EntriesOf(memo_, "me").size(), 1u);
  const MemoEntryInfo entry = EntriesOf(memo_, "me")[0];
  EXPECT_EQ(entry.hits, 1);
  EXPECT_GT(entry.tokens, 5);
  EXPECT_EQ(entry.options, R"({"max_tokens":256})");
  memo_.Forget("you", entry.id);
  EXPECT_EQ(EntriesOf(memo_, "me").size(), 1u);
  memo_.Forget("me", entry.id);
  EXPECT_TRUE(EntriesOf(memo_, "me").empty());
  Ask("hello");
  EXPECT_EQ(generated(), 3);
}

TEST_F(MemoTest, AStoreIsAskedAndToldBeforeAnybodyHasTheAnswer) {
  store_ = std::make_shared<FakeStore>();
  const std::string text = Ask("hello").text;
  ASSERT_EQ(store_->kept.size(), 1u);
  EXPECT_EQ(store_->kept[0].second.text, text);
  EXPECT_EQ(store_->kept[0].first.prompt, "hello");
  EXPECT_EQ(store_->kept[0].second.tokens_in, 5);
  // Another process begins with what the store has.
  Memo other(1 << 20, 1 << 20);
  auto request = other.Submit(generator_, Spec("hello"), {"me", store_});
  EXPECT_EQ(Await(*request).text, text);
  EXPECT_EQ(generated(), 1);
  EXPECT_EQ(other.Stats("", "").hits, 1);
}

// A text that is embedded.
RequestSpec Embedded(const std::string& text, Pooling pooling = Pooling::kMean,
                     const GenerationOptions& options = {}) {
  RequestSpec spec = Spec(text, options);
  spec.embed = pooling;
  return spec;
}

TEST_F(MemoTest, EqualTextsAreEmbeddedOnce) {
  store_ = std::make_shared<FakeStore>();
  const Generation computed = Generate(*engine_, Embedded("hello"));
  ASSERT_TRUE(computed.status.ok()) << computed.status;
  ASSERT_FALSE(computed.embedding.empty());
  const auto embed = [&](RequestSpec spec, const std::string& owner = "me") {
    return Await(memo_.Submit(generator_, std::move(spec), {owner, store_}).value());
  };
  const Generation first = embed(Embedded("hello"));
  // Nothing of how answers are generated tells vectors apart.
  const Generation second = embed(Embedded("hello", Pooling::kMean, {.max_tokens = 3, .seed = 9}));
  EXPECT_EQ(generated(), 2);
  EXPECT_FALSE(first.remembered);
  EXPECT_TRUE(second.remembered);
  EXPECT_EQ(first.embedding, computed.embedding);
  EXPECT_EQ(second.embedding, computed.embedding);
  EXPECT_EQ(second.tokens_in, first.tokens_in);
  EXPECT_EQ(second.tokens_cached, first.tokens_in);
  EXPECT_EQ(second.tokens_out, 0);
  EXPECT_EQ(memo_.Stats("", "").hits, 1);
  EXPECT_EQ(memo_.Stats("", "").misses, 1);
  // Others are others' or another thing.
  EXPECT_FALSE(embed(Embedded("hello"), "you").remembered);
  EXPECT_FALSE(embed(Embedded("hello", Pooling::kLast)).remembered);
  EXPECT_FALSE(embed(Embedded("hellO")).remembered);
  EXPECT_FALSE(embed(Embedded("hello", Pooling::kMean, {.cache = false})).remembered);
  EXPECT_FALSE(embed(Spec("hello")).remembered);
  EXPECT_EQ(store_->Kept(), 1u);  // the answer
}

TEST_F(MemoTest, ATextThatIsBeingEmbeddedIsWaitedFor) {
  script_->Pause();
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(memo_.Submit(generator_, Embedded("hello"), {"me"}).value());
  }
  requests[0]->Cancel();  // which disturbs nobody
  script_->Resume();
  EXPECT_TRUE(absl::IsCancelled(Await(requests[0]).status));
  const std::vector<float> embedding = Generate(*engine_, Embedded("hello")).embedding;
  for (int i = 1; i < 5; ++i) EXPECT_EQ(Await(requests[i]).embedding, embedding);
  EXPECT_EQ(generated(), 2);
  EXPECT_EQ(memo_.Stats("", "").shared, 4);
}

TEST_F(MemoTest, VectorsArePartOfNoOnesButTheirOwnBytes) {
  constexpr int64_t kMost = 8000;
  Memo small(1 << 20, kMost);
  const auto ask = [&](RequestSpec spec) {
    return Await(small.Submit(generator_, std::move(spec), {"me"}).value());
  };
  ask(Spec("an answer"));
  const int64_t answers = small.bytes().answers;
  for (int i = 0; i < 200; ++i) {
    ask(Embedded(std::to_string(i)));
    EXPECT_TRUE(ask(Embedded("0")).remembered || i == 0);  // used all the time: it stays
    EXPECT_LE(small.bytes().vectors, kMost);
  }
  EXPECT_EQ(small.bytes().answers, answers);
  EXPECT_TRUE(ask(Spec("an answer")).remembered);
  EXPECT_FALSE(ask(Embedded("1")).remembered);
  const std::vector<MemoEntryInfo> entries = EntriesOf(small, "me");
  ASSERT_GT(entries.size(), 2u);
  EXPECT_FALSE(entries[0].is_vector);
  EXPECT_TRUE(entries[1].is_vector);
  EXPECT_EQ(entries[1].options, R"({"embed":"mean"})");
  for (const MemoEntryInfo& entry : entries) small.Forget("me", entry.id);
  EXPECT_EQ(small.bytes().vectors, 0);
  EXPECT_EQ(small.bytes().answers, 0);
  EXPECT_FALSE(ask(Embedded("0")).remembered);
}

// Whose end may have been cut off.
TEST_F(MemoTest, ATextThatWasCutIsAnotherWhereItIsCutOtherwise) {
  const auto key = [](int32_t context, const std::string& text, OnOverflow how) {
    auto script = std::make_shared<Script>();
    script->context_length = context;
    const LocalGenerator generator(StartScripted(script));
    const auto spec =
        generator.Prepare({.task = Task::kEmbed, .prompt = text, .options = {.on_overflow = how}});
    EXPECT_TRUE(spec.ok()) << spec.status();
    return MakeMemoKey(generator, *spec, "me", false).value().value();
  };
  using enum OnOverflow;
  const std::string text(100, 'a');
  EXPECT_NE(key(64, text, kTruncateEnd), key(64, text, kTruncateStart));
  EXPECT_NE(key(64, text, kTruncateEnd), key(96, text, kTruncateEnd));
  EXPECT_EQ(key(128, text, kTruncateEnd), key(192, text, kTruncateEnd));
  EXPECT_EQ(key(128, text, kError), key(192, text, kError));
  EXPECT_EQ(key(128, "a", kError).prompt, R"(["a"])");
}

// A store is a file that anybody may have written.
TEST_F(MemoTest, AStoredAnswerThatCannotBeOneIsGeneratedAnew) {
  const GenerationOptions yes_or_no{
      .max_tokens = 8, .constraint = {AnswerConstraint::Kind::kChoices, R"(["yes","no"])"}};
  const GenerationOptions stops{.max_tokens = 8, .stop = {"ab"}};
  const GenerationOptions plain{.max_tokens = 3};
  struct Case {
    GenerationOptions options;
    std::string text;
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kStop;
    bool possible = false;
  };
  using enum FinishReason;
  const std::vector<Case> cases = {
      {plain, "abc", Bytes("abc"), kLength, true},
      {plain, "ab", Bytes("ab"), kStop, true},
      {plain, "", {}, kStop, true},
      {plain, "abd", Bytes("abc"), kLength},             // other tokens than its text
      {plain, "ab", Bytes("ab"), kLength},               // ends too early
      {plain, "abcd", Bytes("abcd"), kLength},           // too long
      {plain, "ab", Bytes("ab"), kContext},              // the context is not full
      {plain, "ab", Bytes("ab"), kError},                // an error
      {plain, "", {0x40000000}},                         // no token
      {plain, "", {-1}},                                 //
      {plain, "", {kVocabSize}},                         //
      {plain, "", {kImEnd}},                             // ends an answer and is no part of it
      {plain, "\xff", {0xff}},                           // no text
      {plain, "\xef\xbf\xbd", {0xff}, kStop, true},      // as the engine would write it
      {stops, "x", Bytes("xab"), kStop, true},           //
      {stops, "xab", Bytes("xab"), kStop},               // the stop string is no part of it
      {stops, "x", Bytes("xabc"), kStop},                // nothing comes after it
      {stops, "x", Bytes("xab"), kLength},               //
      {yes_or_no, "yes", Bytes("yes"), kStop, true},     //
      {yes_or_no, "no", Bytes("no"), kStop, true},       //
      {yes_or_no, "maybe", Bytes("maybe"), kStop},       // no choice
      {yes_or_no, "ye", Bytes("ye"), kStop},             // half of one
      {yes_or_no, "", {}, kStop},                        //
      {yes_or_no, "yes", {'y', 'e', kBos, 's'}, kStop},  // a control token within
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.text << " " << testing::PrintToString(c.tokens));
    store_ = std::make_shared<FakeStore>();
    Ask("hello", c.options, "keeper");
    ASSERT_EQ(store_->kept.size(), 1u);
    store_->kept[0].first.owner = "me";
    store_->kept[0].second = {c.text, c.finish, c.tokens,
                              {},     5,        static_cast<int32_t>(c.tokens.size())};
    const int64_t before = generated();
    Memo other(1 << 20, 1 << 20);
    auto request = other.Submit(generator_, Spec("hello", c.options), {"me", store_});
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(Await(*request).remembered, c.possible);
    EXPECT_EQ(generated(), before + (c.possible ? 0 : 1));
    memo_.Forget("keeper", EntriesOf(memo_, "keeper")[0].id);
  }
}

TEST_F(MemoTest, StoredChoicesAreThoseOfTheConstraint) {
  const RequestSpec spec{
      .prompt = Bytes("?"),
      .options = {.max_tokens = 8,
                  .constraint = {AnswerConstraint::Kind::kChoices, R"(["yes","no"])"}},
      .wants_first_choices = true};
  const std::vector<FirstChoice> good = {{"n", -1}, {"y", -2}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<FirstChoice>> bad = {
      {},
      {{"n", -1}},
      {{"y", -2}, {"n", -1}},
      {{"n", -1}, {"y", -2}, {"z", -3}},
      {{"n", -1}, {"no", -2}},
      {{"n", -1}, {"", -2}},
      {{"n", -1}, {std::string(1, '\0'), -2}},
      {{"n", -1}, {"\xff", -2}},
      {{"n", -1}, {"y", nan}},
      {{"n", -1}, {"y", -std::numeric_limits<float>::infinity()}},
      {{"n", -1}, {"y", 0.5}},
      {{"n", -0.1f}, {"y", -0.1f}},  // more than one together
  };
  auto can_be = [&](const RequestSpec& asked, const std::vector<FirstChoice>& choices) {
    return generator_.CanBeAnswer(asked, {"no", FinishReason::kStop, Bytes("no"), choices, 1, 2});
  };
  EXPECT_TRUE(can_be(spec, good));
  for (const auto& choices : bad) EXPECT_FALSE(can_be(spec, choices));
  RequestSpec without = spec;
  without.wants_first_choices = false;
  EXPECT_TRUE(can_be(without, {}));
  EXPECT_FALSE(can_be(without, good));
}

TEST_F(MemoTest, NoStoredAnswerSaysASuppressedToken) {
  script_->suppressed = {'y'};
  const LocalGenerator generator(StartScripted(script_));
  const RequestSpec spec{.prompt = Bytes("?"), .options = {.max_tokens = 8}};
  auto can_say = [&](const std::string& text) {
    const auto length = static_cast<int32_t>(text.size());
    return generator.CanBeAnswer(spec, {text, FinishReason::kStop, Bytes(text), {}, 1, length});
  };
  EXPECT_TRUE(can_say("no"));
  EXPECT_FALSE(can_say("why"));
  RequestSpec chooses = spec;
  chooses.options.constraint = {AnswerConstraint::Kind::kChoices, R"(["yes","no","both"])"};
  chooses.wants_first_choices = true;
  auto can_choose = [&](const std::vector<FirstChoice>& choices) {
    return generator.CanBeAnswer(chooses, {"no", FinishReason::kStop, Bytes("no"), choices, 1, 2});
  };
  EXPECT_TRUE(can_choose({{"b", -1}, {"n", -1}}));
  EXPECT_FALSE(can_choose({{"b", -1}, {"n", -1}, {"y", -2}}));
}

// Who waits for a generation of his own can be faster than the engine's thread, and who finds an
// answer in memory faster than who waited for it.
TEST_F(MemoTest, NobodyHasAnAnswerBeforeItsStoreHas) {
  store_ = std::make_shared<FakeStore>();
  for (size_t i = 0; i < 50; ++i) {
    Ask(std::to_string(i), {.max_tokens = 2, .timeout_ms = 60000});
    EXPECT_EQ(store_->Kept(), i + 1);
  }
  const auto slow = Submit("hello");
  while (EntriesOf(memo_, "me").size() < 51) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(store_->Kept(), 50u);
  EXPECT_TRUE(Ask("hello").remembered);
  EXPECT_EQ(store_->Kept(), 51u);
  Await(slow);
}

// So that who lists them holds nobody up, and those that come meanwhile make it no longer.
TEST_F(MemoTest, EntriesComeInPages) {
  Memo memo(int64_t{64} << 20, 0);
  const auto add = [&](const std::string& owner, int i, const std::string& text) {
    memo.Add({.owner = owner, .model = "m", .options = "{}", .prompt = std::to_string(i)},
             {.text = text}, {});
  };
  for (int i = 0; i < 600; ++i) {
    add("me", i, "wet");
    add("you", i, "dry");
  }
  for (int i = 600; i < 605; ++i) add("me", i, std::string(MemoPage::kBytes / 2, 'x'));
  MemoRange range = {.last = memo.last_id()};
  std::vector<std::string> prompts;
  size_t num_pages = 0;
  while (!range.done()) {
    const std::vector<MemoEntryInfo> page = memo.Entries("me", &range, /*texts=*/true);
    EXPECT_LE(page.size(), MemoPage::kEntries / 2);
    for (const MemoEntryInfo& entry : page) prompts.push_back(entry.prompt);
    ++num_pages;
    add("me", 1000 + static_cast<int>(num_pages), "new");
  }
  ASSERT_EQ(prompts.size(), 605u);
  for (int i = 0; i < 605; ++i) EXPECT_EQ(prompts[i], std::to_string(i));
  EXPECT_EQ(num_pages, 4u + 3);  // the last ones end for their bytes
}

TEST_F(MemoTest, ManyThreadsAskTheSameAndCancelAtRandom) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 200; ++i) {
        auto request = Submit(std::to_string(i % 7), {.max_tokens = 4});
        if ((i + t) % 3 == 0) request->Cancel();
        const Generation result = Await(request);
        EXPECT_TRUE(result.status.ok() || absl::IsCancelled(result.status)) << result.status;
        if (i % 50 != 0) continue;
        for (const MemoEntryInfo& entry : EntriesOf(memo_, "me")) {
          memo_.Forget("me", entry.id);
          break;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lm

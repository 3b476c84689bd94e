// A constraint that is hard to follow delays its own answer and nobody else's: counted in work, so
// that no machine is too slow for these tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"
#include "engine/grammar/state_machine.h"
#include "engine/runtime/constraint_cache.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/scheduler.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;
using testing::HasSubstr;

constexpr int64_t kStepWork = 1'000'000;

// For one token each takes many times kStepWork, the first a thousand times as much.
std::vector<AnswerConstraint> HardConstraints() {
  std::string rules = "root ::= r0";
  for (int i = 1; i < 900; ++i) absl::StrAppend(&rules, " | r", i);
  for (int i = 0; i < 900; ++i) {
    absl::StrAppend(&rules, "\nr", i, " ::= [a-z] r", (i * 7 + 1) % 900, "? [a-z]{0,40}");
  }
  return {
      {Kind::kRegex, "((([^\"4]*){100}c([^\"4]*){100}){10}){100}"},
      {Kind::kRegex, "((.{0,30}a){0,30}.{0,30}b){0,30}"},
      {Kind::kGrammar, rules},
      {Kind::kSchema, R"({"type": "string", "pattern": "^((.{0,30}a){0,30}.{0,30}b){0,30}$"})"},
  };
}

class GrammarTurnsTest : public testing::Test {
 protected:
  std::unique_ptr<Sequence> MakeSequence(std::vector<int32_t> prompt, int32_t max_tokens,
                                         const AnswerConstraint& constraint = {},
                                         Priority priority = Priority::kBatch) {
    RequestSpec spec{.prompt = std::move(prompt), .options = {.max_tokens = max_tokens}};
    spec.options.priority = priority;
    if (constraint.kind != Kind::kNone) spec.constraint = constraints_.Get(constraint).value();
    requests_.push_back(std::make_shared<Request>(std::move(spec)));
    return std::make_unique<Sequence>(requests_.back(), &model_->tokenizer(), 100000);
  }

  // A step in which every token that is sampled is one that is allowed. The work of grammars in it.
  int64_t Step(Scheduler* scheduler) {
    planned_.clear();
    auto end = [&](Sequence* sequence, const absl::StatusOr<std::optional<FinishReason>>& end) {
      if (!end.ok() || end->has_value()) scheduler->Finish(sequence, /*keep=*/end.ok());
    };
    for (const auto& followed : scheduler->FollowGrammars()) end(followed.sequence, followed.end);
    const StepPlan plan = scheduler->Schedule();
    for (const StepEntry& entry : plan.entries) {
      scheduler->Commit(entry, entry.num_tokens);
      planned_.push_back(&entry.sequence->request());
      if (!entry.samples) continue;
      absl::StatusOr<int32_t> token = 0;
      if (const auto sample = entry.sequence->NextSample(); sample.ok()) {
        token = SampleToken(std::vector<float>(kVocabSize), *sample);
      } else {
        token = sample.status();
      }
      end(entry.sequence,
          entry.sequence->TakeSample(token, {}, MonotonicTime::Now(), scheduler->grammar_work()));
    }
    EXPECT_TRUE(scheduler->CheckIntegrity().ok());
    return kStepWork - *scheduler->grammar_work();
  }

  bool Planned(size_t request) const {
    return std::count(planned_.begin(), planned_.end(), requests_[request].get()) > 0;
  }

  std::unique_ptr<Model> model_ = MakeScriptedModel(std::make_shared<Script>());
  ConstraintCache constraints_{&model_->tokenizer()};
  std::vector<std::shared_ptr<Request>> requests_;
  std::vector<const Request*> planned_;
};

TEST_F(GrammarTurnsTest, OthersDecodeInEveryStepAndNoStepTakesMoreThanItsShare) {
  for (const AnswerConstraint& hard : HardConstraints()) {
    SCOPED_TRACE(hard.text.substr(0, 60));
    requests_.clear();
    Scheduler scheduler({.cache = CacheOf(1000), .grammar_work = kStepWork});
    scheduler.Add(MakeSequence({1, 2, 3}, 100000));
    scheduler.Add(MakeSequence({4, 5, 6}, 12, hard));
    scheduler.Add(MakeSequence({7, 8, 9}, 100000, {Kind::kRegex, "[a-c]{3}[a-z0-9]*"}));
    Step(&scheduler);
    int sat_out = 0;
    for (int step = 0; step < 300 && scheduler.num_running() == 3; ++step) {
      EXPECT_LE(Step(&scheduler), kStepWork + StateMachine::kMaxStateWork);
      EXPECT_TRUE(Planned(0));
      // One that is easy to follow sits out a step where the other has spent all, never two.
      sat_out += !Planned(2);
    }
    EXPECT_LT(sat_out, 30);
    scheduler.TakeIf([](const Sequence&) { return true; });
  }
}

TEST_F(GrammarTurnsTest, ThoseThatHadTheLeastComeFirst) {
  Scheduler scheduler({.cache = CacheOf(1000), .grammar_work = kStepWork});
  const std::vector<AnswerConstraint> hard = HardConstraints();
  for (int i = 0; i < 20; ++i) {
    AnswerConstraint own = hard[0];
    absl::StrAppend(&own.text, "|", i);
    scheduler.Add(MakeSequence({i + 1, 2, 3}, 100000, own));
  }
  for (int step = 0; step < 20; ++step) Step(&scheduler);
  ASSERT_GT(scheduler.num_following(), 10);
  // Not behind all of those.
  scheduler.Add(MakeSequence({100, 2, 3}, 100000, {Kind::kRegex, "[a-c]{3}[a-z0-9]*"}));
  int steps = 0;
  do {
    Step(&scheduler);
    ASSERT_LT(++steps, 10);
  } while (requests_.back() == nullptr || !Planned(20) || scheduler.num_running() < 21);
  scheduler.TakeIf([](const Sequence&) { return true; });
}

// Before all of batch that is as hard to follow, some of which goes on all the same.
TEST_F(GrammarTurnsTest, AnInteractiveOneHasAsManyTurnsAsItNeeds) {
  int steps_alone = 0;
  for (const int others : {0, 20}) {
    requests_.clear();
    Scheduler scheduler({.cache = CacheOf(1000), .grammar_work = kStepWork / 5});
    auto add = [&](int i, int32_t max_tokens, Priority priority) {
      AnswerConstraint own = HardConstraints()[0];
      absl::StrAppend(&own.text, "|", i);
      scheduler.Add(MakeSequence({i + 1, 2, 3}, max_tokens, own, priority));
    };
    for (int i = 0; i < others; ++i) add(i, 100000, Priority::kBatch);
    for (int step = 0; step < 100 && others > 0; ++step) Step(&scheduler);
    add(100 + others, 24, Priority::kInteractive);
    int steps = 0, went_on = 0;
    while (!requests_.back()->WaitFor(absl::ZeroDuration())) {
      Step(&scheduler);
      ASSERT_LT(++steps, 10000);
      for (int i = 0; i < others; ++i) went_on += Planned(i);
    }
    if (others == 0) {
      steps_alone = steps;
    } else {
      EXPECT_GT(went_on, 0);
    }
    EXPECT_LE(steps, steps_alone + 2) << others << " others";
    scheduler.TakeIf([](const Sequence&) { return true; });
  }
  EXPECT_GT(steps_alone, 40);
}

// What a sequence's grammar says, and how its answer ends, does not depend on when it is asked, on
// turns, or on what other rows have computed.
TEST_F(GrammarTurnsTest, AnswersAreTheSameInSmallTurnsAndLargeOnes) {
  std::vector<AnswerConstraint> constraints = HardConstraints();
  constraints[0].text = "((([^\"4]*){50}c([^\"4]*){20}){10}){10}";
  constraints.push_back(
      {Kind::kSchema, R"({"type": "object", "required": ["name", "kind"], "properties": {
          "name": {"type": "string", "maxLength": 4}, "kind": {"enum": ["largest", "larger"]}}})"});
  std::map<size_t, std::string> expected;
  for (const int64_t work : {int64_t{1'000'000'000'000}, int64_t{3'000'000}, int64_t{200'000}}) {
    auto engine = StartScripted(std::make_shared<Script>(), {.grammar_work = work});
    std::vector<std::shared_ptr<Request>> requests;
    for (size_t i = 0; i < 3 * constraints.size(); ++i) {
      GenerationOptions options{.max_tokens = 24, .temperature = 1};
      options.seed = i;
      options.constraint = constraints[i % constraints.size()];
      requests.push_back(
          engine->Submit({.prompt = {1, 2, static_cast<int32_t>(i)}, .options = options}).value());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->WaitFor(absl::Minutes(2)));
      const Generation& result = requests[i]->result();
      const std::string answer =
          result.status.ok() ? result.text : std::string(result.status.message());
      const std::string& first = expected.try_emplace(i, answer).first->second;
      EXPECT_EQ(answer, first) << i << " with work " << work;
    }
  }
  // Of the 900 rules: errors are the same, too.
  EXPECT_THAT(expected, testing::Contains(
                            testing::Pair(testing::_, HasSubstr("the grammar is too ambiguous"))));
}

}  // namespace
}  // namespace lm

#include "engine/runtime/scheduler.h"
#include "engine/base/monotonic_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/backend/backend.h"
#include "engine/runtime/prompt_lookup.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

constexpr int32_t kSpoken = 'x';  // the token that all answers are made of

class SchedulerTest : public testing::Test {
 protected:
  void Make(SchedulerOptions options) {
    options_ = options;
    scheduler_ = std::make_unique<Scheduler>(options);
  }

  // Queues a request that the tests call `id`.
  void Add(int id, std::vector<int32_t> prompt, int32_t max_tokens = 4,
           const std::string& salt = "", bool score = false, Priority priority = Priority::kBatch) {
    RequestSpec spec{.prompt = std::move(prompt), .salt = salt, .score_prompt = score};
    spec.options.max_tokens = max_tokens;
    spec.options.priority = priority;
    auto request = std::make_shared<Request>(std::move(spec));
    ids_[request.get()] = id;
    requests_.push_back(request);
    scheduler_->Add(std::make_unique<Sequence>(request, &tokenizer(), 100000));
  }

  void AddInteractive(int id, std::vector<int32_t> prompt, int32_t max_tokens = 4) {
    Add(id, std::move(prompt), max_tokens, "", false, Priority::kInteractive);
  }

  int Id(const Sequence& sequence) { return ids_.at(&sequence.request()); }

  // What a step plans: (id, tokens).
  using Plan = std::vector<std::pair<int, int>>;

  // Schedules, pretends to compute, and lets sequences grow and end.
  Plan Step(const StepLimits& limits = {}) {
    last_ = scheduler_->Schedule(limits);
    Plan plan;
    int32_t tokens = 0;
    std::set<const Sequence*> seen;
    for (const StepEntry& entry : last_.entries) {
      Sequence* s = entry.sequence;
      EXPECT_TRUE(seen.insert(s).second);
      EXPECT_GE(entry.num_tokens, 1);
      EXPECT_LE(entry.num_tokens, s->remaining());
      EXPECT_GE(static_cast<int64_t>(s->block_table().blocks[0].size()) * kKvBlockTokens,
                s->computed() + entry.num_tokens);
      tokens += entry.num_tokens;
      plan.push_back({Id(*s), entry.num_tokens});
    }
    EXPECT_LE(tokens, options_.step_tokens);
    EXPECT_LE(scheduler_->num_running(), options_.max_sequences + kInteractiveSeats);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
    const std::vector<StepEntry> entries = last_.entries;
    for (const StepEntry& entry : entries) Advance(entry);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
    return plan;
  }

  void Advance(const StepEntry& entry) {
    Sequence* s = entry.sequence;
    computed_ += entry.num_tokens;
    scheduler_->Commit(entry, entry.num_tokens);
    if (s->remaining() > 0) return;
    std::optional<FinishReason> end;
    if (s->scoring()) {
      end = FinishReason::kStop;
    } else {
      end = s->TakeSample(kSpoken, {}, MonotonicTime::Now(), scheduler_->grammar_work()).value();
    }
    if (!end) return;
    finished_.push_back(Id(*s));
    Generation result = s->TakeResult(*end, MonotonicTime::Now());
    scheduler_->Finish(s, true)->Deliver(std::move(result));
  }

  int RunToEnd(int most_steps = 100000) {
    int steps = 0;
    while (!scheduler_->idle()) {
      if (Step().empty() || ++steps > most_steps) {
        ADD_FAILURE() << "stuck after " << steps << " steps";
        break;
      }
    }
    return steps;
  }

  static const Tokenizer& tokenizer() {
    static const Model* const model = MakeScriptedModel(std::make_shared<Script>()).release();
    return model->tokenizer();
  }
  static std::vector<int32_t> Prompt(int32_t size, int32_t token) {
    return std::vector<int32_t>(size, token);
  }
  static std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  StepPlan last_;
  std::vector<std::shared_ptr<Request>> requests_;
  std::map<const Request*, int> ids_;
  std::vector<int> finished_;
  int64_t computed_ = 0;
};

TEST_F(SchedulerTest, DecodesGoFirstThenChunksOfPrompts) {
  Make({.step_tokens = 100, .cache = CacheOf(100)});
  Add(1, Prompt(30, 'a'));
  EXPECT_EQ(Step(), (Plan{{1, 30}}));
  Add(2, Prompt(250, 'b'));
  EXPECT_EQ(Step(), (Plan{{1, 1}, {2, 99}}));
  Add(3, Prompt(10, 'c'));
  EXPECT_EQ(Step(), (Plan{{1, 1}, {2, 99}}));
  EXPECT_EQ(Step(), (Plan{{1, 1}, {2, 52}, {3, 10}}));
  EXPECT_EQ(finished_, (std::vector<int>{1}));
  EXPECT_EQ(Step(), (Plan{{2, 1}, {3, 1}}));
  RunToEnd();
  EXPECT_EQ(finished_, (std::vector<int>{1, 2, 3}));
}

TEST_F(SchedulerTest, ABurstComputesItsCommonPrefixOnce) {
  Make({.step_tokens = 128, .cache = CacheOf(500)});
  const std::vector<int32_t> prefix = Prompt(300, 'p');
  for (int i = 0; i < 8; ++i) Add(i, Join(prefix, Prompt(10, 'a' + i)));
  EXPECT_EQ(Step(), (Plan{{0, 128}}));
  EXPECT_EQ(Step(), (Plan{{0, 128}}));
  EXPECT_EQ(Step(), (Plan{{0, 54}}));  // the others wait until this is done
  EXPECT_EQ(Step().size(), 8u);
  EXPECT_EQ(last_.tokens_reused, 7 * 300);
  RunToEnd();
  EXPECT_EQ(computed_, 300 + 8 * 10 + 8 * 3);  // the last token of an answer is not computed
}

TEST_F(SchedulerTest, OthersOvertakeWhatIsHeldBack) {
  Make({.step_tokens = 100, .cache = CacheOf(500)});
  Add(1, Join(Prompt(90, 'p'), Prompt(5, 'a')));
  Add(2, Join(Prompt(90, 'p'), Prompt(5, 'b')));
  Add(3, Prompt(5, 'q'));
  EXPECT_EQ(Step(), (Plan{{1, 95}, {3, 5}}));
  EXPECT_EQ(Step(), (Plan{{1, 1}, {3, 1}, {2, 5}}));
}

TEST_F(SchedulerTest, ShortOrForeignPrefixesHoldNobodyBack) {
  Make({.step_tokens = 500, .cache = CacheOf(500)});
  Add(1, Join(Prompt(20, 'p'), Prompt(50, 'a')));
  Add(2, Join(Prompt(20, 'p'), Prompt(50, 'b')));
  Add(3, Join(Prompt(20, 'p'), Prompt(50, 'a')), 4, "another salt");
  EXPECT_EQ(Step(), (Plan{{1, 70}, {3, 70}, {2, 70}}));
}

TEST_F(SchedulerTest, SaltsTakeTurns) {
  Make({.step_tokens = 100, .max_sequences = 4, .cache = CacheOf(500)});
  for (int i = 0; i < 50; ++i) Add(i, Prompt(5, i), 2, "hog");
  for (int i = 100; i < 103; ++i) Add(i, Prompt(5, i), 2, "small");
  RunToEnd();
  const auto place = [this](int id) {
    return std::find(finished_.begin(), finished_.end(), id) - finished_.begin();
  };
  EXPECT_LE(place(102), 6);
  EXPECT_LT(place(48), place(49));  // within a salt, in order
}

TEST_F(SchedulerTest, ScoredPromptsAreCutToTheirLogits) {
  Make({.step_tokens = 100, .max_logit_rows = 40, .cache = CacheOf(500)});
  Add(1, Prompt(30, 'a'), 4, "", true);
  Add(2, Prompt(30, 'a'), 4, "", true);
  EXPECT_EQ(Step(), (Plan{{1, 29}, {2, 11}}));
  EXPECT_EQ(last_.entries[0].num_logits, 29);
  EXPECT_EQ(Step(), (Plan{{2, 18}}));
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(scheduler_->blocks().num_free(), 500);
}

TEST_F(SchedulerTest, TheLastAdmittedGivesWayWhenMemoryEnds) {
  Make({.step_tokens = 200, .cache = CacheOf(8)});
  Add(1, Prompt(64, 'a'), 120);
  Add(2, Prompt(64, 'b'), 100);
  EXPECT_EQ(Step(), (Plan{{1, 64}, {2, 64}}));
  int preemptions = 0;
  while (!scheduler_->idle()) {
    ASSERT_FALSE(Step().empty());
    preemptions += static_cast<int>(last_.preemptions);
  }
  EXPECT_GE(preemptions, 1);
  EXPECT_EQ(finished_, (std::vector<int>{1, 2}));
  EXPECT_EQ(requests_[1]->result().tokens, Prompt(100, kSpoken));
}

TEST_F(SchedulerTest, NobodyIsAdmittedWhereMemoryIsPromised) {
  Make({.step_tokens = 32, .cache = CacheOf(10)});
  Add(1, Prompt(200, 'a'), 2);  // 7 blocks, a chunk of which is taken at first
  Add(2, Prompt(100, 'b'), 2);
  EXPECT_EQ(Step(), (Plan{{1, 32}}));
  while (finished_.empty()) {
    Step();
    EXPECT_EQ(last_.preemptions, 0);
  }
  RunToEnd();
  EXPECT_EQ(finished_, (std::vector<int>{1, 2}));
}

TEST_F(SchedulerTest, WhoWaitsForMemoryFindsAPrefixOnce) {
  Make({.step_tokens = 200, .cache = CacheOf(12)});
  auto hits = [this] { return scheduler_->blocks().CachedRuns("")[0].hits; };
  Add(1, Prompt(64, 'A'), 1);
  RunToEnd();
  Add(2, Prompt(200, 'b'), 20);
  Step();
  Add(3, Join(Prompt(64, 'A'), Prompt(100, 'c')), 1);
  for (int step = 0; step < 10; ++step) {
    EXPECT_EQ(Step(), (Plan{{2, 1}}));
    EXPECT_EQ(hits(), 0);
  }
  RunToEnd();
  EXPECT_EQ(finished_, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(hits(), 1);
}

TEST_F(SchedulerTest, CopiesAPartlySharedBlockBeforeItIsWritten) {
  Make({.step_tokens = 200, .cache = CacheOf(100)});
  Add(1, Join(Prompt(40, 'p'), Prompt(10, 'a')), 1);
  RunToEnd();
  Add(2, Join(Prompt(40, 'p'), Prompt(10, 'b')), 1);
  EXPECT_EQ(Step(), (Plan{{2, 10}}));
  ASSERT_EQ(last_.cache_ops.size(), 1u);
  EXPECT_GE(last_.cache_ops[0].from, 0);
  EXPECT_EQ(last_.cache_ops[0].tokens, 8);
}

TEST_F(SchedulerTest, WhatIsNotAcceptedGivesItsBlocksBack) {
  Make({.step_tokens = 200, .cache = CacheOf(20)});
  Add(1, Prompt(100, 'a'), 4);
  const StepPlan plan = scheduler_->Schedule();
  ASSERT_EQ(plan.entries.size(), 1u);
  StepEntry guessed = plan.entries[0];
  guessed.num_guessed = 60;
  Sequence* sequence = guessed.sequence;
  EXPECT_EQ(sequence->block_table().blocks[0].size(), 4u);
  guessed.decode = true;
  scheduler_->Commit(guessed, 40);
  scheduler_->Reject(guessed);
  EXPECT_EQ(sequence->computed(), 40);
  EXPECT_EQ(sequence->block_table().blocks[0].size(), 2u);
  EXPECT_EQ(scheduler_->blocks().num_free(), 18);
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
  RunToEnd();  // the rest is computed again
  EXPECT_EQ(finished_, (std::vector<int>{1}));
}

TEST_F(SchedulerTest, AStepThatCameToNothingLosesNoState) {
  Speculator speculator(std::make_unique<PromptLookup>(), /*model=*/nullptr);
  CacheShape cache = CacheOf(20);
  cache.num_states = 8;
  cache.state_bytes = 1;
  Make({.step_tokens = 100, .cache = cache, .speculator = &speculator});
  RequestSpec spec{.prompt = Prompt(30, kSpoken)};
  spec.options.max_tokens = 20;
  spec.options.speculate = Speculate::kAlways;
  auto request = std::make_shared<Request>(std::move(spec));
  ids_[request.get()] = 1;
  scheduler_->Add(std::make_unique<Sequence>(request, &tokenizer(), 100000, /*recurrent=*/true));
  EXPECT_EQ(Step(), (Plan{{1, 30}}));
  StepPlan plan;
  for (int step = 0; step < 3; ++step) {
    plan = scheduler_->Schedule();
    ASSERT_EQ(plan.entries.size(), 1u);
    EXPECT_GT(plan.entries[0].num_guessed, 0);
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
  }
  scheduler_->Commit(plan.entries[0], 1);
  scheduler_->Reject(plan.entries[0]);
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
  scheduler_ = nullptr;  // before what guesses for it
}

TEST_F(SchedulerTest, ClearsWhatAnotherSaltHasUsed) {
  Make({.step_tokens = 200, .cache = CacheOf(4)});
  Add(1, Prompt(100, 'a'), 1, "one");
  Step();
  EXPECT_TRUE(last_.cache_ops.empty());  // fresh
  Add(2, Prompt(100, 'b'), 1, "one");
  Step();
  EXPECT_TRUE(last_.cache_ops.empty());  // its own salt's
  Add(3, Prompt(70, 'c'), 1, "two");
  Step();
  ASSERT_EQ(last_.cache_ops.size(), 3u);
  for (const CacheOp& op : last_.cache_ops) EXPECT_EQ(op.from, -1);
}

TEST_F(SchedulerTest, DistrustedBlocksAreClearedOnceEach) {
  Make({.step_tokens = 200, .cache = CacheOf(4)});
  Add(1, Prompt(100, 'a'), 1, "one");
  scheduler_->DistrustBlocks();
  Step();
  ASSERT_EQ(last_.cache_ops.size(), 4u);
  for (const CacheOp& op : last_.cache_ops) EXPECT_EQ(op.from, -1);
  Add(2, Prompt(100, 'b'), 1, "one");
  Step();
  EXPECT_TRUE(last_.cache_ops.empty());  // its own salt's, and known to be
  Add(3, Prompt(70, 'c'), 1, "two");
  Step();
  EXPECT_EQ(last_.cache_ops.size(), 3u);
}

TEST_F(SchedulerTest, WithoutAPrefixCacheNothingIsShared) {
  Make({.step_tokens = 200, .cache = CacheOf(20), .prefix_cache = false});
  for (int i = 0; i < 3; ++i) Add(i, Prompt(60, 'a'), 2);
  EXPECT_EQ(Step(), (Plan{{0, 60}, {1, 60}, {2, 60}}));
  RunToEnd();
  EXPECT_EQ(scheduler_->blocks().num_free(), 20);
}

TEST_F(SchedulerTest, LongerAnswersBeginFirst) {
  Make({.step_tokens = 100, .max_sequences = 2, .cache = CacheOf(500)});
  for (int i = 0; i < 6; ++i) Add(i, Prompt(5, i), i % 2 == 0 ? 2 : 9);
  EXPECT_EQ(Step(), (Plan{{1, 5}, {3, 5}}));
  RunToEnd();
  EXPECT_EQ(finished_, (std::vector<int>{1, 3, 0, 2, 4, 5}));
}

TEST_F(SchedulerTest, InteractiveOnesGoFirstAndHaveSeatsOfTheirOwn) {
  Make({.step_tokens = 100, .max_sequences = 3, .cache = CacheOf(500)});
  for (int i = 0; i < 8; ++i) Add(i, Prompt(10, i), 50);
  EXPECT_EQ(Step(), (Plan{{0, 10}, {1, 10}, {2, 10}}));
  AddInteractive(100, Prompt(60, 'i'));
  AddInteractive(101, Prompt(60, 'j'));
  EXPECT_EQ(Step(), (Plan{{0, 1}, {1, 1}, {2, 1}, {100, 60}, {101, 37}}));
  EXPECT_EQ(Step(), (Plan{{100, 1}, {0, 1}, {1, 1}, {2, 1}, {101, 23}}));
  RunToEnd();
  EXPECT_EQ(finished_[0], 100);
  EXPECT_EQ(finished_[1], 101);
}

TEST_F(SchedulerTest, BatchOnesGiveTheirMemoryToAnInteractiveOne) {
  Make({.step_tokens = 400, .cache = CacheOf(10)});
  Add(1, Prompt(110, 'a'), 30);
  Add(2, Prompt(110, 'b'), 30);
  EXPECT_EQ(Step(), (Plan{{1, 110}, {2, 110}}));
  AddInteractive(3, Prompt(120, 'c'), 3);
  EXPECT_EQ(Step(), (Plan{{1, 1}, {3, 120}}));
  EXPECT_EQ(last_.preemptions, 1);
  RunToEnd();
  EXPECT_EQ(finished_, (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(requests_[1]->result().tokens, Prompt(30, kSpoken));
}

TEST_F(SchedulerTest, WhatAPreemptedOneHadOfTheStepIsForOthers) {
  for (const int32_t limit : {1000, 50}) {  // tokens of prompts beside decoding ones
    Make({.step_tokens = 121, .cache = CacheOf(10)});
    Add(1, Prompt(110, 'a'), 30);
    Add(2, Prompt(110, 'b'), 30);
    EXPECT_EQ(Step(), (Plan{{1, 110}, {2, 11}}));
    EXPECT_EQ(Step(), (Plan{{1, 1}, {2, 99}}));
    AddInteractive(3, Prompt(120, 'c'), 3);
    EXPECT_EQ(Step({.beside_interactive = limit, .beside_batch = limit}),
              (Plan{{1, 1}, {3, std::min(limit, 120)}}));
    EXPECT_EQ(last_.preemptions, 1);
    RunToEnd();
  }
}

TEST_F(SchedulerTest, PromptsLeaveDecodingOnesTheirTime) {
  Make({.step_tokens = 400, .cache = CacheOf(100)});
  const StepLimits limits = {.beside_interactive = 32, .beside_batch = 100};
  Add(1, Prompt(10, 'a'), 3);
  EXPECT_EQ(Step(limits), (Plan{{1, 10}}));
  Add(2, Prompt(900, 'b'), 2);
  EXPECT_EQ(Step(limits), (Plan{{1, 1}, {2, 100}}));
  AddInteractive(3, Prompt(20, 'c'), 3);
  EXPECT_EQ(Step(limits), (Plan{{1, 1}, {3, 20}, {2, 32}}));  // the first token waits for all
  EXPECT_EQ(Step(limits), (Plan{{3, 1}, {2, 32}}));
  EXPECT_EQ(Step(limits), (Plan{{3, 1}, {2, 32}}));
  EXPECT_EQ(Step(limits), (Plan{{2, 400}}));  // nobody decodes
  RunToEnd();
}

TEST_F(SchedulerTest, BatchPromptsGoOnBesideInteractiveOnesWithoutEnd) {
  constexpr int32_t kTokens = 400;
  for (const bool runs : {true, false}) {
    Make({.step_tokens = kTokens, .cache = CacheOf(1000)});
    int id = 0;
    auto add_interactive = [&] {
      ++id;
      AddInteractive(id, Prompt(kTokens, 10 + id % 100), 1);
    };
    if (!runs) add_interactive();
    Add(1000, Prompt(3 * kLeastBatchTokens - 5, 'b'), 2);
    if (runs) add_interactive();
    for (int step = 0; step < 5; ++step) {
      add_interactive();
      const Plan plan = Step({.beside_interactive = 40});
      int32_t batch = 0, all = 0;
      for (const auto& [planned, tokens] : plan) {
        all += tokens;
        if (planned == 1000) batch += tokens;
      }
      EXPECT_LE(all, kTokens);
      EXPECT_EQ(batch, step < 2 ? 32 : step == 2 ? 27 : step == 3 ? 1 : 0) << step;
    }
    EXPECT_EQ(requests_[runs ? 0 : 1]->result().tokens.size(), 2u);
    RunToEnd();
    requests_.clear();
    finished_.clear();
  }
}

TEST_F(SchedulerTest, BatchRowsSitOutInTurnsBesideAnInteractiveOne) {
  Make({.step_tokens = 400, .cache = CacheOf(500)});
  constexpr int kRows = 20;
  for (int i = 0; i < kRows; ++i) Add(i, Prompt(3, i), 50);
  const StepLimits limits = {.interactive_decode = 9};
  EXPECT_EQ(Step(limits).size(), 20u);
  EXPECT_EQ(Step(limits).size(), 20u);  // nobody interactive
  AddInteractive(100, Prompt(30, 'i'), 21);
  std::map<int, int> decoded;
  // Of the tokens nine are batch rows' while it waits for its first, and eight beside it then.
  EXPECT_EQ(Step(limits).size(), 10u);
  for (int step = 0; step < 20; ++step) {
    const Plan plan = Step(limits);
    EXPECT_EQ(plan.size(), 9u);
    EXPECT_EQ(plan[0], (std::pair{100, 1}));
    for (const auto& [id, tokens] : plan) ++decoded[id];
  }
  EXPECT_EQ(finished_, (std::vector<int>{100}));
  for (int i = 0; i < kRows; ++i) EXPECT_NEAR(decoded[i], 20 * 8 / kRows, 1) << i;
  EXPECT_EQ(Step(limits).size(), 20u);
  RunToEnd();
  for (int i = 0; i < kRows; ++i) EXPECT_EQ(requests_[i]->result().tokens, Prompt(50, kSpoken));
}

// Else others that are interactive, and come all the time, would be before it for ever.
TEST_F(SchedulerTest, APrefixThatAnInteractiveOneAwaitsIsComputedBeforeThoseBehindIt) {
  Make({.step_tokens = 100, .cache = CacheOf(500)});
  const std::vector<int32_t> prefix = Prompt(300, 'p');
  Add(1, Join(prefix, Prompt(500, 'a')));
  EXPECT_EQ(Step(), (Plan{{1, 100}}));
  AddInteractive(100, Join(prefix, Prompt(10, 'b')), 1);
  for (int i = 101; i < 120; ++i) AddInteractive(i, Prompt(100, i - 100), 1);
  EXPECT_EQ(Step(), (Plan{{1, 100}}));
  EXPECT_EQ(Step(), (Plan{{1, 100}}));
  EXPECT_EQ(Step(), (Plan{{100, 22}, {101, 46}, {1, 32}}));  // behind whole blocks: 288 of the 300
  EXPECT_EQ(finished_, (std::vector<int>{100}));
  EXPECT_EQ(last_.tokens_reused, 288);
  RunToEnd();
  EXPECT_EQ(computed_, 800 + 3 + 22 + 19 * 100);  // nothing twice but the rest of a block
}

// What is behind it has taken its windows' blocks: nobody will ever find it in the tree.
TEST_F(SchedulerTest, NobodyWaitsForAPrefixThatHasLostItsWindow) {
  CacheShape cache = CacheOf(400);
  cache.classes.push_back({.window = 32, .num_blocks = 16});
  Make({.step_tokens = 64, .cache = cache});
  const std::vector<int32_t> prefix = Prompt(64, 'a');
  Add(1, Join(prefix, Prompt(2000, 'b')));
  for (int step = 0; step < 12; ++step) EXPECT_EQ(Step(), (Plan{{1, 64}}));
  AddInteractive(100, Join(prefix, Prompt(16, 'c')), 1);
  EXPECT_EQ(Step(), (Plan{{100, 32}, {1, 32}}));
  EXPECT_EQ(Step(), (Plan{{100, 32}, {1, 32}}));
  EXPECT_EQ(Step(), (Plan{{100, 16}, {1, 48}}));
  EXPECT_EQ(last_.tokens_reused, 0);
  EXPECT_EQ(finished_, (std::vector<int>{100}));
}

TEST_F(SchedulerTest, SomeBatchRowsDecodeHoweverLittleTimeThereIs) {
  Make({.step_tokens = 400, .cache = CacheOf(500)});
  for (int i = 0; i < 10; ++i) Add(i, Prompt(3, i), 50);
  Step();
  AddInteractive(100, Prompt(3, 'i'), 10);
  EXPECT_EQ(Step({.interactive_decode = 0}).size(), kLeastBatchRows + 1u);
  EXPECT_EQ(Step({.interactive_decode = 0}).size(), kLeastBatchRows + 1u);
  RunToEnd();
}

// Random arrivals, prefixes, sizes and departures over pools from ample to just enough.
TEST_F(SchedulerTest, RandomWorkloadsKeepTheRules) {
  for (int seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    finished_.clear();
    const int32_t num_blocks = seed % 3 == 0 ? 12 : seed % 3 == 1 ? 30 : 400;
    Make({.step_tokens = static_cast<int32_t>(8 + random() % 200),
          .max_sequences = static_cast<int32_t>(1 + random() % 12),
          .max_logit_rows = static_cast<int32_t>(1 + random() % 50),
          .cache = CacheOf(num_blocks),
          .prefix_cache = seed % 5 != 0});
    int added = 0, dropped = 0;
    const int total = 60;
    int steps = 0;
    while (added < total || !scheduler_->idle()) {
      while (added < total && random() % 3 != 0) {
        std::vector<int32_t> prompt = Prompt(random() % 150, 'p');
        prompt = Join(prompt, Prompt(random() % 100, 'a' + random() % 3));
        prompt.push_back('q' + random() % 4);
        const int32_t answer = 1 + random() % 100;
        ASSERT_LE(prompt.size() + answer, 12u * kKvBlockTokens);
        Add(added++, prompt, answer, std::string(1, 'A' + random() % 3),
            random() % 6 == 0 && prompt.size() > 1,
            random() % 5 == 0 ? Priority::kInteractive : Priority::kBatch);
      }
      if (scheduler_->idle()) continue;
      const StepLimits limits = {.beside_interactive = static_cast<int32_t>(1 + random() % 100),
                                 .interactive_decode = static_cast<int32_t>(random() % 12)};
      ASSERT_FALSE(Step(limits).empty()) << "seed " << seed;
      ASSERT_LT(++steps, 20000);
      if (random() % 20 == 0) {
        auto taken = scheduler_->TakeIf([&](const Sequence&) { return random() % 10 == 0; });
        dropped += static_cast<int>(taken.size());
      }
      if (HasFailure()) FAIL() << "seed " << seed;
    }
    EXPECT_EQ(finished_.size() + dropped, static_cast<size_t>(total));
    EXPECT_EQ(scheduler_->blocks().num_free() + scheduler_->blocks().num_cached(), num_blocks);
    EXPECT_EQ(scheduler_->blocks().num_evictable(), scheduler_->blocks().num_cached());
  }
}

}  // namespace
}  // namespace lm

// What clients do between any two passes of the model, in an order that a seed draws: the same
// seed, the same order.
//
//   interleavings_test [--seeds 100] [--first 0]
//
// One thread plays all clients. The model waits at the beginning of each pass until it is let go
// on, so that the engine stands still, in a pass or with nothing to do, whenever a client acts:
// submits (through a memo or past it), cancels, forgets, takes tokens of a stream, looks at the
// cache, or the device fails, or the engine is stopped. The KV cache is too small for all, and
// every other engine has a store of prefixes, which those of other seeds have filled. Whoever did
// not give up has the very answer that he has alone; nothing is lost, nobody waits for ever, and in
// the end all of the memory is free.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/local_generator.h"
#include "engine/runtime/memo.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

// All of them, where they are few.
std::vector<MemoEntryInfo> EntriesOf(const Memo& memo, absl::string_view owner) {
  MemoRange all;
  return memo.Entries(owner, &all);
}

int num_seeds = 100;
int first_seed = 0;

constexpr int kBeginnings = 3, kEnds = 4, kWays = 7;
constexpr int kKinds = kBeginnings * kEnds * kWays;
constexpr const char* kSalts[] = {"file:x", "file:y"};
constexpr int kMostLive = 12;
constexpr int kActions = 60;

// Prompts of two owners, which begin alike, asked in different ways.
RequestSpec SpecOf(int kind) {
  const int beginning = kind % kBeginnings, end = kind / kBeginnings % kEnds;
  const int way = kind / kBeginnings / kEnds;
  RequestSpec spec;
  spec.salt = beginning == 0 ? kSalts[0] : kSalts[1];
  // The first token names the owner.
  spec.text = (beginning == 0 ? "x" : "y") + std::string(70 + 40 * beginning, 'a') +
              std::string(1 + 9 * end, 'b');
  spec.prompt = Bytes(spec.text);
  spec.options.max_tokens = 6 + 30 * end;
  switch (way) {
    case 0:
      break;
    case 1:
      spec.options.temperature = 0.9;
      spec.options.seed = kind;
      break;
    case 2:
      spec.stream = true;
      break;
    case 3:
      spec.options.constraint = {AnswerConstraint::Kind::kRegex, "([a-d]{2}(north|south);){1,4}"};
      spec.options.max_tokens = 60;
      spec.options.on_length = OnLength::kComplete;
      break;
    case 4:
      spec.score_prompt = true;
      break;
    case 5:
      spec.options.speculate = Speculate::kAlways;
      spec.wants_logprob = true;
      break;
    default:
      spec.options.stop = {"q", "st"};
      spec.options.repeat_penalty = 1.1;
  }
  return spec;
}

// What tells two answers apart.
std::string Shown(const Generation& result) {
  return absl::StrCat(result.text, "|", FinishReasonName(result.finish), "|",
                      absl::StrJoin(result.tokens, ","), "|",
                      absl::StrJoin(result.prompt_logprobs, ","), "|", result.mean_logprob);
}

// The answer of a request of this kind that is alone.
const std::string& Expected(int kind) {
  static auto* const known = new std::map<int, std::string>;
  auto [entry, added] = known->try_emplace(kind);
  if (added) {
    auto engine = StartScripted(std::make_shared<Script>(), {.prefix_cache = false});
    RequestSpec spec = SpecOf(kind);
    spec.options.speculate = Speculate::kOff;
    const Generation result = Generate(*engine, std::move(spec));
    EXPECT_TRUE(result.status.ok()) << result.status;
    entry->second = Shown(result);
  }
  return entry->second;
}

// What came about in all plays: else they show little.
struct Seen {
  int64_t preemptions = 0, reused = 0, drafted = 0, remembered = 0, shared = 0;
  int64_t stored = 0, cancelled = 0, failed = 0, left_passes = 0, begun_behind = 0;
};

class Play {
 public:
  Play(int seed, const std::string& store) : dice_(seed) {
    script_->num_blocks = 10 + static_cast<int>(Below(4));
    script_->context_length = 400;
    if (seed % 2 == 0) script_->prefix_store = store;
    script_->tenants = true;
    if (seed % 3 == 1) script_->windows = {40};
    if (seed % 3 == 2) script_->num_states = 7;
    faulty_ = seed % 4 == 3;
    script_->queues_steps = seed / 2 % 2 == 1 && script_->num_states == 0;
    if (seed % 7 > 3) script_->late_each = 9;
    ends_early_ = seed % 5 == 4;
    script_->most_forwards = 0;
    engine_ = StartScripted(script_, {.step_tokens = 24 + static_cast<int32_t>(Below(60)),
                                      .max_sequences = 2 + static_cast<int32_t>(Below(7))});
    generator_ = std::make_unique<LocalGenerator>(engine_);
  }

  void Run() {
    for (int action = 0; action < kActions && !testing::Test::HasFailure(); ++action) {
      Act();
      Quiesce();
    }
    if (ends_early_) {
      engine_->Stop();
    } else {
      script_->most_forwards = std::numeric_limits<int64_t>::max();
    }
    for (const Asked& asked : asked_) {
      ASSERT_TRUE(asked.request->WaitFor(absl::Seconds(20)))
          << "nobody answers a request of kind " << asked.kind << "\n"
          << log_;
      Check(asked);
    }
    EXPECT_EQ(script_->violation(), "") << log_;
    if (!ends_early_) CheckNothingIsHeld();
  }

  void AddTo(Seen* seen) const {
    const EngineStats stats = engine_->Stats();
    seen->preemptions += stats.preemptions;
    seen->reused += stats.tokens_reused;
    seen->drafted += stats.tokens_drafted;
    seen->stored += script_->blocks_shown;
    seen->left_passes += script_->cancelled_forwards;
    seen->begun_behind += script_->begun_behind;
    for (const char* salt : kSalts) {
      seen->remembered += memo_.Stats(generator_->info().identity, salt).hits;
      seen->shared += memo_.Stats(generator_->info().identity, salt).shared;
    }
    for (const Asked& asked : asked_) {
      const bool failed = !asked.request->result().status.ok();
      seen->cancelled += failed && asked.cancelled;
      seen->failed += failed && !asked.cancelled;
    }
  }

 private:
  struct Asked {
    int kind;
    std::shared_ptr<Request> request;
    bool cancelled = false;
    std::string pieces = {};
  };

  uint64_t Below(uint64_t n) { return dice_() % n; }

  void Act() {
    switch (Below(12)) {
      case 0:
      case 1:
      case 2:
        return Submit(/*remembered=*/false);
      case 3:
      case 4:
        return Submit(/*remembered=*/true);
      case 5:
        return Cancel();
      case 6:
        return TakeTokens();
      case 7:
        return Look();
      case 8:
        return Forget();
      case 9:
        return Fail();
      default:
        Note("pass");
        script_->most_forwards += 1 + static_cast<int64_t>(Below(Below(4) == 0 ? 30 : 3));
    }
  }

  void Note(const std::string& what) { absl::StrAppend(&log_, what, "\n"); }

  void Submit(bool remembered) {
    int live = 0;
    for (const Asked& asked : asked_) live += !asked.request->WaitFor(absl::ZeroDuration());
    if (live >= kMostLive) return;
    // What is remembered is asked for again.
    const int kind = static_cast<int>(remembered ? Below(3) * 17 : Below(kKinds));
    Note(absl::StrCat("submit ", kind, remembered ? " to the memo" : ""));
    RequestSpec spec = SpecOf(kind);
    const MemoAccess access = {.owner = spec.salt};
    auto request = remembered ? memo_.Submit(*generator_, std::move(spec), access)
                              : engine_->Submit(std::move(spec));
    ASSERT_TRUE(request.ok()) << request.status();
    asked_.push_back({kind, *std::move(request)});
  }

  Asked* Anyone() { return asked_.empty() ? nullptr : &asked_[Below(asked_.size())]; }

  void Cancel() {
    Asked* const asked = Anyone();
    if (asked == nullptr || asked->cancelled) return;
    Note(absl::StrCat("cancel ", asked - asked_.data()));
    asked->cancelled = true;
    asked->request->Cancel();
  }

  void TakeTokens() {
    Asked* const asked = Anyone();
    if (asked == nullptr || !asked->request->spec().stream) return;
    Note(absl::StrCat("take ", asked - asked_.data()));
    while (auto token = asked->request->TakeToken()) asked->pieces += token->piece;
  }

  void Look() {
    Note("look");
    inspections_.push_back(engine_->InspectCache(kSalts[Below(2)]));
    const EngineStats stats = engine_->Stats();
    EXPECT_LE(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    EXPECT_LE(stats.failed, stats.requests);
    engine_->RecentRequests(kSalts[0]);
  }

  void Forget() {
    Note("forget");
    const std::vector<MemoEntryInfo> entries = EntriesOf(memo_, kSalts[0]);
    if (!entries.empty()) memo_.Forget(kSalts[0], entries[Below(entries.size())].id);
  }

  void Fail() {
    if (!faulty_) return;
    Note("fail");
    any_failed_ = true;
    if (Below(2) == 0) {
      script_->block_errors = 1;
    } else {
      script_->throw_in = 1 + static_cast<int>(Below(2));
    }
  }

  bool AllDone() const {
    for (const Asked& asked : asked_) {
      if (!asked.request->WaitFor(absl::ZeroDuration())) return false;
    }
    const EngineStats stats = engine_->Stats();
    return stats.running == 0 && stats.queued == 0;
  }

  // Until the engine stands in a pass that has seen what there was to see, or has nothing to do.
  void Quiesce() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    for (;;) {
      ASSERT_LT(absl::Now(), deadline) << "the engine sleeps while somebody waits\n" << log_;
      if (script_->forwards > script_->most_forwards) {
        const int64_t forwards = script_->forwards, looks = script_->looks;
        while (script_->forwards == forwards && script_->looks < looks + 2 && !AllDone()) {
          std::this_thread::yield();
        }
        if (script_->forwards == forwards) return;
      } else if (AllDone()) {
        return;
      }
      std::this_thread::yield();
    }
  }

  void Check(const Asked& asked) {
    const Generation& result = asked.request->result();
    if (!result.status.ok()) {
      const bool excused = asked.cancelled || any_failed_ || ends_early_;
      EXPECT_TRUE(excused) << "kind " << asked.kind << ": " << result.status << "\n" << log_;
      return;
    }
    EXPECT_EQ(Shown(result), Expected(asked.kind)) << "kind " << asked.kind << "\n" << log_;
    if (!asked.request->spec().stream) return;
    std::string pieces = asked.pieces;
    while (auto token = asked.request->TakeToken()) pieces += token->piece;
    EXPECT_EQ(pieces, result.text) << log_;
  }

  void CheckNothingIsHeld() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!AllDone()) {
      ASSERT_LT(absl::Now(), deadline) << "something still runs\n" << log_;
      std::this_thread::yield();
    }
    for (const auto& inspection : inspections_) {
      EXPECT_TRUE(inspection->WaitFor(absl::Seconds(20))) << log_;
    }
    const EngineStats stats = engine_->Stats();
    EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total) << log_;
  }

  std::mt19937_64 dice_;
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<LocalGenerator> generator_;
  Memo memo_{1 << 15, 1 << 13};  // has room for a few answers only
  std::vector<Asked> asked_;
  std::vector<std::shared_ptr<CacheInspection>> inspections_;
  bool faulty_ = false, ends_early_ = false, any_failed_ = false;
  std::string log_;
};

TEST(InterleavingsTest, EverybodyHasTheAnswerThatHeHasAlone) {
  Seen seen;
  const std::string store = testing::TempDir() + absl::StrCat("interleavings-", getpid());
  const absl::Cleanup removed = [&store] { std::filesystem::remove_all(store); };
  for (int seed = first_seed; seed < first_seed + num_seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("--first ", seed, " --seeds 1"));
    Play play(seed, store);
    play.Run();
    if (!HasFailure()) play.AddTo(&seen);
  }
  if (num_seeds < 50 || HasFailure()) return;
  for (const int64_t count :
       {seen.preemptions, seen.reused, seen.drafted, seen.remembered, seen.shared, seen.stored,
        seen.cancelled, seen.failed, seen.left_passes, seen.begun_behind}) {
    EXPECT_GT(count, 0);
  }
  std::printf(
      "%ld preemptions, %ld tokens of prompts found, %ld guessed; %ld answers remembered, %ld "
      "shared; %ld blocks stored or read back; %ld requests cancelled, %ld failed; %ld passes "
      "left, %ld begun behind others\n",
      seen.preemptions, seen.reused, seen.drafted, seen.remembered, seen.shared, seen.stored,
      seen.cancelled, seen.failed, seen.left_passes, seen.begun_behind);
}

}  // namespace

void TakeSeeds(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--seeds") == 0) num_seeds = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--first") == 0) first_seed = std::atoi(argv[i + 1]);
  }
}

}  // namespace lm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lm::TakeSeeds(argc, argv);
  return RUN_ALL_TESTS();
}

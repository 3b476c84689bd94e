// What a shadow has foreseen: beside a plain model that counts everything anew, and how little work
// one call of tens of thousands makes.
#include "extension/batch/foreseen_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/runtime/held_generator.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kSites[] = {0, 1, 2};  // their addresses are places in a program

class ForeseenCallsTest : public testing::Test {
 protected:
  RowPrompt Row(int text) const { return {.prompt = std::to_string(text), .options = options_}; }
  CallText Text(int text) const { return CallText(Row(text)); }
  ForeseenCall& Add(int text, int64_t number, const void* site = &kSites[0],
                    const void* behind = nullptr) {
    return calls_.Add(Row(text), Text(text), site, number, behind);
  }
  // The numbers of the calls that were passed over; the call must be among the foreseen ones.
  std::vector<int64_t> Take(int text, int64_t last) {
    std::vector<int64_t> passed;
    calls_.Take(*calls_.Find(Text(text)), last,
                [&passed](const ForeseenCall& call) { passed.push_back(call.number); });
    return passed;
  }

  std::shared_ptr<HeldGenerator> generator_ = std::make_shared<HeldGenerator>();
  std::shared_ptr<const CallOptions> options_ = std::make_shared<CallOptions>(
      CallOptions{std::make_shared<ModelUse>(ModelUse{Session(generator_, "")}), {}});
  ForeseenCalls calls_;
};

TEST_F(ForeseenCallsTest, AreSubmittedInTheirOrderAsTheWidthAllows) {
  for (int i = 0; i < 5; ++i) Add(i, i);
  calls_.Submit(2, 100);
  EXPECT_EQ(generator_->asked.size(), 2);
  generator_->Say(0, "yes");
  calls_.Look();
  EXPECT_EQ(calls_.num_under_way(), 1);
  calls_.Submit(2, 100);
  ASSERT_EQ(generator_->asked.size(), 3);
  EXPECT_EQ(generator_->asked[2]->spec().text, "2");
}

TEST_F(ForeseenCallsTest, OfAPlaceOnlySomeAreSubmittedUntilTheyAreTaken) {
  for (int i = 0; i < 6; ++i) Add(i, i);
  calls_.Submit(100, 4);
  EXPECT_EQ(generator_->asked.size(), 4);
  for (size_t i = 0; i < 4; ++i) generator_->Say(i, "yes");
  calls_.Look();
  calls_.Submit(100, 4);
  EXPECT_EQ(generator_->asked.size(), 4);
  Take(0, -1);
  calls_.Submit(100, 4);
  EXPECT_EQ(generator_->asked.size(), 5);
}

TEST_F(ForeseenCallsTest, APlaceThatHasEnoughDoesNotCountForAnother) {
  Add(0, 0, &kSites[0]);
  Add(1, 1, &kSites[0]);
  Add(2, 2, &kSites[1]);
  Add(3, 3, &kSites[0]);
  calls_.Submit(100, 2);
  EXPECT_EQ(generator_->asked.size(), 3);
}

TEST_F(ForeseenCallsTest, OneThatIsTakenOutOfTheMiddleDropsWhatThePlaceHasPassed) {
  Add(0, 0, &kSites[0]);
  Add(1, 1, &kSites[1]);
  Add(2, 2, &kSites[2], &kSites[0]);
  Add(3, 3, &kSites[0]);
  Add(4, 4, &kSites[0]);
  calls_.Submit(100, 100);
  EXPECT_THAT(Take(4, 3), ElementsAre(0, 2));  // 3 is not before the call before
  EXPECT_EQ(calls_.size(), 2);
  EXPECT_EQ(calls_.num_under_way(), 2);
  EXPECT_TRUE(generator_->asked[0]->cancelled());
  EXPECT_FALSE(generator_->asked[1]->cancelled());
  EXPECT_THAT(Take(3, 4), IsEmpty());
  EXPECT_EQ(calls_.front().number, 1);
}

TEST_F(ForeseenCallsTest, OneThatIsForeseenAgainHasWhatWasUnderWay) {
  Add(0, 0);
  Add(1, 1);
  calls_.Submit(1, 100);
  calls_.KeepAside();
  EXPECT_EQ(calls_.num_kept(), 1);
  EXPECT_EQ(calls_.num_under_way(), 1);
  generator_->Say(0, "yes");
  calls_.Look();
  EXPECT_EQ(calls_.num_under_way(), 0);
  EXPECT_TRUE(Add(0, 0).pending.answered());
  EXPECT_EQ(calls_.num_kept(), 0);
}

TEST_F(ForeseenCallsTest, TheAnswerToOneThatTheShadowDidWithoutIsRipeUntilItIsTaken) {
  Add(0, 0).unknown = true;
  Add(1, 1);
  calls_.Submit(100, 100);
  generator_->Say(0, "yes");
  generator_->Say(1, "yes");
  EXPECT_EQ(calls_.num_ripe(), 0);
  calls_.Look();
  EXPECT_EQ(calls_.num_ripe(), 1);
  Take(0, -1);
  EXPECT_EQ(calls_.num_ripe(), 0);
}

// One step of a shadow may make so many calls, and each of them is taken, submitted and looked for
// as if it were alone: where all are gone through for each, this takes many minutes.
TEST_F(ForeseenCallsTest, FiftyThousandAreTakenOneByOneAtOnce) {
  constexpr int kCalls = 50'000;
  constexpr size_t kWidth = 256, kOfPlace = 4096;
  generator_->room = kCalls;
  size_t said = 0;
  auto advance = [&] {
    calls_.Look();
    calls_.Submit(kWidth, kOfPlace);
    while (said < generator_->asked.size()) generator_->Say(said++, "yes");
  };
  // Of each three calls the statement makes the second and the third, of other places.
  for (int i = 0; i < kCalls; ++i) {
    Add(i, i, &kSites[i % 3]).unknown = true;
    calls_.Submit(kWidth, kOfPlace);
  }
  int64_t last = -1, passed = 0;
  for (int i = 0; i < kCalls; ++i) {
    advance();
    if (i % 3 == 0) continue;
    passed += static_cast<int64_t>(Take(i, last).size());
    last = i;
    advance();
  }
  EXPECT_LT(calls_.size(), 300);
  EXPECT_EQ(passed + static_cast<int64_t>(calls_.size()), (kCalls + 2) / 3);
  EXPECT_EQ(generator_->asked.size(), kCalls);
}

// The same in the plainest way: everything is counted whenever it is wanted.
class PlainCalls {
 public:
  struct PlainCall {
    int text;
    const void* site;
    int64_t number;
    const void* behind;
    int request = -1;  // of all that were submitted; -1: it was not
    bool answered = false;
    bool unknown = false;
  };

  void Add(int text, const void* site, int64_t number, const void* behind, bool unknown) {
    PlainCall call{.text = text, .site = site, .number = number, .behind = behind};
    const auto alike = FindKept(text);
    if (alike != kept.end()) {
      call.request = alike->request;
      call.answered = alike->answered;
      kept.erase(alike);
    }
    call.unknown = unknown && !call.answered;
    calls.push_back(call);
  }
  void Submit(size_t width, size_t of_place) {
    std::map<const void*, size_t> seen;
    for (PlainCall& call : calls) {
      if (++seen[call.site] > of_place) return;
      if (call.request >= 0) continue;
      if (NumUnderWay() >= width) return;
      call.request = static_cast<int>(submitted.size());
      submitted.push_back(call.text);
    }
  }
  void Look(const std::set<int>& finished) {
    for (auto* those : {&calls, &kept}) {
      for (PlainCall& call : *those) call.answered = finished.contains(call.request);
    }
  }
  std::vector<int64_t> Take(int text, int64_t last) {
    const auto at = std::find_if(calls.begin(), calls.end(),
                                 [text](const PlainCall& call) { return call.text == text; });
    const PlainCall taken = *at;
    calls.erase(at);
    std::vector<int64_t> passed;
    std::erase_if(calls, [&](const PlainCall& call) {
      if (call.number >= std::min(taken.number, last) ||
          (call.site != taken.site && call.behind != taken.site &&
           call.number + 256 >= taken.number)) {
        return false;
      }
      passed.push_back(call.number);
      return true;
    });
    return passed;
  }
  std::vector<PlainCall>::iterator FindKept(int text) {
    return std::find_if(kept.begin(), kept.end(),
                        [text](const PlainCall& call) { return call.text == text; });
  }
  void KeepAside() {
    std::erase_if(calls, [](const PlainCall& call) { return call.request < 0; });
    kept.insert(kept.begin(), calls.begin(), calls.end());
    calls.clear();
  }
  size_t NumUnderWay() const {
    size_t count = 0;
    for (const auto* those : {&calls, &kept}) {
      for (const PlainCall& call : *those) count += call.request >= 0 && !call.answered;
    }
    return count;
  }
  size_t NumRipe() const {
    return std::count_if(calls.begin(), calls.end(),
                         [](const PlainCall& call) { return call.answered && call.unknown; });
  }

  std::vector<PlainCall> calls, kept;
  std::vector<int> submitted;  // their texts
};

TEST_F(ForeseenCallsTest, AreWhatAPlainModelOfThemSays) {
  constexpr size_t kWidth = 6;  // fewer than are asked whether their answers have come
  constexpr size_t kOfPlace = 20;
  std::mt19937 random(1);
  auto below = [&random](size_t end) { return static_cast<int>(random() % end); };
  generator_->room = 1'000'000;
  PlainCalls plain;
  std::set<int> finished;
  int64_t number = 0, place = -1;
  for (int turn = 0; turn < 20'000; ++turn) {
    SCOPED_TRACE(turn);
    const int what = below(1000);
    if (what < 400) {
      // Some texts come several times.
      const int text = below(300);
      const void* const site = &kSites[below(3)];
      const void* const behind = below(4) == 0 ? &kSites[below(3)] : nullptr;
      const bool unknown = below(2) == 0;
      ForeseenCall& call = Add(text, number, site, behind);
      call.unknown = unknown && !call.pending.answered();
      plain.Add(text, site, number, behind, unknown);
      number += below(20) == 0 ? 200 : 1;
    } else if (what < 600) {
      const int request = below(generator_->asked.size() + 1);
      if (request < static_cast<int>(generator_->asked.size()) && finished.insert(request).second) {
        generator_->Say(request, "yes");
      }
    } else if (what < 900) {
      if (plain.calls.empty()) continue;
      const int i = below(3) == 0 ? below(plain.calls.size()) : 0;
      const int text = plain.calls[i].text;
      const ForeseenCall* const found = calls_.Find(Text(text));
      ASSERT_NE(found, nullptr);
      const int64_t last = std::exchange(place, found->number);
      ASSERT_EQ(Take(text, last), plain.Take(text, last));
    } else if (what < 960) {
      const int text = below(300);
      const auto kept = plain.FindKept(text);
      const std::optional<PendingAnswer> taken = calls_.TakeKept(Text(text));
      ASSERT_EQ(taken.has_value(), kept != plain.kept.end());
      if (kept != plain.kept.end()) plain.kept.erase(kept);
    } else if (what < 985) {
      const void* const site = &kSites[below(3)];
      calls_.DropDoubtful(site);
      std::erase_if(plain.calls,
                    [&](const auto& call) { return call.behind != nullptr && call.site == site; });
    } else if (what < 993) {
      calls_.KeepAside();
      plain.KeepAside();
      number = 0;
      place = -1;
    } else if (what < 998) {
      size_t passed = 0;
      calls_.DropKept([&passed](const ForeseenCall&) { ++passed; });
      ASSERT_EQ(passed, plain.kept.size());
      plain.kept.clear();
    } else {
      calls_.DropAll();
      plain.calls.clear();
    }
    if (below(2) == 0) {
      calls_.Look();
      plain.Look(finished);
      calls_.Submit(kWidth, kOfPlace);
      plain.Submit(kWidth, kOfPlace);
    }
    ASSERT_EQ(generator_->asked.size(), plain.submitted.size());
    ASSERT_EQ(calls_.size(), plain.calls.size());
    ASSERT_EQ(calls_.num_kept(), plain.kept.size());
    ASSERT_EQ(calls_.num_under_way(), plain.NumUnderWay());
    ASSERT_EQ(calls_.num_ripe(), plain.NumRipe());
    size_t bytes = 0;
    for (const auto& call : plain.calls) bytes += Text(call.text).bytes();
    ASSERT_EQ(calls_.bytes(), bytes);
  }
  for (size_t i = 0; i < plain.submitted.size(); ++i) {
    ASSERT_EQ(generator_->asked[i]->spec().text, std::to_string(plain.submitted[i]));
  }
  EXPECT_GT(plain.submitted.size(), 2000);
  calls_.Clear();
  EXPECT_EQ(calls_.num_under_way(), 0);
}

}  // namespace
}  // namespace lm

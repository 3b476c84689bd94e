// What requests take of their statement's budgets, and what they give back.
#include "extension/connection/spending_share.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "extension/batch/pending_answer.h"
#include "extension/connection/statement_call.h"
#include "extension/host/host.h"
#include "tests/engine/runtime/held_generator.h"

namespace lm {
namespace {

constexpr char kPrompt[] = "of 8 by.";  // two tokens, where four bytes are taken for one
constexpr int64_t kBudget = 100;
constexpr int64_t kMostAnswer = 20;

class SpendingShareTest : public testing::Test {
 protected:
  SpendingShareTest() {
    EXPECT_TRUE(AdoptHost(/*api=*/nullptr, /*message=*/nullptr));
    EXPECT_EQ(sqlite3_open_v2(":memory:", &db_, SQLITE_OPEN_READWRITE, nullptr), SQLITE_OK);
    connection_ = std::make_shared<Connection>(db_);
    call_.emplace(*connection_, "generate", keep_);
  }
  ~SpendingShareTest() override {
    call_.reset();
    work_.reset();
    connection_.reset();
    sqlite3_close(db_);
  }

  static std::shared_ptr<CallOptions> OptionsOf(const std::shared_ptr<HeldGenerator>& generator) {
    auto options = std::make_shared<CallOptions>(
        CallOptions{std::make_shared<ModelUse>(ModelUse{Session(generator, "")}), {}});
    options->generation.max_tokens = kMostAnswer;
    options->generation.max_total_tokens = kBudget;
    return options;
  }
  absl::StatusOr<SpendingShare> Take() const {
    return SpendingShare::Take(*options_, [this](const Session& session) {
      return session.Submit({.prompt = kPrompt, .options = options_->generation});
    });
  }
  // How many tokens are left of the budget.
  int64_t Left() const {
    const std::shared_ptr<Spending>& spending = StatementCall::Work()->spending();
    for (int64_t tokens = kBudget; tokens > 0; --tokens) {
      if (!spending->SetAside(options_->generation, {.tokens = tokens}).ok()) continue;
      spending->Settle({.tokens = tokens}, {});
      return tokens;
    }
    return 0;
  }

  sqlite3* db_ = nullptr;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<RunningWork> work_;
  const std::function<std::shared_ptr<RunningWork>*(bool)> keep_ = [this](bool) { return &work_; };
  std::optional<StatementCall> call_;
  std::shared_ptr<HeldGenerator> generator_ = std::make_shared<HeldGenerator>();
  std::shared_ptr<CallOptions> options_ = OptionsOf(generator_);
};

TEST_F(SpendingShareTest, HoldsTheMostThatARequestMayTakeUntilItIsSettled) {
  absl::StatusOr<SpendingShare> share = Take();
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_TRUE(generator_->asked.empty());
  EXPECT_EQ(Left(), kBudget - 2 - kMostAnswer);
  share->Settle({.tokens_in = 10, .tokens_out = 3});
  EXPECT_EQ(Left(), kBudget - 13);
  share->Settle({.tokens_in = 10, .tokens_out = 3});  // has no effect any more
  EXPECT_EQ(Left(), kBudget - 13);
}

TEST_F(SpendingShareTest, ARememberedAnswerTakesNothing) {
  absl::StatusOr<SpendingShare> share = Take();
  ASSERT_TRUE(share.ok()) << share.status();
  share->Settle({.remembered = true, .tokens_in = 10, .tokens_out = 3});
  EXPECT_EQ(Left(), kBudget);
}

TEST_F(SpendingShareTest, ARequestThatIsLeftHasTakenItsPrompt) {
  ASSERT_TRUE(Take().ok());
  EXPECT_EQ(Left(), kBudget - 2);
  absl::StatusOr<SpendingShare> share = Take();
  ASSERT_TRUE(share.ok()) << share.status();
  share->Abandon(3);
  EXPECT_EQ(Left(), kBudget - 2 - 5);
}

TEST_F(SpendingShareTest, ARequestThatIsRefusedTakesNothing) {
  generator_->room = 0;
  SpendingShare share;
  const auto refused = SpendingShare::Submit(
      *options_,
      [this](const Session& session) {
        return session.Submit({.prompt = kPrompt, .options = options_->generation});
      },
      &share);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_FALSE(share.holds());
  EXPECT_EQ(Left(), kBudget);
}

TEST_F(SpendingShareTest, AnAnswerThatNobodyCollectsTakesWhatItTook) {
  {
    PendingAnswer pending({.prompt = kPrompt, .options = options_});
    EXPECT_TRUE(pending.Submit());
    generator_->Say(0, "yes");
    EXPECT_EQ(Left(), kBudget - 22);
  }
  EXPECT_EQ(Left(), kBudget - 12);
}

TEST_F(SpendingShareTest, MovesAsOne) {
  SpendingShare first = *Take();
  SpendingShare second = std::move(first);
  EXPECT_EQ(Left(), kBudget - 22);
  first = *Take();
  EXPECT_EQ(Left(), kBudget - 44);
  second = std::move(first);  // the one before is left
  EXPECT_EQ(Left(), kBudget - 22 - 2);
  second.Settle({.tokens_in = 2, .tokens_out = 1});
  EXPECT_EQ(Left(), kBudget - 3 - 2);
}

TEST_F(SpendingShareTest, IsRefusedWhereTheBudgetHasNotThatMuchLeft) {
  std::vector<SpendingShare> shares;
  for (int i = 0; i < kBudget / 22; ++i) shares.push_back(*Take());
  EXPECT_EQ(Take().status().code(), absl::StatusCode::kFailedPrecondition);
  shares.pop_back();
  EXPECT_TRUE(Take().ok());
}

TEST_F(SpendingShareTest, OfARowThatIsHandedOnAndRefusedTheFirstAnswerIsPaidOnce) {
  auto large = std::make_shared<HeldGenerator>();
  large->room = 0;
  const Escalation escalation{.options = OptionsOf(large),
                              .below = 0.5,
                              .confidence = [](const Generation&) { return 0.; }};
  PendingAnswer row({.prompt = kPrompt,
                     .system = std::nullopt,
                     .options = options_,
                     .escalation = std::make_shared<Escalation>(escalation)});
  ASSERT_TRUE(row.Submit());
  generator_->Say(0, "no");
  row.Collect();
  EXPECT_TRUE(row.escalated());
  EXPECT_TRUE(large->asked.empty());
  EXPECT_EQ(Left(), kBudget - 12);
  large->room = 1;
  EXPECT_TRUE(row.Submit());
  EXPECT_EQ(large->asked.size(), 1);
  EXPECT_EQ(Left(), kBudget - 12 - 30);  // two tokens were guessed where the first one had ten
}

// Rows of a template, then one that is long; texts of which a byte is a token or more.
TEST(SpendingTest, PromptsAreReckonedByALineThroughThoseThatCame) {
  Spending templates, dense, alike;
  EXPECT_EQ(templates.PromptTokens(7), 7);
  for (const int64_t guessed : {2, 10, 100}) {
    templates.NotePrompt(guessed, guessed + 70);
    dense.NotePrompt(guessed, guessed * 5 / 2);
    alike.NotePrompt(2, 72);
  }
  EXPECT_NEAR(static_cast<double>(templates.PromptTokens(5000)), 5070, 1);
  EXPECT_NEAR(static_cast<double>(dense.PromptTokens(1000)), 2500, 1);
  EXPECT_EQ(alike.PromptTokens(2), 72);
  EXPECT_EQ(alike.PromptTokens(5000), 4 * 5000 + 64);  // a token has a byte
}

}  // namespace
}  // namespace lm

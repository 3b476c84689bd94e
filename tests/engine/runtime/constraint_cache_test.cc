#include "engine/runtime/constraint_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

class ConstraintCacheTest : public testing::Test {
 protected:
  std::shared_ptr<const CompiledConstraint> Get(Kind kind, const std::string& text) {
    auto compiled = cache_.Get({kind, text});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.value_or(nullptr);
  }

  std::unique_ptr<Model> model_ = MakeScriptedModel(std::make_shared<Script>());
  ConstraintCache cache_{&model_->tokenizer()};
};

TEST_F(ConstraintCacheTest, EqualConstraintsAreCompiledOnce) {
  const auto first = Get(Kind::kRegex, "[0-9]+");
  EXPECT_EQ(Get(Kind::kRegex, "[0-9]+"), first);
  EXPECT_NE(Get(Kind::kRegex, "[0-9]*"), first);
  EXPECT_NE(Get(Kind::kChoices, R"(["[0-9]+"])"), first);
  EXPECT_EQ(Get(Kind::kRegex, "[0-9]+"), first);
}

TEST_F(ConstraintCacheTest, TheOldestGo) {
  const auto first = Get(Kind::kRegex, "a");
  const auto second = Get(Kind::kRegex, "b");
  for (size_t i = 0; i < ConstraintCache::kMaxConstraints - 1; ++i) {
    Get(Kind::kRegex, absl::StrCat("x", i));
    EXPECT_EQ(Get(Kind::kRegex, "a"), first);  // used again and again
  }
  EXPECT_EQ(Get(Kind::kRegex, "a"), first);
  EXPECT_NE(Get(Kind::kRegex, "b"), second);
}

TEST_F(ConstraintCacheTest, BeginStandsBehindStart) {
  const auto compiled = Get(Kind::kRegex, "abc[de]");
  EXPECT_EQ(compiled->start, Bytes("abc"));
  GrammarMatcher matcher = compiled->begin;
  EXPECT_FALSE(matcher.Accept('a').ok());
  EXPECT_TRUE(matcher.Accept('d').ok());
  EXPECT_TRUE(matcher.IsComplete());
  EXPECT_FALSE(compiled->begin.IsComplete());
}

TEST_F(ConstraintCacheTest, ErrorsAreNotKept) {
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(cache_.Get({Kind::kRegex, "("}).ok());
}

TEST_F(ConstraintCacheTest, ManyThreadsShareOneResult) {
  std::vector<std::shared_ptr<const CompiledConstraint>> results(8);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = Get(Kind::kSchema, R"({"type": "object"})"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, Get(Kind::kSchema, R"({"type": "object"})"));
}

}  // namespace
}  // namespace lm

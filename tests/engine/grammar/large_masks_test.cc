// Masks over a large vocabulary, where runs of characters and free texts are taken as a whole, are
// those that trying every token gives.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

std::vector<std::shared_ptr<const Grammar>> GrammarsOfRuns() {
  std::vector<std::shared_ptr<const Grammar>> grammars;
  for (const char* regex :
       {"[a-z]+", "[a-z ]*!", " [a-z]+( [a-z]+)*", "[a-z]{1,9}", "[a-z ]{3,12}\\.", "[^/]+/[^/]+",
        "[^0-9éü]*", "[ -~]{0,40}", "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "([a-z]+-)*[0-9]+",
        "[a-z ]*(é[a-z ]*)*", "([^e]|e[^t])*", "(t|th|[^t].*|t[^h].*|th[^e].*)"}) {
    grammars.push_back(ValueOrDie(CompileRegex(regex)));
  }
  for (const char* schema :
       {R"({"type":"object","properties":{"title":{"type":"integer"},"tone":{"type":"null"}}})",
        R"({"type":"object","patternProperties":{"^[a-m]":{"type":"null"}}})",
        R"({"type":"object","properties":{"日本":{"type":"null"},"éa":{"type":"null"}}})",
        R"({"type":"string","pattern":"^[a-z]+( [a-z]+){0,3}$","maxLength":30})",
        R"({"not":{"enum":["the","then"]},"type":"string"})"}) {
    grammars.push_back(ValueOrDie(CompileJsonSchema(schema, {.additional = true})));
  }
  return grammars;
}

// In turns of so much work as the one that is given.
std::vector<uint64_t> MaskInTurns(GrammarMatcher* matcher, int64_t turn) {
  std::vector<uint64_t> mask(matcher->mask_words());
  for (;;) {
    int64_t work = turn;
    const absl::Status status = matcher->FillMask(absl::MakeSpan(mask), &work);
    if (status.ok()) return mask;
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    if (!absl::IsUnavailable(status)) return {};
  }
}

TEST(LargeMasksTest, EqualBruteForce) {
  const auto trie = TrieOf(LargeVocabulary(40'000));
  std::mt19937 dice(5);
  int number = 0;
  for (const auto& grammar : GrammarsOfRuns()) {
    SCOPED_TRACE(number++);
    const auto constraint = ValueOrDie(Constraint::Create(grammar, trie));
    const auto in_turns = ValueOrDie(Constraint::Create(grammar, trie));
    for (int walk = 0; walk < 3; ++walk) {
      GrammarMatcher matcher(constraint), other(in_turns);
      for (int step = 0; step < 6 && !matcher.IsComplete(); ++step) {
        const std::vector<bool> mask = MaskOf(&matcher, *trie);
        ASSERT_EQ(mask, BruteForceMask(matcher, *trie)) << "step " << step;
        const std::vector<uint64_t> turns = MaskInTurns(&other, 20'000);
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < trie->num_tokens(); ++id) {
          ASSERT_EQ(mask[id], turns[id / 64] >> (id % 64) & 1) << id;
          if (mask[id] && !trie->IsEndOfGeneration(id)) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        const int32_t token = allowed[dice() % allowed.size()];
        ASSERT_TRUE(matcher.Accept(token).ok());
        ASSERT_TRUE(other.Accept(token).ok());
      }
    }
  }
}

}  // namespace
}  // namespace lm

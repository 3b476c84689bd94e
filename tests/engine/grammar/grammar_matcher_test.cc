#include "engine/grammar/grammar_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/base/failing_allocation.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kFirstByte = 3;
int32_t ByteToken(char c) { return kFirstByte + static_cast<uint8_t>(c); }

std::shared_ptr<Constraint> Bind(std::shared_ptr<const Grammar> grammar,
                                 std::shared_ptr<const TokenTrie> trie,
                                 size_t cache_bytes = Constraint::kDefaultCacheBytes) {
  return ValueOrDie(Constraint::Create(std::move(grammar), std::move(trie), cache_bytes));
}

// Grammars of every kind of shape. A random walk comes to an end in the first kNumThatEnd.
constexpr int kNumThatEnd = 10;
std::vector<std::shared_ptr<const Grammar>> SomeGrammars() {
  return {
      ValueOrDie(CompileChoices({"the", "theory", "a", "日本語", "😀😀"})),
      ValueOrDie(CompileRegex(".*")),
      ValueOrDie(CompileRegex("(.|\\n){0,20}")),
      ValueOrDie(CompileRegex("[^\"\\\\]{3,40}!")),
      ValueOrDie(CompileRegex("(ab|a|ba)*c?")),
      ValueOrDie(CompileRegex("\\d{1,4}(\\.\\d+)?([eE][+-]?\\d)?")),
      ValueOrDie(CompileRegex("[a-zà-ÿ日-本]+( the [a-z]{2})*")),
      ValueOrDie(CompileRegex("(?i:the|[\\p{Lu}é]{2}) \\P{L}{0,9}")),
      ValueOrDie(CompileRegex("(^a|.*\\bthe\\b|[\\p{L}\\d]{2,9}\\B)(x$| |b?)")),
      ValueOrDie(CompileGbnf("root ::= v\nv ::= \"[\" (v (\", \" v)*)? \"]\" | s | \"{}\"\n"
                             "s ::= \"\\\"\" ([^\"\\\\\\n] | \"\\\\\" [\"n])* \"\\\"\"")),
      ValueOrDie(CompileGbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"")),
      ValueOrDie(CompileGbnf("root ::= \"a\" root root | \"ab\"")),
  };
}

TEST(GrammarMatcherTest, MasksEqualBruteForceCachedOrNot) {
  const auto trie = TrieOf(SomeVocabulary());
  std::mt19937 dice(11);
  int number = 0;
  for (const auto& grammar : SomeGrammars()) {
    SCOPED_TRACE(number++);
    const auto cached = Bind(grammar, trie);
    const auto uncached = Bind(grammar, trie, /*cache_bytes=*/0);
    for (int walk = 0; walk < 4; ++walk) {
      GrammarMatcher a(cached), b(uncached);
      for (int step = 0; step < 30 && !a.IsComplete(); ++step) {
        const std::vector<bool> mask = MaskOf(&a, *trie);
        ASSERT_EQ(mask, MaskOf(&a, *trie));
        ASSERT_EQ(mask, MaskOf(&b, *trie));
        ASSERT_EQ(mask, BruteForceMask(a, *trie));
        ASSERT_EQ(a.CanEnd(), b.CanEnd());
        ASSERT_EQ(*a.ForcedBytes(), *b.ForcedBytes());
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < trie->num_tokens(); ++id) {
          if (!trie->IsEndOfGeneration(id) && mask[id]) allowed.push_back(id);
        }
        ASSERT_FALSE(allowed.empty());
        const int32_t token = allowed[dice() % allowed.size()];
        ASSERT_TRUE(a.Accept(token).ok());
        ASSERT_TRUE(b.Accept(token).ok());
      }
    }
  }
}

// Others follow the same constraint when memory has run out for one, at whatever allocation.
TEST(GrammarMatcherTest, AFailedAllocationSpoilsNothingForThoseWhoComeLater) {
  const auto trie = TrieOf(SomeVocabulary());
  const std::string text = "[[\"a\\n\", {}], \"the \\\"\"]";
  const auto grammar = SomeGrammars()[9];  // lists and strings
  const auto shared = Bind(grammar, trie);
  std::vector<uint64_t> mask(trie->mask_words());
  const int failed = FailEachAllocation([&] {
    GrammarMatcher matcher(shared);
    for (const char c : text) {
      if (!matcher.FillMask(absl::MakeSpan(mask)).ok()) return;
      if (!matcher.Accept(ByteToken(c)).ok()) return;
    }
  });
  EXPECT_GT(failed, 40);
  GrammarMatcher a(shared), b(Bind(grammar, trie));
  for (const char c : text) {
    ASSERT_EQ(MaskOf(&a, *trie), MaskOf(&b, *trie)) << "before " << c;
    ASSERT_TRUE(a.Accept(ByteToken(c)).ok());
    ASSERT_TRUE(b.Accept(ByteToken(c)).ok());
  }
}

TEST(GrammarMatcherTest, RandomWalksEndInTextsOfTheGrammar) {
  const auto trie = TrieOf(SomeVocabulary());
  std::mt19937 dice(12);
  for (int i = 0; i < kNumThatEnd; ++i) {
    const auto grammar = SomeGrammars()[i];
    const auto constraint = Bind(grammar, trie);
    for (int walk = 0; walk < 50; ++walk) {
      const std::string text = ValueOrDie(RandomText(constraint, &dice, 40, 20000));
      ASSERT_TRUE(Accepts(grammar, text)) << text;
    }
  }
}

TEST(GrammarMatcherTest, TheEndIsAllowedOnlyAtAnEnd) {
  const auto trie = TrieOf(SomeVocabulary());
  GrammarMatcher matcher(Bind(ValueOrDie(CompileChoices({"a", "ab"})), trie));
  EXPECT_FALSE(matcher.CanEnd());
  std::vector<bool> mask = MaskOf(&matcher, *trie);
  EXPECT_FALSE(mask[0] || mask[1] || mask[2]);
  EXPECT_TRUE(mask[ByteToken('a')]);
  EXPECT_THAT(std::string(matcher.Accept(0).message()),
              HasSubstr("token 0 ends the text where the grammar does not"));

  ASSERT_TRUE(matcher.Accept(ByteToken('a')).ok());
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.IsComplete());
  mask = MaskOf(&matcher, *trie);
  EXPECT_TRUE(mask[0] && mask[1]);
  EXPECT_FALSE(mask[2]);

  GrammarMatcher other = matcher;
  ASSERT_TRUE(other.Accept(ByteToken('b')).ok());
  EXPECT_TRUE(other.IsComplete());
  EXPECT_FALSE(matcher.IsComplete());

  ASSERT_TRUE(matcher.Accept(1).ok());
  EXPECT_TRUE(matcher.ended());
  EXPECT_EQ(MaskOf(&matcher, *trie), std::vector<bool>(trie->num_tokens()));
  EXPECT_FALSE(matcher.Accept(ByteToken('b')).ok());
  EXPECT_FALSE(matcher.AcceptBytes("b").ok());
  EXPECT_EQ(*matcher.ForcedBytes(), "");
}

TEST(GrammarMatcherTest, ARefusedTokenChangesNothing) {
  const auto trie = TrieOf(SomeVocabulary());
  GrammarMatcher matcher(Bind(ValueOrDie(CompileRegex("abx")), trie));
  EXPECT_THAT(std::string(matcher.AcceptBytes("ac\n").message()),
              HasSubstr("\"ac\\n\" is not allowed by the grammar here"));
  EXPECT_FALSE(matcher.Accept(-1).ok());
  EXPECT_FALSE(matcher.Accept(trie->num_tokens()).ok());
  EXPECT_FALSE(matcher.Accept(2).ok());
  EXPECT_FALSE(matcher.AcceptBytes("abc").ok());
  EXPECT_TRUE(matcher.AcceptBytes("ab").ok());
  EXPECT_TRUE(matcher.AcceptBytes("x").ok());
  EXPECT_TRUE(matcher.IsComplete());
}

TEST(GrammarMatcherTest, RollbackReturns) {
  const auto trie = TrieOf(SomeVocabulary());
  // A cache of nothing, so that places are in many caches.
  GrammarMatcher matcher(Bind(ValueOrDie(CompileRegex("[ab]*c")), trie, 0));
  std::vector<std::vector<bool>> masks = {MaskOf(&matcher, *trie)};
  for (char c : std::string("abbac")) {
    ASSERT_TRUE(matcher.Accept(ByteToken(c)).ok());
    masks.push_back(MaskOf(&matcher, *trie));
  }
  ASSERT_TRUE(matcher.Accept(0).ok());
  ASSERT_TRUE(matcher.Rollback(0).ok());
  ASSERT_TRUE(matcher.Rollback(1).ok());
  EXPECT_FALSE(matcher.ended());
  EXPECT_TRUE(matcher.IsComplete());
  ASSERT_TRUE(matcher.Rollback(3).ok());
  EXPECT_EQ(MaskOf(&matcher, *trie), masks[2]);
  EXPECT_THAT(std::string(matcher.Rollback(3).message()),
              HasSubstr("cannot take back 3 tokens, only 2"));
  ASSERT_TRUE(matcher.Rollback(2).ok());
  EXPECT_EQ(MaskOf(&matcher, *trie), masks[0]);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(matcher.Accept(ByteToken('a')).ok());
  EXPECT_FALSE(matcher.Rollback(GrammarMatcher::kMaxRollback + 1).ok());
  EXPECT_TRUE(matcher.Rollback(GrammarMatcher::kMaxRollback).ok());
}

TEST(GrammarMatcherTest, ForcedBytesAreThoseOfEveryText) {
  const auto trie = TrieOf(SomeVocabulary());
  GrammarMatcher matcher(
      Bind(ValueOrDie(CompileRegex("\\{\"name\": \"(Anna|Annika)[0-9]\"\\}")), trie));
  EXPECT_EQ(*matcher.ForcedBytes(), "{\"name\": \"Ann");
  ASSERT_TRUE(matcher.AcceptBytes("{\"name\": \"Anna").ok());
  EXPECT_EQ(*matcher.ForcedBytes(), "");
  ASSERT_TRUE(matcher.AcceptBytes("7").ok());
  EXPECT_EQ(*matcher.ForcedBytes(), "\"}");

  GrammarMatcher maybe_over(Bind(ValueOrDie(CompileRegex("ab(cd)?")), trie));
  EXPECT_EQ(*maybe_over.ForcedBytes(), "ab");
  ASSERT_TRUE(maybe_over.AcceptBytes("ab").ok());
  EXPECT_EQ(*maybe_over.ForcedBytes(), "");

  GrammarMatcher endless(Bind(ValueOrDie(CompileRegex("a{5000}")), trie));
  EXPECT_EQ(endless.ForcedBytes()->size(), GrammarMatcher::kMaxForcedBytes);
}

TEST(GrammarMatcherTest, ForcedTokensLeaveTheBoundaryToTheModel) {
  const std::vector<std::string> vocabulary =
      SomeVocabulary({"{\"", "name", "\":", "names", "\": \"", "é"});
  const auto trie = TrieOf(vocabulary);
  // Longest first, as a stand-in for a tokenizer.
  auto tokenize = [&](absl::string_view text) {
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      int32_t best = -1;
      for (int32_t id = kFirstByte; id < trie->num_tokens(); ++id) {
        const absl::string_view bytes = trie->TokenBytes(id);
        if (text.substr(0, bytes.size()) == bytes &&
            (best < 0 || bytes.size() > trie->TokenBytes(best).size())) {
          best = id;
        }
      }
      tokens.push_back(best);
      text.remove_prefix(trie->TokenBytes(best).size());
    }
    return tokens;
  };
  auto texts = [&](const std::vector<int32_t>& tokens) {
    std::vector<std::string> result;
    for (int32_t token : tokens) result.push_back(vocabulary[token]);
    return result;
  };
  // Behind {"name":  comes a space or not, so the token ": " could be meant: ": is left out.
  GrammarMatcher open(Bind(ValueOrDie(CompileRegex("\\{\"name\": ?\"x\"\\}")), trie));
  EXPECT_THAT(texts(*open.ForcedTokens(tokenize)), ElementsAre("{\"", "name"));
  // Here nothing longer than the forced text is possible.
  GrammarMatcher closed(Bind(ValueOrDie(CompileRegex("\\{\"name\":[0-9]\\}")), trie));
  EXPECT_THAT(texts(*closed.ForcedTokens(tokenize)), ElementsAre("{\"", "name", "\":"));
  // name or names, and the vocabulary has names.
  GrammarMatcher plural(Bind(ValueOrDie(CompileRegex("\\{\"names?\":1\\}")), trie));
  EXPECT_THAT(texts(*plural.ForcedTokens(tokenize)), ElementsAre("{\""));
  // All of é and è is forced but the last byte, which is no text.
  GrammarMatcher half(Bind(ValueOrDie(CompileRegex("[éè]")), trie));
  EXPECT_EQ(*half.ForcedBytes(), "\xc3");
  EXPECT_TRUE(half.ForcedTokens(tokenize)->empty());
  // The text's tail may be cut anew together with what is forced: the token before was `{`.
  GrammarMatcher inside(Bind(ValueOrDie(CompileRegex("\\{(\"name\":[0-9]\\})?")), trie));
  ASSERT_TRUE(inside.AcceptBytes("{\"").ok());
  EXPECT_THAT(texts(*inside.ForcedTokens(tokenize)), ElementsAre("name", "\":"));
  EXPECT_THAT(texts(*inside.ForcedTokens(tokenize, "\"")), ElementsAre("\"", "name", "\":"));
  EXPECT_THAT(texts(*inside.ForcedTokens(tokenize, "{\"")), ElementsAre("{\"", "name", "\":"));
  // Nothing is certain about a tail that a longer token could take in, and nothing follows it here.
  GrammarMatcher either(Bind(ValueOrDie(CompileRegex("nam(e|es)[ab]")), trie));
  ASSERT_TRUE(either.AcceptBytes("n").ok());
  EXPECT_TRUE(either.ForcedTokens(tokenize, "n")->empty());
  ASSERT_TRUE(either.AcceptBytes("amea").ok());
  EXPECT_TRUE(either.ForcedTokens(tokenize, "a")->empty());
  // A tail that begins within a character is no text.
  GrammarMatcher accent(Bind(ValueOrDie(CompileRegex("éx")), trie));
  ASSERT_TRUE(accent.AcceptBytes("é").ok());
  EXPECT_TRUE(accent.ForcedTokens(tokenize, "\xa9")->empty());
  EXPECT_THAT(texts(*accent.ForcedTokens(tokenize, "é")), ElementsAre("é", "x"));
  // A tokenizer that makes something else of it is not believed.
  EXPECT_TRUE(
      closed.ForcedTokens([](absl::string_view) {
              return std::vector<int32_t>{-1, 99999};
            })
          ->empty());
}

TEST(GrammarMatcherTest, SaysWhenTheVocabularyCannotGoOn) {
  std::vector<absl::string_view> bytes = {"", "a"};
  auto trie = ValueOrDie(TokenTrie::Create(bytes, {0}));
  GrammarMatcher matcher(Bind(ValueOrDie(CompileRegex("a*b")), trie));
  std::vector<uint64_t> mask(trie->mask_words());
  EXPECT_TRUE(matcher.FillMask(absl::MakeSpan(mask)).ok());
  GrammarMatcher stuck(Bind(ValueOrDie(CompileRegex("b")), trie));
  EXPECT_EQ(stuck.FillMask(absl::MakeSpan(mask)).code(), absl::StatusCode::kFailedPrecondition);
  std::vector<uint64_t> wrong(mask.size() + 1);
  EXPECT_THAT(std::string(matcher.FillMask(absl::MakeSpan(wrong)).message()),
              HasSubstr("a mask must have 1 words, got 2"));
}

TEST(GrammarMatcherTest, AmbiguityBeyondReasonIsAnError) {
  const auto trie = TrieOf(SomeVocabulary());
  std::string many;
  for (int i = 0; i < 3000; ++i)
    many += "root" + std::to_string(i) + " ::= \"x\" root" + std::to_string((i * 7 + 1) % 3000) +
            "? [a-z]{0,40}\n";
  auto start = std::chrono::steady_clock::now();
  std::string alternatives = "root ::= root0";
  for (int i = 1; i < 3000; ++i) alternatives += " | root" + std::to_string(i);
  auto wide = CompileGbnf(alternatives + "\n" + many);
  ASSERT_TRUE(wide.ok()) << wide.status();
  auto constraint = Constraint::Create(*wide, trie);
  ASSERT_TRUE(constraint.ok());
  GrammarMatcher matcher(*constraint);
  absl::Status status = absl::OkStatus();
  std::vector<uint64_t> mask(trie->mask_words());
  for (int i = 0; i < 60 && status.ok(); ++i) {
    status = matcher.FillMask(absl::MakeSpan(mask));
    if (status.ok()) status = matcher.Accept(ByteToken('x'));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("too ambiguous"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// Calls until it is not Unavailable; how often it was.
template <typename Call>
int Turns(int64_t work_each, Call call) {
  int turns = 0;
  for (;; ++turns) {
    int64_t work = work_each;
    if (!absl::IsUnavailable(call(&work))) return turns;
    // At least something was done: this comes to an end.
    EXPECT_LE(work, 0);
  }
}

TEST(GrammarMatcherTest, TurnsMakeTheSameAsOneCall) {
  const auto trie = TrieOf(LargeVocabulary(20000));
  const auto grammar = ValueOrDie(CompileRegex("((.{0,20}a){0,9}[^x]{0,20}b){1,9} the end"));
  // One with caches of nothing: between the turns of one call a place must stay in its cache.
  GrammarMatcher whole(Bind(grammar, trie)), pieces(Bind(grammar, trie, 0));
  std::mt19937 dice(5);
  int turns = 0;
  for (int step = 0; step < 12; ++step) {
    std::vector<uint64_t> mask(trie->mask_words()), other(trie->mask_words());
    ASSERT_TRUE(whole.FillMask(absl::MakeSpan(mask)).ok());
    turns += Turns(100'000, [&](int64_t* work) {
      const absl::Status status = pieces.FillMask(absl::MakeSpan(other), work);
      EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
      return status;
    });
    ASSERT_EQ(mask, other);
    std::vector<int32_t> allowed;
    for (int32_t id = 2; id < trie->num_tokens(); ++id) {
      if (mask[id / 64] >> (id % 64) & 1) allowed.push_back(id);
    }
    const int32_t token = allowed[dice() % allowed.size()];
    ASSERT_TRUE(whole.Accept(token).ok());
    Turns(1000, [&](int64_t* work) { return pieces.Accept(token, work); });
    ASSERT_EQ(whole.CanEnd(), pieces.CanEnd());
    Turns(1000, [&](int64_t* work) {
      const auto forced = pieces.ForcedBytes(work);
      EXPECT_TRUE(!forced.ok() || *forced == *whole.ForcedBytes());
      return forced.status();
    });
  }
  EXPECT_GT(turns, 50);
}

// What is too much is so whatever other rows have computed before.
TEST(GrammarMatcherTest, LimitsDoNotDependOnTheCache) {
  const auto trie = TrieOf(LargeVocabulary(5000));
  const auto grammar = ValueOrDie(CompileRegex("((.{0,40}a){0,40}.{0,40}b){0,40}"));
  const std::string text = "bab aaa the a bb ab";
  auto bind = [&](size_t cache_bytes, size_t operation_bytes) {
    return ValueOrDie(Constraint::Create(grammar, trie, cache_bytes, operation_bytes));
  };
  // The error that following `text` ends with, and after how many bytes.
  auto follow = [&](const std::shared_ptr<Constraint>& constraint) {
    GrammarMatcher matcher(constraint);
    std::vector<uint64_t> mask(trie->mask_words());
    for (size_t i = 0; i < text.size(); ++i) {
      absl::Status status = matcher.FillMask(absl::MakeSpan(mask));
      if (status.ok()) status = matcher.Accept(ByteToken(text[i]));
      if (!status.ok()) return std::to_string(i) + ": " + std::string(status.message());
    }
    return std::string("whole");
  };
  EXPECT_EQ(follow(bind(64 << 20, 256 << 20)), "whole");
  for (size_t operation_bytes : {10'000u, 100'000u, 400'000u, 1'000'000u, 3'000'000u}) {
    const auto kept = bind(64 << 20, operation_bytes);
    const std::string first = follow(kept);
    EXPECT_EQ(follow(kept), first);
    EXPECT_EQ(follow(kept), first);
    EXPECT_EQ(follow(bind(0, operation_bytes)), first);
    if (operation_bytes < 100'000) {
      EXPECT_THAT(first, HasSubstr("what may come next takes more than 9 KiB of states"));
    }
  }
  EXPECT_THAT(follow(bind(64 << 20, 2'500'000)), HasSubstr("to follow this text took more than"));
}

TEST(GrammarMatcherTest, OneConstraintServesManyThreads) {
  const auto trie = TrieOf(SomeVocabulary());
  const auto grammar = SomeGrammars()[7];
  // Small, so that caches come and go meanwhile.
  const auto constraint = Bind(grammar, trie, 100000);
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 dice(99);
      for (int walk = 0; walk < 10; ++walk) {
        texts[t] += ValueOrDie(RandomText(constraint, &dice, 40, 20000)) + "\n";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_GT(texts[0].size(), 100);
}

TEST(TokenTrieTest, RefusesForeignEnds) {
  std::vector<absl::string_view> bytes = {"a", "b"};
  EXPECT_THAT(std::string(TokenTrie::Create(bytes, {2}).status().message()),
              HasSubstr("end-of-generation token 2 is not in the vocabulary of 2 tokens"));
  EXPECT_FALSE(TokenTrie::Create(bytes, {-1}).ok());
  EXPECT_TRUE(TokenTrie::Create({}, {}).ok());
}

}  // namespace
}  // namespace lm

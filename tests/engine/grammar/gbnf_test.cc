#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/state_machine.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using testing::HasSubstr;

struct Case {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

TEST(GbnfTest, AcceptsAndRejects) {
  const std::vector<Case> cases = {
      {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
      {"# comment\n\nroot ::= x y # more\nx ::= \"1\" | \"2\"\ny ::= x?\n",
       {"1", "2", "12", "22"},
       {"", "3", "111"}},
      {"root ::= \"a\" |\n  \"b\"\n  | \"c\"\n", {"a", "b", "c"}, {"ab"}},
      {"root ::=\n  \"a\" (\n \"b\" # inside\n |\n \"c\" )\n", {"ab", "ac"}, {"a", "abc"}},
      {"root ::= [a-c]+ [^\\]x\\n] [\\x41é-]",
       {"ay"
        "A",
        "abc"
        "éé",
        "c日-"},
       {"axA", "a]A", "yA"}},
      {"root ::= . \"\\u00e9\\U0001F600\\x41\\\"\\\\\\n\"",
       {"日é\xf0\x9f\x98\x80"
        "A\"\\\n"},
       {"é"}},
      {"root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\"{ ,1}",
       {"aab", "aabbbccd", "aabc"},
       {"ab", "aa", "aabccc", "aabdd"}},
      {"root ::= (\"ab\" | \"c\")* x-1\nx-1 ::= \"!\"", {"!", "abcab!"}, {"ab", "a!"}},
      {"root ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"nt] [\\x00-\\x02\\u0000])* "
       "\"\\\"\"",
       {"\"\"", "\"aé\"", "\"a\\n\x01\""},
       {"\"\x01\"", "\"\x7f\"", "\"\\n\"", "\"\\n\x03\"", "\"\\\""}},
      {"root ::= \"a\" | [\\x00]", {"a"}, {"", "b"}},
      {"root ::= \"\"", {""}, {"a"}},
      {"root ::= | \"a\"", {"", "a"}, {"b"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
      {"root ::= \"a\" root | \"b\"", {"b", "aaaaab"}, {"a", "ba"}},
      {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
       {"1", "12+(3+4)", "((1))"},
       {"+", "(1", "1+", "()"}},
      {"root ::= p\np ::= \"a\" p \"a\" | \"b\" p \"b\" | \"\"",
       {"", "aa", "abba", "abbbba"},
       {"a", "ab", "aba"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.grammar);
    auto grammar = ValueOrDie(CompileGbnf(c.grammar));
    for (const std::string& text : c.accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(GbnfTest, RefusesWithThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no rule named root"},
      {"x ::= \"a\"", "no rule named root"},
      {"root ::= \"a\"\nroot ::= \"b\"", "rule root is defined twice, at line 2 column 1"},
      {"root ::= a\n", "rule a is not defined, at line 1 column 10"},
      {"root = \"a\"", "::= was expected behind a rule's name, at line 1 column 6"},
      {"root ::= \"a", "a '\"' without its end, at line 1 column 10"},
      {"root ::= [a", "a '[' without ']'"},
      {"root ::= (\"a\"\n", "a '(' without ')', at line 1 column 10"},
      {"root ::= \"a\")", "a ')' without '('"},
      {"root ::= * \"a\"", "nothing to repeat"},
      {"root ::= \"a\"{x}", "a repetition is written {m}, {m,} or {m,n}"},
      {"root ::= \"a\"{2,1}", "a repetition whose counts go backwards"},
      {"root ::= \"a\"{1000000}", "a repetition above the limit 100000"},
      {"root ::= [z-a]", "a range that goes backwards"},
      {"root ::= \"\\q\"", "an escape that is not known, at line 1 column 11"},
      {"root ::= \"\\x4\"", "an escape with too few hex digits"},
      {"root ::= \"\\ud800\"", "an escape that is no character"},
      {"root ::= \"\\x00\"", "an escape that is no character, or is NUL, at line 1 column 11"},
      {"root ::= [\\ud800]", "an escape that is no character"},
      {"root ::= [a-\\x00]", "a range that goes backwards"},
      {"root ::= [\\x00]", "no text fits: grammar: a class without a character"},
      {"root ::= <think>", "a token reference (<...>) is not supported, at line 1 column 10"},
      {"root ::= !<[7]>", "a token reference"},
      {"root ::= ,", "',' was not expected"},
      {"root ::= root \"a\" | \"b\"",
       "rule root begins with itself (root -> root): left recursion is not supported"},
      {"root ::= a\na ::= b? c \"x\"\nb ::= \"y\"\nc ::= a | \"z\"",
       "rule a begins with itself (a -> c -> a)"},
      {"root ::= \"a\" root",
       "no text fits: root never ends, since it always asks for itself again"},
      {"root ::= a\na ::= \"x\" b\nb ::= \"y\" a | \"z\" b",
       "no text fits: a never ends, since it always asks for itself again"},
      {"root ::= \"a\" b \"c\"?\nb ::= [^\\x01-\\U0010FFFF]",
       "no text fits: grammar: a class without a character, at line 2 column 7"},
      {"root ::= \"\xff\"", "not valid UTF-8, at byte 10"},
  };
  for (const auto& [text, message] : cases) {
    auto grammar = CompileGbnf(text);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << text;
  }
}

TEST(GbnfTest, DepthAndSizeHaveLimits) {
  auto nested = [](int depth) {
    return "root ::= " + std::string(depth, '(') + "\"a\"" + std::string(depth, ')');
  };
  EXPECT_TRUE(CompileGbnf(nested(kMaxGrammarDepth)).ok());
  EXPECT_THAT(std::string(CompileGbnf(nested(kMaxGrammarDepth + 1)).status().message()),
              HasSubstr("too deep: groups within groups, limit 100"));
  std::string rules = "root ::= \"a\"\n";
  for (int i = 0; i < 70000; ++i) absl::StrAppend(&rules, "r", i, "::=\"\"\n");
  EXPECT_THAT(std::string(CompileGbnf(rules).status().message()),
              HasSubstr("too large: it needs more than 65536 rules"));
  // A chain of rules as long as the limits allow takes no stack.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 50000; ++i) absl::StrAppend(&chain, "r", i, "::=r", i + 1, "\n");
  chain += "r50000::=\"x\"\n";
  EXPECT_TRUE(Accepts(ValueOrDie(CompileGbnf(chain)), "x"));
}

TEST(GbnfTest, AmbiguityStaysPolynomial) {
  // Exponentially many ways to read a text.
  auto grammar =
      ValueOrDie(CompileGbnf("root ::= a a a a a a a a\na ::= b? b? b? b? b?\n"
                             "b ::= c? c? c?\nc ::= \"x\"+ | \"x\" c"));
  EXPECT_TRUE(Accepts(grammar, std::string(200, 'x')));
  EXPECT_FALSE(Accepts(grammar, std::string(200, 'x') + "y"));
  auto nested = ValueOrDie(CompileGbnf("root ::= \"x\" root root | \"x\""));
  EXPECT_TRUE(Accepts(nested, std::string(101, 'x')));
  EXPECT_FALSE(Accepts(nested, std::string(100, 'x')));
}

TEST(GbnfTest, DeepRecursionOfTheTextTakesNoStack) {
  auto grammar = ValueOrDie(CompileGbnf("root ::= \"(\" root \")\" | \"x\""));
  const std::string open(20000, '('), close(20000, ')');
  EXPECT_TRUE(Accepts(grammar, open + "x" + close));
  EXPECT_FALSE(Accepts(grammar, open + "x" + close + ")"));
}

// Does `rule` derive text[from, to)? Straight from the definition.
class Oracle {
 public:
  // Rules by number; an item below 0 is rule -1 - item, else a letter.
  using Rules = std::vector<std::vector<std::vector<int>>>;
  Oracle(const Rules& rules, const std::string& text) : rules_(rules), text_(text) {}
  bool Derives(int rule, size_t from, size_t to) {
    auto [at, is_new] = known_.try_emplace({rule, from, to}, false);
    if (!is_new) return at->second;
    bool result = false;
    for (const auto& sequence : rules_[rule]) result = result || Fits(sequence, 0, from, to);
    return known_[{rule, from, to}] = result;
  }

 private:
  bool Fits(const std::vector<int>& sequence, size_t item, size_t from, size_t to) {
    if (item == sequence.size()) return from == to;
    if (sequence[item] >= 0) {
      return from < to && text_[from] == sequence[item] && Fits(sequence, item + 1, from + 1, to);
    }
    for (size_t middle = from; middle <= to; ++middle) {
      if (Derives(-1 - sequence[item], from, middle) && Fits(sequence, item + 1, middle, to)) {
        return true;
      }
    }
    return false;
  }
  const Rules& rules_;
  const std::string& text_;
  std::map<std::tuple<int, size_t, size_t>, bool> known_;
};

TEST(GbnfTest, RandomGrammarsAgreeWithTheDefinition) {
  std::mt19937 dice(5);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts.size() < 127; ++i) {  // all up to six letters
    for (char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  }
  int compiled = 0, matches = 0;
  for (int round = 0; round < 1500; ++round) {
    Oracle::Rules rules(1 + dice() % 4);
    std::string grammar;
    for (size_t r = 0; r < rules.size(); ++r) {
      absl::StrAppend(&grammar, r == 0 ? std::string("root") : absl::StrCat("r", r), " ::= ");
      for (int n = 1 + dice() % 3; n > 0; --n) {
        std::vector<int> sequence;
        for (int items = dice() % 4; items > 0; --items) {
          if (dice() % 2 == 0) {
            sequence.push_back('a' + dice() % 2);
            absl::StrAppend(&grammar, "\"", std::string(1, sequence.back()), "\" ");
          } else {
            const int callee = dice() % rules.size();
            sequence.push_back(-1 - callee);
            absl::StrAppend(&grammar, callee == 0 ? "root" : absl::StrCat("r", callee), " ");
          }
        }
        if (sequence.empty()) absl::StrAppend(&grammar, "\"\" ");
        rules[r].push_back(sequence);
        if (n > 1) absl::StrAppend(&grammar, "| ");
      }
      absl::StrAppend(&grammar, "\n");
    }
    auto result = CompileGbnf(grammar);
    if (!result.ok()) continue;  // left recursion, or nothing finite
    ++compiled;
    SCOPED_TRACE(grammar);
    StateMachine machine(&(*result)->automaton());
    for (const std::string& text : texts) {
      StateId state = machine.start();
      for (char c : text) {
        if (state != StateMachine::kNoState) state = machine.Next(state, c);
      }
      const bool matched = state != StateMachine::kNoState && machine.CanEnd(state);
      ASSERT_EQ(matched, Oracle(rules, text).Derives(0, 0, text.size())) << text;
      matches += matched;
    }
  }
  EXPECT_GT(compiled, 300);
  EXPECT_GT(matches, 1000);
}

}  // namespace
}  // namespace lm

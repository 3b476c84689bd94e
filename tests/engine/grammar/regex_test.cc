#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/grammar/state_machine.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using testing::HasSubstr;

struct RegexCase {
  std::string regex;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

TEST(RegexTest, AcceptsAndRejects) {
  const std::vector<RegexCase> cases = {
      {"", {""}, {"a"}},
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"^abc$", {"abc"}, {"ab"}},
      {"^a$|^b$|c", {"a", "b", "c"}, {"", "ab"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"a?b*c+", {"c", "acc", "bbbc", "abc"}, {"", "a", "aac"}},
      {"a??b*?c+?", {"c", "abc"}, {"", "aac"}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{2,}", {"aa", "aaaaaa"}, {"a", ""}},
      {"a{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"}},
      {"(ab){2,3}", {"abab", "ababab"}, {"ab", "aba", "abababab"}},
      {"(a|b){0}x", {"x"}, {"ax"}},
      {"(a*){3,5}", {"", "a", "aaaaaaaaaaaa"}, {"b"}},
      {"(a*b?){2}", {"", "a", "ab", "aabaab"}, {"bbb"}},
      {"(|a){4}b", {"b", "aaaab"}, {"aaaaab"}},
      {"(a|ab)(c|bcd)(d*)", {"abcd", "acd", "abc", "ac", "abcddd"}, {"ab", "abbb"}},
      {"(?:x)(?<n>y)(?P<m>z)", {"xyz"}, {"xy"}},
      {"[a-c]", {"a", "b", "c"}, {"d", "", "A"}},
      {"[^a-c]", {"d", "\n", "é", "\xf0\x9f\x98\x80"}, {"a", "", std::string(1, '\0')}},
      {"[-a]", {"-", "a"}, {"b"}},
      {"[a-]", {"-", "a"}, {"b"}},
      {"[\\]\\\\^]", {"]", "\\", "^"}, {"["}},
      {"[\\d_-]+", {"1_-"}, {"a"}},
      {".", {"a", "é", "日", "\xf0\x9f\x98\x80"}, {"\n", "", "ab", "\xe6\x97", "\xff", "\xc0\xaf"}},
      {"\\d\\D", {"1a", "0é"}, {"11", "a1", "1"}},
      {"\\w+\\W", {"aZ_9 ", "a\n"}, {" ", "é "}},
      {"\\s\\S", {" a", "\t1", "\n\x01", " \u00a0"}, {"a ", "  ", "\u00a0a"}},
      {"..", {"\r\u2028"}, {"\n\n"}},
      {"\\x41\\u00e9\\u{1F600}", {"Aé\xf0\x9f\x98\x80"}, {"A"}},
      {"\\.\\*\\(\\)\\/\\-\\ ", {".*()/- "}, {"a*()/- "}},
      {"\\t\\n\\r\\f\\v", {"\t\n\r\f\v"}, {"tnrfv"}},
      {"a{,3}", {"", "a", "aaa"}, {"aaaa", "a{,3}"}},
      {"(ab){,1}?c", {"c", "abc"}, {"ababc"}},
      {"a{,}b{x}{, 3}{", {"a{,}b{x}{, 3}{"}, {"aaa"}},
      {"x]}", {"x]}"}, {"x"}},
      {"[а-яё]+", {"привет", "ё"}, {"hello", "\xd0"}},
      {"日本?", {"日", "日本"}, {"本"}},
      {"[A-Z]{2}-\\d{1,3}", {"AB-1", "XY-123"}, {"A-1", "AB-1234", "AB-"}},
      {"[\\b]", {"\b"}, {"b"}},
      {"[^\\x00-\\x1f]{1,3}", {"é a"}, {"a\x01", "", "abcd"}},
      {"[\\u0000-\\u007F]{1,3}", {"a\x01\x7f"}, {"é", std::string(1, '\0')}},
      {"[^\\x00]a|[\\x00]", {"\na"}, {"a", std::string(1, '\0')}},
      {"(?i)[\\u{0}-\\x00k]", {"K"}, {""}},
      // Properties of characters.
      {"\\p{L}+", {"aé日ß"}, {"1", "a1", ""}},
      {"\\p{Lu}\\P{Lu}", {"Éa", "A1"}, {"éa", "AB"}},
      {"\\pL\\PL", {"é1"}, {"1é"}},
      {"[\\p{L}\\d]{3}", {"é1日"}, {"é-日"}},
      {"[^\\p{L}\\d]", {"-", "²"}, {"é", "1"}},
      {"\\p{Script=Greek}\\p{sc=Grek}\\p{Greek}\\p{ greek }", {"αβγΔ"}, {"αβγd"}},
      {"\\p{Script_Extensions=Greek}", {"\u0342", "α"}, {"a"}},
      {"\\p{sc:Greek}", {"α"}, {"\u0342"}},
      {"\\p{Letter}\\p{gc=Nd}\\p{General_Category=Uppercase_Letter}\\p{digit}", {"a٣Z1"}, {"a٣z1"}},
      {"\\p{Alphabetic}\\p{White_Space}\\p{Emoji}", {"a\u3000😀"}, {"a😀 "}},
      {"\\p{Any}\\p{Assigned}\\P{Cn}\\p{ASCII}", {"\naéa"}, {"\naé\u0378"}},
      {"\\p{Lu}|\\p{Cs}", {"A"}, {"a"}},
      // Flags.
      {"(?i)ab[c-d]\\x45", {"abcE", "ABDe", "aBCe"}, {"abee"}},
      {"a(?i:b|cD)e", {"abe", "aBe", "aCde"}, {"Abe", "aCdE"}},
      {"a(?i:b|cD)e|E", {"aCde", "E"}, {"aCdE"}},
      {"(?i)\\p{Lu}[\\p{Ll}]\\P{Lu}", {"Aa1", "aA1"}, {"Aaa", "AaA"}},
      {"(?i)[^k]", {"a", "\u212a"}, {"k", "K"}},
      {"(?i)kßσ", {"Kẞς", "kßΣ"}, {"kssσ", "\u212aßσ"}},
      {"(?i)yes|\u017f", {"YeS", "\u017f"}, {"ye\u017f", "s"}},
      {"(?i)\\w\\W", {"K\u212a"}, {"\u212aK"}},
      {"a(?i)b|c(?-i)d(?:e(?i)f)g", {"aB", "Cdefg", "CdeFg"}, {"AB", "CDefg", "CdefG"}},
      {"(?s).(?-s:.)(?is-s:.A)", {"\naba", "aaaA"}, {"\n\naa"}},
      // Places.
      {"(^a|b$)", {"a", "b"}, {"ab", ""}},
      {"(^a|b$)x?", {"a", "b", "ax"}, {"bx", "x"}},
      {"(^|,)x(,|$)", {"x", ",x", "x,", ",x,"}, {"", ",", "xx"}},
      {"a*^b$c*", {"b"}, {"ab", "bc"}},
      {"(a|b|^c|d$){2,3}", {"aa", "cab", "abd", "cad", "cd"}, {"ac", "da", "c", "d"}},
      {"(^a?b?){1,3}c", {"c", "ac", "abc"}, {"ababc"}},
      {"(a{0,2000}|^)(^b|c)", {"b", "c", "aaac"}, {"ab"}},
      {"$^|a^b|a$b", {""}, {"ab", "a"}},
      {"\\Aa\\z|(\\Ab\\z)", {"a", "b"}, {"ab"}},
      {"\\ba.\\b.*", {"ab", "ab-", "ab c", "a-b", "ab-c"}, {"abc", "-a", "a"}},
      {".*\\bcat\\b.*", {"cat", "a cat", "cats, cat", "écat"}, {"cats", "concat", "_cat"}},
      {"(\\w+\\b ?){2}", {"ab cd", "ab cd ", "a b"}, {"abcd", "ab cd e"}},
      {"a\\B.\\Bc", {"abc"}, {"a-c", "ab-"}},
      {"\\B|\\b", {""}, {"a"}},
      {"(?:\\b|x){1,9000}a|-(\\B\\b)*", {"a", "-", "xa", "xxxa"}, {"-a", "x"}},
  };
  for (const RegexCase& c : cases) {
    SCOPED_TRACE(c.regex);
    auto grammar = ValueOrDie(CompileRegex(c.regex));
    for (const std::string& text : c.accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : c.rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(RegexTest, LookAheadAtTheBeginning) {
  const std::vector<RegexCase> cases = {
      {"(?=.*\\d)[a-z0-9]{2,3}", {"a1", "1a", "ab1"}, {"ab", "1", "abc1"}},
      {"^(?!ab)a.*", {"a", "acb"}, {"ab", "abc", "b"}},
      {"^(?!ab$)a.*$", {"a", "abc"}, {"ab", "b"}},
      {"^(?=a|b$)(?!ac)\\w+", {"a", "ab", "b"}, {"bc", "ac", "acd", "c"}},
      {"x|(?!a)[a-c]|(?=b).d", {"x", "b", "c", "bd"}, {"a", "ad", "cd"}},
      {"(?i)(?=A)(?-i).", {"a", "A"}, {"b"}},
      {"(?=^a\\b).*", {"a", "a b"}, {"ab"}},
      {"(?!)a|b", {"b"}, {"a"}},
  };
  for (const auto& [regex, accepted, rejected] : cases) {
    SCOPED_TRACE(regex);
    const auto grammar = ValueOrDie(CompileRegex(regex));
    for (const std::string& text : accepted) EXPECT_TRUE(Accepts(grammar, text)) << text;
    for (const std::string& text : rejected) EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  EXPECT_EQ(CompileRegex("(?=a)b").status().message(),
            "no text fits: what the look-ahead of the regular expression asks for cannot hold");
  std::string many;
  for (int i = 0; i < 21; ++i) many += "(?=a)";
  EXPECT_EQ(CompileRegex(many).status().message(), "regex: more than 20 look-aheads, at byte 100");
}

TEST(RegexTest, RefusesByNameAndOffset) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"ab(?=c)",
       "look-around ((?=, (?!, (?<=, (?<!) is not supported, but for look-ahead at the beginning, "
       "behind ^, at byte 2"},
      {"a|(b(?!c))", "look-around"},
      {"^((?!a).)*$", "look-around"},
      {"(?=a(?=b))", "look-around"},
      {"^(?=a)*b", "nothing to repeat, at byte 6"},
      {"^(?=a", "a '(' without ')', at byte 1"},
      {"[\\w-.]", "from character to character (the sign '-' itself is written \\-), at byte 1"},
      {"(?<!c)d", "look-around"},
      {"(?m)a",
       "flags other than i and s, or another (?...) construct, are not supported, at byte 0"},
      {"a(?#b)", "another (?...) construct, are not supported, at byte 1"},
      {"(?i)*", "nothing to repeat, at byte 4"},
      {"(?>a)", "an atomic group (?> is not supported, at byte 0"},
      {"(a)\\1", "a backreference (\\1) is not supported, at byte 3"},
      {"\\k<a>", "a backreference (\\k)"},
      {"a\\Z", "the anchor \\Z is not supported, at byte 1"},
      {"[\\B]", "\\B in a class, at byte 1"},
      {"é\\p{Foo}", "the Unicode property \\p{Foo} is not known, at byte 2"},
      {"\\P{sc=Foo}", "the Unicode property \\p{sc=Foo} is not known, at byte 0"},
      {"\\p{gc=Greek}", "the Unicode property \\p{gc=Greek} is not known"},
      {"\\p{L}\\p{L)}", "the Unicode property \\p{L)} is not known, at byte 5"},
      {"\\p{", "\\p{ without }, at byte 0"},
      {"a\\p", "\\p without {name}, at byte 1"},
      {"[a-\\p{L}]", "a range that does not go from character to character"},
      {"\\p{Cs}", "no text fits: the class at byte 0"},
      {"\\q", "the escape \\q is not known, at byte 0"},
      {"a++", "a possessive quantifier is not supported"},
      {"a**", "nothing to repeat, at byte 2"},
      {"*a", "nothing to repeat, at byte 0"},
      {"a|+", "nothing to repeat, at byte 2"},
      {"^*", "nothing to repeat, at byte 1"},
      {"(a", "a '(' without ')', at byte 0"},
      {"a)", "a ')' without '(', at byte 1"},
      {"[a", "a '[' without ']', at byte 0"},
      {"[]", "an empty class (a ']' in it is written \\]), at byte 0"},
      {"[z-a]", "a range that goes backwards, at byte 1"},
      {"[a-\\d]", "a range that does not go from character to character"},
      {"[[:alpha:]]", "a POSIX class ([:...:]) is not supported, at byte 1"},
      {"a{3,2}", "a repetition whose counts go backwards, at byte 1"},
      {"a{100001}", "a repetition above the limit 100000, at byte 1"},
      {"a{99999999999999999999999}", "a repetition above the limit"},
      {"a^b", "no text fits: what ^, $, \\b and \\B of the regular expression ask for cannot hold"},
      {"(a|b)(^|$)c", "cannot hold"},
      {"a\\bb", "cannot hold"},
      {"\\x4", "an escape with too few hex digits, at byte 0"},
      {"\\u{}", "an escape with too few hex digits"},
      {"\\u{41", "\\u{ without }"},
      {"\\ud800", "an escape that is no character, or is NUL"},
      {"\\x00", "an escape that is no character, or is NUL"},
      {"[\\ud800]", "an escape that is no character, or is NUL"},
      {"[a-\\x00]", "a range that goes backwards, at byte 1"},
      {"[\\p{Cs}-a]", "a range that does not go from character to character"},
      {"[\\x00]", "no text fits: the class at byte 0"},
      {"\\", "a '\\' at the end, at byte 0"},
      {"(?<a", "a group name without '>'"},
      {"a\xff", "not valid UTF-8, at byte 1"},
      {std::string("a\0b", 3), "a NUL character, at byte 1"},
      {"[^\\s\\S]", "no text fits: the class at byte 0 of the regular expression has no character"},
      {"(b|[^\\s\\S])c{3}[^\\d\\D]|d[^\\w\\W]", "no text fits: the class at byte 15"},
  };
  for (const auto& [regex, message] : cases) {
    auto grammar = CompileRegex(regex);
    ASSERT_FALSE(grammar.ok()) << regex;
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(grammar.status().message()), HasSubstr(message)) << regex;
  }
}

TEST(RegexTest, DepthAndSizeHaveLimits) {
  auto nested = [](int depth) { return std::string(depth, '(') + "a" + std::string(depth, ')'); };
  EXPECT_TRUE(Accepts(ValueOrDie(CompileRegex(nested(kMaxGrammarDepth))), "a"));
  EXPECT_THAT(std::string(CompileRegex(nested(kMaxGrammarDepth + 1)).status().message()),
              HasSubstr("too deep: groups within groups, limit 100, at byte 100"));
  EXPECT_THAT(std::string(CompileRegex(nested(500000)).status().message()), HasSubstr("too deep"));
  EXPECT_THAT(std::string(CompileRegex(std::string(kMaxGrammarText + 1, 'a')).status().message()),
              HasSubstr("too large: 1048577 bytes, limit 1048576"));
  // Repetition of repetition adds up, it does not multiply.
  std::string text = "a";
  for (int i = 0; i < 8; ++i) text = absl::StrCat("(", text, "){1000}");
  EXPECT_FALSE(Accepts(ValueOrDie(CompileRegex(text)), "aaa"));
  std::string many;
  for (int i = 0; i < 600; ++i) many += "(ab){0,1000}";
  EXPECT_THAT(std::string(CompileRegex(many).status().message()),
              HasSubstr("too large: it needs more than 1048576 nodes"));
  EXPECT_TRUE(CompileRegex(std::string(kMaxGrammarText / 4, 'a')).ok());
}

TEST(RegexTest, HostileClassesAndPlacesHaveLimits) {
  auto size = [](const std::string& regex) {
    return ValueOrDie(CompileRegex(regex))->automaton().nodes.size();
  };
  auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  auto error = [](const std::string& regex) {
    return std::string(CompileRegex(regex).status().message());
  };
  EXPECT_LT(size("(\\p{L}|\\p{N}){1000}"), 10000u);
  EXPECT_LT(size("\\b\\p{L}{1,1000}\\b"), 20000u);
  EXPECT_THAT(error(repeated("\\p{L}", 200000)), HasSubstr("needs more than 1048576 nodes"));
  std::string classes;
  for (char c = 'a'; c < 'z'; ++c) {
    for (char d = 'a'; d < 'z'; ++d) {
      for (char e : {'0', '1', '2', '3'})
        classes += absl::StrCat("[", std::string({c, d, e}), "\\p{L}]");
    }
  }
  EXPECT_THAT(error(classes), HasSubstr("classes of more than 1048576 ranges of characters"));
  std::string text = "^a|b";
  for (int i = 0; i < 8; ++i) text = absl::StrCat("(", text, "){1000}");
  EXPECT_THAT(error(text), HasSubstr("needs more than 1048576 nodes"));
  EXPECT_THAT(error("(a|$" + std::string(500000, 'x') + "){100000}"), HasSubstr("too large"));
  EXPECT_LT(size("(" + repeated("(\\b|)*(\\B|^)*", 500) + "){100000}a"), 10000u);
}

TEST(RegexTest, CompilationIsInterrupted) {
  for (const std::string regex : {"(?i)[a-z]x", "\\p{Script=Cherokee}",
                                  "(a|$bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb){100000}"}) {
    int asked = 0;
    const CheckpointScope scope([&asked] { return ++asked > 0; });
    std::this_thread::sleep_for(2 * kCheckpointInterval);
    EXPECT_TRUE(absl::IsCancelled(CompileRegex(regex).status())) << regex;
    EXPECT_EQ(asked, 1);
  }
}

TEST(RegexTest, LargeCountsAreExactAndSmall) {
  struct Counted {
    std::string unit;
    int min, max;
  };
  for (const auto& [unit, min, max] :
       {Counted{"a", 0, 1025}, Counted{"a", 1500, 4111}, Counted{"(?:a|bc)", 0, 5000},
        Counted{"(?:a|bc)", 3, 2000}, Counted{"(?:a|bc)", 1100, 1100},
        Counted{"(?:a?)", 9, 1100}}) {
    const std::string regex = absl::StrCat(unit, "{", min, ",", max, "}");
    const auto grammar = ValueOrDie(CompileRegex(regex));
    EXPECT_LT(grammar->automaton().nodes.size(), 8000u) << regex;
    StateMachine machine(&grammar->automaton());
    StateId state = machine.start();
    for (int count = 0; count <= max; ++count) {
      ASSERT_NE(state, StateMachine::kNoState) << regex << ", " << count;
      ASSERT_EQ(machine.CanEnd(state), count >= min || unit == "(?:a?)") << regex << ", " << count;
      const bool is_pair = unit == "(?:a|bc)" && count % 3 == 1;
      for (const char c : absl::string_view(is_pair ? "bc" : "a")) {
        if (state != StateMachine::kNoState) state = machine.Next(state, static_cast<uint8_t>(c));
      }
    }
    EXPECT_EQ(state, StateMachine::kNoState) << regex;
  }
  const auto open = ValueOrDie(CompileRegex("(?:ab){2000,}"));
  EXPECT_LT(open->automaton().nodes.size(), 2000u);
  std::string text;
  for (int i = 0; i < 1999; ++i) text += "ab";
  EXPECT_FALSE(Accepts(open, text));
  EXPECT_TRUE(Accepts(open, text + "ab"));
  EXPECT_TRUE(Accepts(open, text + "ababab"));
}

// A random expression over a, b, c, as text and as the set of ends it has from each place of a
// text.
struct Expression {
  std::string regex;
  std::function<std::set<size_t>(absl::string_view text, size_t from)> ends;
};

Expression Letter(const std::string& regex, const std::string& letters) {
  return {regex, [letters](absl::string_view text, size_t from) {
            const bool fits = from < text.size() && letters.find(text[from]) != letters.npos;
            return fits ? std::set<size_t>{from + 1} : std::set<size_t>{};
          }};
}

Expression Sequence(const Expression& x, const Expression& y) {
  return {x.regex + y.regex, [x, y](absl::string_view text, size_t from) {
            std::set<size_t> ends;
            for (size_t middle : x.ends(text, from)) ends.merge(y.ends(text, middle));
            return ends;
          }};
}

Expression Either(const Expression& x, const Expression& y) {
  return {"(" + x.regex + "|" + y.regex + ")", [x, y](absl::string_view text, size_t from) {
            std::set<size_t> ends = x.ends(text, from);
            ends.merge(y.ends(text, from));
            return ends;
          }};
}

// At most kTimes times: no text here is longer.
constexpr int kTimes = 8;
Expression Times(const Expression& x, int min, int max, const std::string& suffix) {
  return {"(?:" + x.regex + ")" + suffix, [x, min, max](absl::string_view text, size_t from) {
            std::set<size_t> ends, now = {from};
            for (int n = 0; n <= max; ++n) {
              if (n >= min) ends.insert(now.begin(), now.end());
              std::set<size_t> next;
              for (size_t place : now) next.merge(x.ends(text, place));
              now = next;
            }
            return ends;
          }};
}

Expression RandomExpression(std::mt19937* dice, int depth) {
  auto below = [dice](int n) { return static_cast<int>((*dice)() % n); };
  if (depth == 0) {
    const std::vector<Expression> atoms = {
        Letter("a", "a"),
        Letter("b", "b"),
        Letter("c", "c"),
        Letter(".", "abc"),
        Letter("[ab]", "ab"),
        Letter("[^a]", "bc"),
        {"(?:)", [](absl::string_view, size_t from) { return std::set<size_t>{from}; }}};
    return atoms[below(atoms.size())];
  }
  const Expression x = RandomExpression(dice, depth - 1);
  switch (below(7)) {
    case 0:
    case 1:
      return Sequence(x, RandomExpression(dice, depth - 1));
    case 2:
      return Either(x, RandomExpression(dice, depth - 1));
    case 3:
      return Times(x, 0, kTimes, "*");
    case 4:
      return Times(x, 1, kTimes, "+");
    case 5:
      return Times(x, 0, 1, "?");
    default: {
      const int min = below(3), max = min + below(3);
      return Times(x, min, max, absl::StrCat("{", min, ",", max, "}"));
    }
  }
}

TEST(RegexTest, RandomExpressionsAgreeWithTheDefinition) {
  std::mt19937 dice(3);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts.size() < 121; ++i) {  // all up to four letters
    for (char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  int matches = 0;
  for (int round = 0; round < 400; ++round) {
    const Expression expression = RandomExpression(&dice, 1 + dice() % 3);
    SCOPED_TRACE(expression.regex);
    auto grammar = ValueOrDie(CompileRegex(expression.regex));
    StateMachine machine(&grammar->automaton());
    for (const std::string& text : texts) {
      StateId state = machine.start();
      for (char c : text) {
        if (state != StateMachine::kNoState) state = machine.Next(state, c);
      }
      const bool matched = state != StateMachine::kNoState && machine.CanEnd(state);
      ASSERT_EQ(matched, expression.ends(text, 0).count(text.size()) == 1) << text;
      matches += matched;
    }
  }
  EXPECT_GT(matches, 5000);
}

}  // namespace
}  // namespace lm

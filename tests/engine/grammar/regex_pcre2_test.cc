// Regular expressions with places, properties and flags against PCRE2, which is asked for all
// matches (pcre2_dfa_match) so that no expression takes it long.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"
#include "engine/grammar/state_machine.h"
#include "engine/grammar/text_set.h"
#include "engine/grammar/unicode_sets.h"
#include "tests/engine/grammar/grammar_testing.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace lm {
namespace {

class Pcre2 {
 public:
  explicit Pcre2(const std::string& regex) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                              PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr) << regex << ", at byte " << offset;
    data_.reset(pcre2_match_data_create(64, nullptr));
  }

  bool Finds(const std::string& text) {
    int workspace[4096];
    const int rc = pcre2_dfa_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), 0, 0, data_.get(), nullptr, workspace, 4096);
    EXPECT_TRUE(rc >= 0 || rc == PCRE2_ERROR_NOMATCH) << rc;
    return rc >= 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
};

class RandomRegex {
 public:
  explicit RandomRegex(uint32_t seed) : dice_(seed) {}

  // What of ten atoms are places changes from one to the next.
  std::string Next() {
    places_ = Below(4);
    return Part(1 + Below(4), /*caseless=*/false);
  }

  // Behind one or two look-aheads.
  std::string NextWithLookAhead() {
    places_ = Below(4);
    std::string regex;
    for (int n = 1 + Below(2); n > 0; --n) {
      absl::StrAppend(&regex, Below(2) == 0 ? "(?=" : "(?!", Below(3) == 0 ? ".*" : "",
                      Part(1 + Below(3), /*caseless=*/false), Below(3) == 0 ? "$)" : ")");
    }
    return absl::StrCat(regex, "(?:", Part(1 + Below(3), /*caseless=*/false), ")");
  }

  // `last`, too: with ſ, which ECMA-262 has among the words' letters where case is ignored.
  std::string Text(bool last) {
    static const char* const kLetters[] = {"a", "B", "k", "-", " ", "é", "É",  "ß",
                                           "ẞ", "_", "7", "Σ", "σ", "ς", "日", "ſ"};
    std::string text;
    for (int n = Below(6); n > 0; --n) text += kLetters[Below(last ? 16 : 15)];
    return text;
  }

 private:
  int Below(int n) { return static_cast<int>(dice_() % n); }

  std::string Atom(bool caseless) {
    static const char* const kPlaces[] = {"^", "$", "\\b", "\\B"};
    if (Below(10) < places_) return kPlaces[Below(4)];
    // The last three are read in another way by PCRE2 where case is ignored.
    static const char* const kAtoms[] = {
        "a",       "b",           "K",      "-",   " ",         "é",
        "ẞ",       "\\d",         "\\w",    "\\W", "\\s",       ".",
        "[ab]",    "[^a]",        "[a-cK]", "日",  "\\p{N}",    "\\p{Script=Greek}",
        "\\p{L}",  "[\\p{L}\\d]", "σ",      "()",  "[^\\w\\s]", "[^\\p{N}k]",
        "\\p{Lu}", "[^\\p{Ll}]",  "\\P{Lu}"};
    return kAtoms[Below(caseless ? 24 : 27)];
  }

  std::string Part(int depth, bool caseless) {
    if (depth == 0) return Atom(caseless);
    const std::string x = Part(depth - 1, caseless);
    switch (Below(9)) {
      case 0:
      case 1:
      case 2:
        return x + Part(depth - 1, caseless);
      case 3:
        return absl::StrCat("(?:", x, ")*");
      case 4:
        return absl::StrCat("(?:", x, ")?");
      case 5:
        return absl::StrCat("(?:", x, ")+");
      case 6: {
        const int min = Below(3);
        return absl::StrCat("(?:", x, "){", min, ",", min + 1 + Below(3), "}");
      }
      case 7:
        return absl::StrCat("(?i:", Part(depth - 1, true), ")");
      default:
        return absl::StrCat("(", x, "|", Part(depth - 1, caseless), ")");
    }
  }

  std::mt19937 dice_;
  int places_ = 0;
};

bool Takes(StateMachine* machine, const std::string& text) {
  StateId state = machine->start();
  for (const char c : text) {
    if (state != StateMachine::kNoState) state = machine->Next(state, static_cast<uint8_t>(c));
  }
  return state != StateMachine::kNoState && machine->CanEnd(state);
}

// A random expression may be one of these.
bool IsRefusedForAReason(const absl::Status& status) {
  return absl::StrContains(status.message(), "in (?i)") ||
         absl::StrContains(status.message(), "too large");
}

TEST(RegexPcre2Test, RandomExpressionsMatchTheWholeTextAlike) {
  RandomRegex random(5);
  int matches = 0, nothing = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string regex = random.Next();
    SCOPED_TRACE(regex);
    Pcre2 pcre2(absl::StrCat("\\A(?:", regex, ")\\z"));
    const auto grammar = CompileRegex(regex);
    std::unique_ptr<StateMachine> machine;
    if (grammar.ok()) {
      machine = std::make_unique<StateMachine>(&(*grammar)->automaton());
    } else {
      ASSERT_EQ(grammar.status().message().substr(0, 13), "no text fits:");
      ++nothing;
    }
    for (int i = 0; i < 60; ++i) {
      const std::string text = random.Text(/*last=*/true);
      const bool matched = machine != nullptr && Takes(machine.get(), text);
      ASSERT_EQ(matched, pcre2.Finds(text)) << text;
      matches += matched;
    }
  }
  EXPECT_GT(matches, 10000);
  EXPECT_GT(nothing, 10);
}

TEST(RegexPcre2Test, RandomPatternsAreFoundAlike) {
  RandomRegex random(6);
  int found = 0, judged = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string regex = random.Next();
    SCOPED_TRACE(regex);
    const auto set = TextSet::OfPattern(regex);
    if (!set.ok()) {
      ASSERT_TRUE(IsRefusedForAReason(set.status())) << set.status();
      continue;
    }
    ++judged;
    const TextSet of_length = ValueOrDie(set->OfLength(2, 4));
    const TextSet long_ones = ValueOrDie(set->OfLength(3, std::nullopt));
    Pcre2 pcre2(regex);
    for (int i = 0; i < 60; ++i) {
      const std::string text = random.Text(/*last=*/false);
      const bool matched = set->Contains(text);
      ASSERT_EQ(matched, pcre2.Finds(text)) << text;
      const auto chars =
          std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
      ASSERT_EQ(of_length.Contains(text), matched && chars >= 2 && chars <= 4) << text;
      ASSERT_EQ(long_ones.Contains(text), matched && chars >= 3) << text;
      found += matched;
    }
  }
  EXPECT_GT(judged, 300);
  EXPECT_GT(found, 5000);
}

TEST(RegexPcre2Test, LookAheadAtTheBeginningSeesAlike) {
  RandomRegex random(7);
  int matches = 0, judged = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string regex = random.NextWithLookAhead();
    SCOPED_TRACE(regex);
    const bool is_pattern = round % 2 == 0;
    const std::string pattern = absl::StrCat("^", regex, round % 4 == 0 ? "$" : "");
    const auto set = is_pattern ? TextSet::OfPattern(pattern) : TextSet::OfRegex(regex);
    if (!set.ok()) {
      ASSERT_TRUE(IsRefusedForAReason(set.status())) << set.status();
      continue;
    }
    ++judged;
    Pcre2 pcre2(is_pattern ? pattern : absl::StrCat("\\A", regex, "\\z"));
    for (int i = 0; i < 60; ++i) {
      const std::string text = random.Text(/*last=*/false);
      const bool matched = set->Contains(text);
      ASSERT_EQ(matched, pcre2.Finds(text)) << text;
      matches += matched;
    }
  }
  EXPECT_GT(judged, 450);
  EXPECT_GT(matches, 2000);
}

TEST(RegexPcre2Test, PropertiesAndCasesAreThoseOfEveryCharacter) {
  for (const char* name : {"Lu", "L&", "sc:Latin", "scx:Arabic", "Emoji", "Cn", "Xwd"}) {
    const CodePointSet& set = *ValueOrDie(UnicodeProperty(name));
    Pcre2 pcre2(absl::StrCat("\\p{", name, "}"));
    for (uint32_t c = 1; c <= 0x10ffff; c += c < 0x3000 ? 1 : 37) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      std::string text;
      AppendUtf8(c, &text);
      ASSERT_EQ(set.Contains(c), pcre2.Finds(text)) << name << ", " << c;
    }
  }
  // One of every seventh cased letter at once.
  CodePointSet some;
  std::string regex = "(?i)[";
  int number = 0;
  for (const CodePointSet::Range& range : ValueOrDie(UnicodeProperty("L&"))->ranges()) {
    for (uint32_t c = range.low; c <= range.high; ++c) {
      if (++number % 7 != 0) continue;
      some.Add(c);
      absl::StrAppend(&regex, "\\x{", absl::Hex(c), "}");
    }
  }
  Pcre2 pcre2(regex + "]");
  const CodePointSet folded = ValueOrDie(FoldCase(some));
  for (uint32_t c = 1; c < 0x20000; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(folded.Contains(c), pcre2.Finds(text)) << c;
  }
}

}  // namespace
}  // namespace lm

// The tokenizers of encoders: WordPiece and Unigram.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "engine/base/checkpoint.h"
#include "engine/text/character_map.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode_words.h"

namespace lm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kUnknownId = 0;

// Tokens 0 to 2 are [UNK], [CLS] and [SEP]; the others `names`.
Vocabulary VocabularyOf(const std::string& model, const std::vector<std::string>& names) {
  Vocabulary vocabulary;
  vocabulary.model = model;
  vocabulary.tokens = {"[UNK]", "[CLS]", "[SEP]"};
  vocabulary.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  vocabulary.tokens.insert(vocabulary.tokens.end(), names.begin(), names.end());
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  if (model == "t5") vocabulary.scores.resize(vocabulary.tokens.size());
  vocabulary.unknown = kUnknownId;
  vocabulary.add_space_prefix = false;
  vocabulary.bos = 1;
  vocabulary.eos = vocabulary.separator = 2;
  return vocabulary;
}

std::unique_ptr<Tokenizer> Make(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// The names of the tokens that the text becomes.
std::vector<std::string> Names(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer.Encode({{text, TextKind::kPlain}}, &ids);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> names;
  for (int32_t id : ids) names.emplace_back(tokenizer.TokenName(id));
  return names;
}

TEST(WordPieceTest, AWordIsItsLongestBeginningAndThenTheLongestThatGoesOn) {
  const auto t = Make(VocabularyOf("bert", {"▁un", "▁u", "n", "aff", "able", "▁a", "af"}));
  EXPECT_THAT(Names(*t, "unaffable"), ElementsAre("▁un", "aff", "able"));
  EXPECT_THAT(Names(*t, " un \n a\t\u00a0u"), ElementsAre("▁un", "▁a", "▁u"));
  // All of a word is unknown where some part of it is; "aff" begins none.
  EXPECT_THAT(Names(*t, "un unaffiable affable a"), ElementsAre("▁un", "[UNK]", "[UNK]", "▁a"));
  EXPECT_THAT(Names(*t, ""), ElementsAre());
}

TEST(WordPieceTest, PunctuationAndChineseCharactersAreWordsOfTheirOwn) {
  const auto t = Make(VocabularyOf("bert", {"▁a", "▁,", "▁東", "▁京", "▁$", "▁€", "b", "京"}));
  EXPECT_THAT(Names(*t, "a,a"), ElementsAre("▁a", "▁,", "▁a"));
  EXPECT_THAT(Names(*t, "東京ab"), ElementsAre("▁東", "▁京", "▁a", "b"));
  EXPECT_THAT(Names(*t, "$b"), ElementsAre("▁$", "[UNK]"));
  EXPECT_THAT(Names(*t, "€b"), ElementsAre("▁€", "b"));  // symbols beyond ASCII are not
}

TEST(WordPieceTest, AnUncasedModelSeesLettersWithoutCaseAndAccents) {
  Vocabulary vocabulary = VocabularyOf("bert", {"▁ete", "▁Ete", "▁été", "▁ß", "▁σ"});
  const auto uncased = Make(vocabulary);
  EXPECT_THAT(Names(*uncased, "ÉTÉ e\u0301te\u0301 \u200bete"),
              ElementsAre("▁ete", "▁ete", "▁ete"));
  EXPECT_THAT(Names(*uncased, "ẞ Σ"), ElementsAre("▁ß", "▁σ"));
  vocabulary.strip_accents = false;
  EXPECT_THAT(Names(*Make(vocabulary), "ÉTÉ Ete"), ElementsAre("▁été", "▁ete"));
  vocabulary.lower_case = false;
  EXPECT_THAT(Names(*Make(vocabulary), "été Ete"), ElementsAre("▁été", "▁Ete"));
}

TEST(WordPieceTest, TextsHaveAnEndAndPairsHaveOneEach) {
  const auto t = Make([] {
    Vocabulary vocabulary = VocabularyOf("bert", {"▁a", "▁b", "▁[", "▁]", "▁sep"});
    vocabulary.add_bos = true;
    return vocabulary;
  }());
  EXPECT_THAT(t->EncodePlain("a b").value(), ElementsAre(1, 3, 4, 2));
  EXPECT_THAT(t->EncodePlain("").value(), ElementsAre(1, 2));
  EXPECT_THAT(t->EncodePair("a", "b a").value(), ElementsAre(1, 3, 2, 4, 3, 2));
  EXPECT_THAT(t->EncodePlain("[SEP]").value(), ElementsAre(1, 5, 7, 6, 2));  // no control token
  EXPECT_EQ(t->DecodePlain({1, 3, 4, 2}), "a b");
}

TEST(UnigramTest, TheGreatestSumOfScoresWins) {
  Vocabulary vocabulary = VocabularyOf("t5", {"a", "b", "ab", "abc", "c"});
  vocabulary.scores = {0, 0, 0, -1, -1, -1.5, -5, -1};
  EXPECT_THAT(Names(*Make(vocabulary), "abc"), ElementsAre("ab", "c"));
  vocabulary.scores[6] = -2;
  EXPECT_THAT(Names(*Make(vocabulary), "abcab"), ElementsAre("abc", "ab"));
}

TEST(UnigramTest, UnknownNeighboursAreOne) {
  Vocabulary vocabulary = VocabularyOf("t5", {"a", "xa"});
  vocabulary.scores = {0, 0, 0, -1, -1};
  const auto t = Make(vocabulary);
  EXPECT_THAT(Names(*t, "ayyéa"), ElementsAre("a", "[UNK]", "a"));
  EXPECT_THAT(Names(*t, "yxaéé"), ElementsAre("[UNK]", "xa", "[UNK]"));
}

TEST(UnigramTest, SpacesAreAsTheVocabularySays) {
  Vocabulary vocabulary = VocabularyOf("t5", {"▁a", "▁", "a"});
  vocabulary.scores = {0, 0, 0, -1, -2, -2};
  vocabulary.add_space_prefix = true;
  EXPECT_THAT(Names(*Make(vocabulary), "a  a "), ElementsAre("▁a", "▁", "▁a", "▁"));
  vocabulary.merge_spaces = true;
  EXPECT_THAT(Names(*Make(vocabulary), "a  a "), ElementsAre("▁a", "▁a"));
  vocabulary.add_space_prefix = false;
  EXPECT_THAT(Names(*Make(vocabulary), " a  a "), ElementsAre("▁a", "▁a"));
  vocabulary.merge_spaces = false;
  const auto plain = Make(vocabulary);
  EXPECT_THAT(Names(*plain, "a a"), ElementsAre("a", "▁a"));
  std::vector<int32_t> ids;
  ASSERT_TRUE(plain->EncodeInside("a", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(5));
}

// Every way to cut a short text, tried.
double BestSum(absl::string_view text, const Vocabulary& vocabulary, double unknown) {
  if (text.empty()) return 0;
  double best = unknown + BestSum(text.substr(1), vocabulary, unknown);
  for (size_t id = 3; id < vocabulary.tokens.size(); ++id) {
    const std::string& name = vocabulary.tokens[id];
    if (text.substr(0, name.size()) != name) continue;
    best = std::max(best,
                    vocabulary.scores[id] + BestSum(text.substr(name.size()), vocabulary, unknown));
  }
  return best;
}

TEST(UnigramTest, NoWayToCutATextIsBetter) {
  std::mt19937 random(1);
  auto letters = [&random](int most) {
    std::string text;
    for (int n = 1 + static_cast<int>(random() % most); n > 0; --n) text += "abc"[random() % 3];
    return text;
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> names = {"a", "b"};
    for (int i = 0; i < 12; ++i) names.push_back(letters(4));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    Vocabulary vocabulary = VocabularyOf("t5", names);
    float least = 0;
    for (size_t id = 3; id < vocabulary.tokens.size(); ++id) {
      vocabulary.scores[id] = -static_cast<float>(random() % 4096) / 256;
      least = std::min(least, vocabulary.scores[id]);
    }
    const auto t = Make(vocabulary);
    for (int i = 0; i < 20; ++i) {
      const std::string text = letters(9);
      std::vector<int32_t> ids;
      ASSERT_TRUE(t->Encode({{text, TextKind::kPlain}}, &ids).ok());
      double sum = 0;
      size_t known = 0;
      for (int32_t id : ids) {
        if (id == kUnknownId) continue;
        sum += vocabulary.scores[id];
        known += t->TokenName(id).size();
      }
      sum += (least - 10) * static_cast<double>(text.size() - known);
      EXPECT_NEAR(sum, BestSum(text, vocabulary, least - 10), 1e-9) << text;
    }
  }
}

// A map with one rule, "x" -> "yz", by hand: the root's base is 0, so "x" is unit 'x'; that is a
// leaf, and with the base 256 its replacement's unit is 'x' ^ 256.
std::string MapOf(uint32_t unit_of_x, uint32_t replacement_at) {
  std::vector<uint32_t> units(512);
  units['x'] = unit_of_x;
  units['x' ^ 256] = replacement_at;
  const uint32_t bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string data(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  data.append(reinterpret_cast<const char*>(units.data()), bytes);
  return data.append("\0yz\0", 4);
}
constexpr uint32_t kLeafOfX = 256u << 10 | 1u << 8 | 'x';

TEST(CharacterMapTest, TheLongestRuleReplaces) {
  const auto map = CharacterMap::Create(MapOf(kLeafOfX, 1));
  ASSERT_TRUE(map.ok()) << map.status();
  const CharacterMap::Replacement found = map->Find("xa");
  EXPECT_EQ(found.size, 1u);
  EXPECT_EQ(found.by, "yz");
  EXPECT_EQ(map->Find("a").size, 0u);
  EXPECT_EQ(map->Find("").size, 0u);
  Vocabulary vocabulary = VocabularyOf("t5", {"yz", "a"});
  vocabulary.character_map = MapOf(kLeafOfX, 1);
  EXPECT_THAT(Names(*Make(vocabulary), "xa"), ElementsAre("yz", "a"));
}

TEST(CharacterMapTest, DamagedOnesAreRefusedOrFindNothing) {
  for (const char* data : {"", "\1", "\4\0\0\0", "\0\0\0\0a"}) {
    EXPECT_FALSE(CharacterMap::Create(data).ok());
  }
  std::string unended = MapOf(kLeafOfX, 1);
  unended.back() = 'z';
  EXPECT_THAT(std::string(CharacterMap::Create(unended).status().message()),
              HasSubstr("precompiled_charsmap"));
  for (uint32_t at : {4u, 1000u, std::numeric_limits<uint32_t>::max()}) {
    EXPECT_EQ(CharacterMap::Create(MapOf(kLeafOfX, at))->Find("x").size, 0u);
  }
  // Out of the array, and in circles.
  EXPECT_EQ(CharacterMap::Create(MapOf(0x3fffffu << 10 | 1u << 8 | 'x', 1))->Find("xx").size, 0u);
  const auto circle = CharacterMap::Create(MapOf(static_cast<uint32_t>('x') << 10 | 'x', 1));
  EXPECT_EQ(circle->Find(std::string(10000, 'x')).size, 0u);
}

TEST(UnicodeWordsTest, KnowsCharactersByTheirRole) {
  for (uint32_t c : {' ', '\n', '\t', '\r'}) EXPECT_EQ(RoleInWords(c), WordRole::kSpace) << c;
  for (uint32_t c : {0xa0, 0x2028, 0x3000}) EXPECT_EQ(RoleInWords(c), WordRole::kSpace) << c;
  for (uint32_t c : {0, 1, 0x7f, 0xad, 0x200b, 0xfffd}) {
    EXPECT_EQ(RoleInWords(c), WordRole::kDropped) << c;
  }
  for (uint32_t c : {0x300, 0x36f, 0x591, 0x20d0}) EXPECT_EQ(RoleInWords(c), WordRole::kMark) << c;
  for (uint32_t c : {0x21, 0x24, 0x7e, 0x201c, 0x4e00, 0x20000}) {
    EXPECT_EQ(RoleInWords(c), WordRole::kAlone) << c;
  }
  for (uint32_t c : {0x61, 0x5a, 0x30, 0xe9, 0x20ac, 0xac00}) {
    EXPECT_EQ(RoleInWords(c), WordRole::kInner) << c;
  }
  EXPECT_EQ(BaseOf(0xe9), uint32_t{'e'});
  EXPECT_EQ(BaseOf(0x1ea5), uint32_t{'a'});
  EXPECT_EQ(BaseOf('a'), uint32_t{'a'});
  EXPECT_EQ(LowerOf('Q'), uint32_t{'q'});
  EXPECT_EQ(LowerOf(0x100), 0x101u);
  EXPECT_EQ(LowerOf(0x101), 0x101u);
  EXPECT_EQ(LowerOf(0x10400), 0x10428u);
}

class EncoderTokenizerTest : public testing::TestWithParam<const char*> {
 protected:
  // Tokens that long runs of "a" are cut into in many ways.
  std::unique_ptr<Tokenizer> Hostile() {
    std::vector<std::string> names = {"▁a", "▁", "b"};
    for (size_t n : {1, 2, 3, 64, 65}) names.emplace_back(n, 'a');
    Vocabulary vocabulary = VocabularyOf(GetParam(), names);
    for (size_t i = 3; i < vocabulary.scores.size(); ++i) {
      vocabulary.scores[i] = -1 - static_cast<float>(i) / 8;
    }
    return Make(vocabulary);
  }
};

// Quadratic time would take minutes for this much.
TEST_P(EncoderTokenizerTest, AMegabyteOfOneCharacterIsNoEffort) {
  const auto t = Hostile();
  for (const char* unit : {"a", "b", "é", " ", "a ", "한", "!", "\u0301", "\U0001f600"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    std::vector<int32_t> ids;
    EXPECT_TRUE(t->Encode({{text, TextKind::kPlain}}, &ids).ok()) << unit;
    EXPECT_LE(ids.size(), text.size() + 1) << unit;
  }
}

TEST_P(EncoderTokenizerTest, CanBeInterrupted) {
  const auto t = Hostile();
  for (const char* unit : {"a", "a ", "é"}) {
    std::string text;
    while (text.size() < 1 << 23) text += unit;
    const CheckpointScope scope([] { return true; });
    std::vector<int32_t> ids;
    EXPECT_EQ(t->Encode({{text, TextKind::kPlain}}, &ids).code(), absl::StatusCode::kCancelled);
  }
}

TEST_P(EncoderTokenizerTest, NeedsAnUnknownToken) {
  Vocabulary vocabulary = VocabularyOf(GetParam(), {"a"});
  vocabulary.unknown = -1;
  EXPECT_THAT(std::string(Tokenizer::Create(vocabulary).status().message()),
              HasSubstr("unknown_token_id"));
}

INSTANTIATE_TEST_SUITE_P(All, EncoderTokenizerTest, testing::Values("bert", "t5"));

}  // namespace
}  // namespace lm

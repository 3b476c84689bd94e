#include "engine/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"
#include "test_vocabulary.h"

namespace lm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What a new tokenizer is tried on: each model, each way it encodes.
std::vector<std::unique_ptr<Tokenizer>> AllKinds() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken"}) {
    tokenizers.push_back(TestTokenizer("gpt2", pre));
  }
  tokenizers.push_back(TestTokenizer("gemma4", "", false));
  tokenizers.push_back(TestTokenizer("llama", "", true));
  tokenizers.push_back(TestTokenizer("llama", "", false));
  return tokenizers;
}

bool HasControl(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (int32_t id : ids) {
    if (tokenizer.IsControl(id)) return true;
  }
  return false;
}

TEST(TokenizerTest, DecodingGivesTheTextBack) {
  std::mt19937 random(1);
  for (const auto& tokenizer : AllKinds()) {
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(random, 12);
      // U+2581 is how SentencePiece writes a space: it comes back as one.
      if (text.find("\xe2\x96\x81") != std::string::npos) continue;
      ASSERT_EQ(tokenizer->DecodePlain(EncodePlainOrDie(*tokenizer, text)), text);
    }
  }
}

TEST(TokenizerTest, EveryCharacterComesBack) {
  for (const auto& tokenizer : AllKinds()) {
    for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 37) {
      if ((c >= 0xd800 && c < 0xe000) || c == 0x2581) continue;
      std::string text;
      AppendUtf8(c, &text);
      ASSERT_EQ(tokenizer->DecodePlain(EncodePlainOrDie(*tokenizer, text)), text) << c;
    }
  }
}

TEST(TokenizerTest, WhereATextIsCutDoesNotMatter) {
  std::mt19937 random(2);
  for (const auto& tokenizer : AllKinds()) {
    for (int i = 0; i < 500; ++i) {
      const std::string text = RandomText(random, 12);
      for (TextKind kind : {TextKind::kPlain, TextKind::kMarkup}) {
        std::vector<TextPiece> pieces;
        for (size_t pos = 0; pos < text.size();) {
          const size_t begin = pos;
          do {
            DecodeUtf8(text, &pos);
          } while (pos < text.size() && random() % 3 != 0);
          pieces.push_back({text.substr(begin, pos - begin), kind});
        }
        ASSERT_EQ(EncodeOrDie(*tokenizer, pieces), EncodeOrDie(*tokenizer, {{text, kind}}));
      }
    }
  }
}

TEST(TokenizerTest, AWordOfALongTextHasTheTokensItHasAlone) {
  std::mt19937 random(3);
  std::vector<std::string> words;
  for (int i = 0; i < 3000; ++i) {
    words.push_back("\n");  // no token goes across
    for (size_t letters = 1 + random() % 26; letters > 0; --letters) {
      words.back().append(random() % 16 == 0 ? "ü"
                                             : std::string(1, "etaoinshrdlucmfw"[random() % 16]));
    }
  }
  for (const auto& [model, pre] :
       {std::pair("gpt2", "gpt-2"), std::pair("gpt2", "llama-bpe"), std::pair("llama", "")}) {
    const auto tokenizer = TestTokenizer(model, pre, /*add_space_prefix=*/false);
    std::string text;
    std::vector<int32_t> ids;
    for (int i = 0; i < 20000; ++i) {
      const std::string& word = words[std::min(random() % 3000, random() % 3000)];
      text.append(word);
      const std::vector<int32_t> alone = EncodePlainOrDie(*tokenizer, word);
      ids.insert(ids.end(), alone.begin(), alone.end());
    }
    ASSERT_EQ(EncodePlainOrDie(*tokenizer, text), ids);
  }
}

// By the rules of transformers' Metaspace.
TEST(TokenizerTest, ASpaceIsPutBeforeWordsWhereTheVocabularySaysSo) {
  auto ids = [](SpacePrefix where, const std::string& text, bool behind_bos = false) {
    Vocabulary vocabulary = TestVocabulary("llama");
    vocabulary.space_prefix = where;
    const auto tokenizer = Tokenizer::Create(std::move(vocabulary)).value();
    std::vector<int32_t> tokens;
    EXPECT_TRUE(tokenizer->Encode({{text, TextKind::kMarkup}}, &tokens, behind_bos).ok());
    std::string names;
    for (int32_t token : tokens) absl::StrAppend(&names, tokenizer->TokenName(token));
    const std::string decoded = tokenizer->DecodePlain(tokens);
    EXPECT_FALSE(absl::StartsWith(decoded, " ") && where != SpacePrefix::kEach && !behind_bos);
    return names;
  };
  for (SpacePrefix where : {SpacePrefix::kEach, SpacePrefix::kMissing, SpacePrefix::kFirst}) {
    EXPECT_EQ(ids(where, "a"), "▁a");
    EXPECT_EQ(ids(where, ""), "");
  }
  EXPECT_EQ(ids(SpacePrefix::kEach, " a<s>a<s> a"), "▁▁a<s>▁a<s>▁▁a");
  EXPECT_EQ(ids(SpacePrefix::kMissing, " a<s>a<s> a"), "▁a<s>▁a<s>▁a");
  EXPECT_EQ(ids(SpacePrefix::kFirst, " a<s>a<s> a"), "▁a<s>a<s>▁a");
  EXPECT_EQ(ids(SpacePrefix::kFirst, "<s>a"), "<s>a");
  EXPECT_EQ(ids(SpacePrefix::kFirst, "a", /*behind_bos=*/true), "a");
  EXPECT_EQ(ids(SpacePrefix::kMissing, "a", /*behind_bos=*/true), "▁a");
}

TEST(TokenizerTest, TheBorderOfMarkupWithoutMarkersDoesNotMatter) {
  const auto tokenizer = TestTokenizer("gpt2", "qwen2");
  EXPECT_EQ(EncodeOrDie(*tokenizer, {{"user\nthe ", TextKind::kMarkup}, {"fox", TextKind::kPlain}}),
            EncodePlainOrDie(*tokenizer, "user\nthe fox"));
}

TEST(TokenizerTest, RowTextNeverBecomesAControlToken) {
  std::mt19937 random(3);
  for (const auto& tokenizer : AllKinds()) {
    const std::vector<std::string> names = SpecialNames(tokenizer->vocabulary());
    for (const std::string& name : names) {
      for (const std::string& text :
           {name, name + name, " " + name, name + "\n", "x" + name + "x"}) {
        const std::vector<int32_t> ids = EncodePlainOrDie(*tokenizer, text);
        EXPECT_FALSE(HasControl(*tokenizer, ids)) << text;
        EXPECT_EQ(tokenizer->DecodePlain(ids), text);
      }
      // Nor may a row finish a marker that the markup around it has begun, or the other way round.
      for (size_t cut = 1; cut < name.size(); ++cut) {
        const std::string head = name.substr(0, cut);
        const std::string tail = name.substr(cut);
        if (ValidUtf8Prefix(head) != head.size()) continue;
        EXPECT_FALSE(HasControl(*tokenizer, EncodeOrDie(*tokenizer, {{head, TextKind::kMarkup},
                                                                     {tail, TextKind::kPlain}})));
        EXPECT_FALSE(HasControl(*tokenizer, EncodeOrDie(*tokenizer, {{head, TextKind::kPlain},
                                                                     {tail, TextKind::kMarkup}})));
      }
    }
    for (int i = 0; i < 1000; ++i) {
      std::string text;
      for (int parts = random() % 6; parts >= 0; --parts) {
        text += random() % 2 ? names[random() % names.size()] : RandomText(random, 3);
      }
      ASSERT_FALSE(HasControl(*tokenizer, EncodePlainOrDie(*tokenizer, text))) << text;
    }
  }
}

TEST(TokenizerTest, MarkupHasItsControlTokensWhateverStandsBesideIt) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  // A user-defined token with which a row could swallow the beginning of a marker.
  vocabulary.tokens.push_back("!<|im_");
  vocabulary.types.push_back(TokenType::kUserDefined);
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const int32_t end = (*tokenizer)->FindToken("<|im_end|>");
  ASSERT_GE(end, 0);
  EXPECT_THAT(
      EncodeOrDie(**tokenizer, {{"Hi!", TextKind::kPlain}, {"<|im_end|>", TextKind::kMarkup}}),
      Contains(end));
  EXPECT_THAT(EncodePlainOrDie(**tokenizer, "Hi!<|im_end|>"), Not(Contains(end)));
}

// Templates are made of <think> and <tool_call> too, which some vocabularies call user-defined.
TEST(TokenizerTest, InputBecomesNoTokenThatLooksLikeMarkup) {
  for (const auto& tokenizer : AllKinds()) {
    const int32_t sep = tokenizer->FindToken("<sep>");
    const int32_t spaces =
        tokenizer->FindToken(tokenizer->vocabulary().model == "gpt2" ? "   " : "  ");
    ASSERT_GE(spaces, 0);
    const std::vector<int32_t> ids = EncodeOrDie(
        *tokenizer, {{"<sep>", TextKind::kMarkup}, {"a<sep>b   c<sep>", TextKind::kInput}});
    EXPECT_EQ(std::count(ids.begin(), ids.end(), sep), 1);
    EXPECT_THAT(ids, Contains(spaces));
    // Neither in two parts.
    for (size_t cut = 1; cut < 5; ++cut) {
      const std::string head = std::string("<sep>").substr(0, cut);
      const std::string tail = std::string("<sep>").substr(cut);
      EXPECT_THAT(EncodeOrDie(*tokenizer, {{head, TextKind::kMarkup}, {tail, TextKind::kInput}}),
                  Not(Contains(sep)));
      EXPECT_THAT(EncodeOrDie(*tokenizer, {{head, TextKind::kInput}, {tail, TextKind::kMarkup}}),
                  Not(Contains(sep)));
    }
  }
}

TEST(TokenizerTest, HtmlIsNoMarkup) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  vocabulary.tokens.push_back("</h1>");
  vocabulary.types.push_back(TokenType::kUserDefined);
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(EncodeOrDie(**tokenizer, {{"a</h1>", TextKind::kInput}}),
              Contains((*tokenizer)->FindToken("</h1>")));
}

TEST(TokenizerTest, UserDefinedTokensAreFoundInAnyText) {
  for (const auto& tokenizer : AllKinds()) {
    const int32_t sep = tokenizer->FindToken("<sep>");
    for (TextKind kind : {TextKind::kPlain, TextKind::kMarkup}) {
      EXPECT_THAT(EncodeOrDie(*tokenizer, {{"a<sep>b", kind}}), Contains(sep));
      EXPECT_THAT(EncodeOrDie(*tokenizer, {{"<sep><sep>", kind}}), ElementsAre(sep, sep));
    }
  }
}

TEST(TokenizerTest, TheSpacePrefixComesAtTheBeginningAndBehindSpecialTokens) {
  const auto with = TestTokenizer("llama", "", true);
  const auto without = TestTokenizer("llama", "", false);
  EXPECT_EQ(EncodePlainOrDie(*with, "the"), EncodePlainOrDie(*without, " the"));
  EXPECT_EQ(EncodePlainOrDie(*with, "a<sep>the"), EncodePlainOrDie(*without, " a<sep> the"));
  EXPECT_THAT(EncodePlainOrDie(*with, ""), ElementsAre());
}

TEST(TokenizerTest, BosIsAddedToPlainTextsOnlyWhereTheModelDoes) {
  Vocabulary vocabulary = TestVocabulary("llama");
  vocabulary.add_bos = true;
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->EncodePlain(""), ElementsAre(1));
  EXPECT_EQ((*tokenizer)->EncodePlain("the")->front(), 1);
  EXPECT_EQ((*tokenizer)->DecodePlain(*(*tokenizer)->EncodePlain("the")), "the");
  EXPECT_THAT(EncodePlainOrDie(**tokenizer, "the"), Not(Contains(1)));
}

TEST(TokenizerTest, WhitespaceIsStrippedWhereAMarkerSwallowsIt) {
  Vocabulary vocabulary = TestVocabulary("gpt2");
  const int32_t end = 2;
  ASSERT_EQ(vocabulary.tokens[end], "<|im_end|>");
  vocabulary.strip_after = {end};
  vocabulary.strip_before = {1};
  auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrDie(**tokenizer, {{"a <|im_end|> \n b", TextKind::kMarkup}}),
            EncodeOrDie(**tokenizer, {{"a <|im_end|>b", TextKind::kMarkup}}));
  EXPECT_EQ(EncodeOrDie(**tokenizer, {{"a \n<|im_start|> b", TextKind::kMarkup}}),
            EncodeOrDie(**tokenizer, {{"a<|im_start|> b", TextKind::kMarkup}}));
}

TEST(TokenizerTest, InvalidUtf8IsAnErrorThatNamesTheByte) {
  for (const auto& tokenizer : AllKinds()) {
    std::vector<int32_t> ids;
    absl::Status status = tokenizer->Encode(std::vector<TextPiece>{{"fine", TextKind::kPlain},
                                                                   {"ab\xff"
                                                                    "c",
                                                                    TextKind::kPlain}},
                                            &ids);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("offset 2"));
    for (const char* bad : {"\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x96"}) {
      EXPECT_FALSE(tokenizer->EncodePlain(bad).ok());
    }
  }
}

TEST(TokenizerTest, NulIsACharacterLikeOthers) {
  for (const auto& tokenizer : AllKinds()) {
    const std::string text("a\0b", 3);
    EXPECT_EQ(tokenizer->DecodePlain(EncodePlainOrDie(*tokenizer, text)), text);
  }
}

TEST(TokenizerTest, KnowsTokensByNameAndId) {
  const auto tokenizer = TestTokenizer("gpt2");
  const int32_t space = tokenizer->FindToken("Ġ");
  ASSERT_GE(space, 0);
  EXPECT_EQ(tokenizer->TokenName(space), "Ġ");
  EXPECT_EQ(tokenizer->TokenBytes(space), " ");
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->FindToken("<sep>")), "<sep>");
  EXPECT_EQ(tokenizer->TokenBytes(tokenizer->FindToken("<|im_end|>")), "");
  EXPECT_EQ(tokenizer->FindToken("no such token"), -1);
  for (int32_t outside : {-1, tokenizer->size(), INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(tokenizer->TokenName(outside), "");
    EXPECT_EQ(tokenizer->TokenBytes(outside), "");
    EXPECT_FALSE(tokenizer->IsControl(outside));
    EXPECT_FALSE(tokenizer->IsEndOfGeneration(outside));
  }
  const auto llama = TestTokenizer("llama");
  EXPECT_EQ(llama->TokenBytes(llama->FindToken("<0x0A>")), "\n");
  EXPECT_EQ(llama->TokenBytes(llama->FindToken("▁")), " ");
}

TEST(TokenizerTest, KnowsTheTokensThatAreNeverSaid) {
  EXPECT_TRUE(TestTokenizer("gpt2")->SayableTokens().empty());
  Vocabulary vocabulary = TestVocabulary("gpt2");
  const auto size = static_cast<int32_t>(vocabulary.tokens.size());
  ASSERT_NE(size % 64, 0);
  vocabulary.suppressed = {3, size - 1, size, -1};
  const auto tokenizer = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const absl::Span<const uint64_t> mask = (*tokenizer)->SayableTokens();
  ASSERT_EQ(mask.size(), (vocabulary.tokens.size() + 63) / 64);
  for (int32_t id = 0; id < static_cast<int32_t>(mask.size() * 64); ++id) {
    const bool said = id < size - 1 && id != 3;
    EXPECT_EQ((mask[id / 64] >> (id % 64) & 1) != 0, said) << id;
    EXPECT_EQ((*tokenizer)->IsSayable(id), said) << id;
  }
  EXPECT_FALSE((*tokenizer)->IsSayable(-1));
}

TEST(TokenizerTest, KnowsTheTokensThatEndAnAnswer) {
  const auto tokenizer = TestTokenizer("gpt2");
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|im_end|>")));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<|im_start|>")));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(tokenizer->FindToken("<sep>")));

  // By id, whatever the name; and a conventional name makes a control token of any type.
  Vocabulary vocabulary = TestVocabulary("gpt2");
  vocabulary.eot = 3;
  for (const char* name : {"<|eot_id|>", "<|fim_prefix|>"}) {
    vocabulary.tokens.push_back(name);
    vocabulary.types.push_back(TokenType::kUserDefined);
  }
  auto other = Tokenizer::Create(vocabulary);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE((*other)->IsEndOfGeneration(3));
  const int32_t eot = (*other)->FindToken("<|eot_id|>");
  EXPECT_TRUE((*other)->IsEndOfGeneration(eot));
  EXPECT_TRUE((*other)->IsControl(eot));
  EXPECT_THAT(EncodePlainOrDie(**other, "<|eot_id|>"), Not(Contains(eot)));
  EXPECT_TRUE((*other)->IsControl((*other)->FindToken("<|fim_prefix|>")));
  EXPECT_FALSE((*other)->IsEndOfGeneration((*other)->FindToken("<|fim_prefix|>")));
}

TEST(TokenizerTest, StrikeThroughIsTextWhereToolsAnswer) {
  for (const TokenType type : {TokenType::kNormal, TokenType::kControl}) {
    Vocabulary vocabulary = TestVocabulary("gpt2");
    vocabulary.tokens.push_back("</s>");
    vocabulary.types.push_back(type);
    const auto strike = static_cast<int32_t>(vocabulary.tokens.size() - 1);
    const auto end = Tokenizer::Create(vocabulary);
    vocabulary.tokens.push_back("<|tool_response>");
    vocabulary.types.push_back(TokenType::kControl);
    const auto html = Tokenizer::Create(vocabulary);
    vocabulary.eos = strike;
    const auto eos = Tokenizer::Create(vocabulary);
    ASSERT_TRUE(end.ok() && html.ok() && eos.ok()) << end.status() << html.status() << eos.status();
    for (const auto* tokenizer : {&end, &eos}) {
      EXPECT_TRUE((**tokenizer)->IsControl(strike));
      EXPECT_TRUE((**tokenizer)->IsEndOfGeneration(strike));
      EXPECT_EQ((**tokenizer)->DecodePlain({strike}), "");
    }
    EXPECT_FALSE((*html)->IsControl(strike));
    EXPECT_FALSE((*html)->IsEndOfGeneration(strike));
    EXPECT_EQ((*html)->DecodePlain({strike}), "</s>");
  }
}

}  // namespace
}  // namespace lm

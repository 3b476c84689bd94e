#include "engine/text/split_family.h"

#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

// Reading these patterns:
// - Every one is linear in the text: each quantifier either runs over one character class and is
//   followed by something disjoint from it, or gives back at most what the match then keeps.
// - [^\P{L}a-z] is "a letter, but not a-z" (a doubly negated class), [^\P{L}A-Z] likewise.
// - \s+(?!\S)|\s+ leaves the last space of a run to the word behind it.
// - Letter case is spelled out, as caseless matching would let U+017F pass for an s.

#define LM_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

constexpr const char kGpt2Words[] =
    R"('(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char kDigit[] = R"(\p{N})";
constexpr const char kDigits[] = R"(\p{N}+)";
constexpr const char kUpToThreeDigits[] = R"(\p{N}{1,3})";
constexpr const char kThreeAsciiDigits[] = R"([0-9][0-9][0-9])";
constexpr const char kLineBreak[] = R"([\r\n])";

// Words that may begin with any one character that is neither letter nor digit nor line break;
// numbers; punctuation with the line breaks behind it.
constexpr const char kLlama3Words[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// A run of spaces, which kLlama3Words has left whole, in powers of 2; all else stays as it is. (In
// one expression, as the model has it, each of these would look for a line break behind all.)
constexpr const char kPowersOfTwoSpaces[] =
    R"(\A[^\S\r\n]*+[\s\S]+|\s{512}|\s{256}|\s{128}|\s{64}|\s{32}|\s{16}|\s{8}|\s{4}|\s{1,2})";
constexpr const char kQwen2Words[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char kQwen35Words[] =
    LM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
                   R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char kMiniCpm5Words[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char kBailingWords[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char kSeedCoderWords[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// As kQwen2Words, but an apostrophe begins no contraction.
constexpr const char kUfakZekaWords[] =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Single letters with spaces between them stay together. Nothing follows them, so that nothing is
// given back.
constexpr const char kExaoneMoeWords[] = LM_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
// Words of letters and marks that split where case goes from lower to upper, each with `end` behind
// it. (llama.cpp reads these expressions without what tells case and marks apart beyond ASCII, and
// so cuts words of Thai, Hindi or Arabic that the models' vocabularies have whole. These are the
// models' own.)
#define LM_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LM_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LM_CASED_WORDS(upper, lower, end) \
  R"([^\r\n\p{L}\p{N}]?)" upper "*" lower "+" end R"(|[^\r\n\p{L}\p{N}]?)" upper "+" lower "*" end
#define LM_CONTRACTED "(?:" LM_CONTRACTION ")?"
constexpr const char kTekkenWords[] = LM_CASED_WORDS(
    LM_UPPER, LM_LOWER, "") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Also Tiny Aya's, behind its digits.
constexpr const char kGpt4oWords[] = LM_CASED_WORDS(
    LM_UPPER, LM_LOWER,
    LM_CONTRACTED) R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char kYoutuWords[] =
    LM_CASED_WORDS(LM_UPPER, LM_LOWER,
                   LM_CONTRACTED) R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Hangul; wide punctuation; Bopomofo; Chinese and Kana.
constexpr const char kYoutuScripts[] =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C})"
    R"(\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";

// Chinese characters are words of their own kind. (Classes that leave them out: to look ahead
// before each letter would take memory for each letter of a word.)
#define LM_HAN R"(\p{sc:Han})"
#define LM_NO_LETTER_OR_HAN R"(\p{N}\p{P}\p{S}\p{Z}\p{C})" LM_HAN
constexpr const char kKimiK2Words[] = LM_HAN "+|" LM_CASED_WORDS(
    R"([^\p{Ll})" LM_NO_LETTER_OR_HAN "]", R"([^\p{Lu}\p{Lt})" LM_NO_LETTER_OR_HAN "]",
    LM_CONTRACTED) R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// As kGpt4oWords, with the case of ASCII alone: what is no letter or mark is one of the others.
constexpr const char kGraniteMultiWords[] =
    R"([^\r\n\p{L}\p{N}]?[^a-z\p{N}\p{P}\p{S}\p{Z}\p{C}]*[^A-Z\p{N}\p{P}\p{S}\p{Z}\p{C}]+(?:)" LM_CONTRACTION
    R"()?)"
    R"(|[^\r\n\p{L}\p{N}]?[^a-z\p{N}\p{P}\p{S}\p{Z}\p{C}]+[^A-Z\p{N}\p{P}\p{S}\p{Z}\p{C}]*(?:)" LM_CONTRACTION
    R"()?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Digits in threes, counted from the right, the first of them with what stands before: runs, then
// their first one to three, then the others.
constexpr const char kDigitRun[] = R"(\G\P{N}*+\p{N}+)";
constexpr const char kFirstOfThrees[] = R"(^\P{N}*+\p{N}{1,3}(?=(?:\p{N}{3})*+$))";
constexpr const char kNextThree[] = R"(\G\p{N}{3})";

// The same of decimal digits, but for runs with a letter, a mark or a connector behind them: those
// stay as they are, with what stands before.
#define LM_BEFORE R"((?>\P{Nd}++|\p{Nd}++(?=[\p{L}\p{M}\p{Pc}]))*+)"
constexpr const char kDecimalRun[] = R"(\G)" LM_BEFORE R"(\p{Nd}++)";
constexpr const char kFirstOfDecimals[] = "^" LM_BEFORE R"(\p{Nd}{1,3}(?=(?:\p{Nd}{3})*+$))";
constexpr const char kNextDecimals[] = R"(\G\p{Nd}{3})";
#undef LM_BEFORE

// Before ASCII digits of which there are a multiple of three up to the end of their run: first
// before the first such place of each run, then before the others. (Other digits may stand between
// two runs.)
#define LM_HEAD R"([0-9]{0,2}?(?=(?:[0-9]{3})*+(?![0-9])))"
constexpr const char kAsciiRuns[] =
    R"((?:[0-9]{3})++(?![0-9])(?:[^0-9]++)" LM_HEAD ")*+|" LM_HEAD "(?:[^0-9]++" LM_HEAD ")*+";
#undef LM_HEAD
constexpr const char kThreeOfMore[] = R"(\G[0-9]{3}(?=[0-9]{3}))";

constexpr const char kLineBreaks[] = R"(\n+)";
constexpr const char kSentinel[] = R"(<sentinel:[0-9]+>)";
constexpr const char kImageToken[] = R"(IMGIMG[A-I]{1,4}Z)";
constexpr const char kSpacePair[] = R"([\t\n]|    |  )";
constexpr const char kAnyPunctuation[] = R"([\p{P}!-/:-@\[-`{-~])";

constexpr const char kDefaultPunctuation[] = R"([\p{P}$+<=>^~|]+)";
constexpr const char kFalconPunctuation[] = R"([\p{P}$+<=>^~|`]+)";

// Sentence punctuation of several scripts, the bar, the opening and the closing parenthesis.
constexpr const char kBloomWords[] =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)";

// U+0800-9FA5 and U+AC00-D7FF without their spaces: mostly CJK and Hangul.
constexpr const char kDeepSeekWide[] = R"([^\s\x{0}-\x{7FF}\x{9FA6}-\x{ABFF}\x{E000}-\x{10FFFF}]+)";
constexpr const char kDeepSeekCoderWord[] = R"(\s?\p{L}+)";
constexpr const char kDeepSeekCoderPunctuation[] = R"(\s?\p{P}+)";
constexpr const char kDeepSeekPunctuation[] =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+)";
// The look-behind keeps the search for a run of spaces at the end linear.
constexpr const char kSpacesAtEnd[] = R"((?<!\s)\s++$)";
// The cased letters of Unicode 11.
constexpr const char kDeepSeekWord[] =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"
    R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr const char kDeepSeekV3Kana[] = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr const char kDeepSeekV3Words[] =
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char kSpark25Words[] =
    R"([!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n])"
    R"(|\s+(?!\S)|\s+)";
// Chinese with its extension A, Kana, radicals, Thai, Lao, Khmer, Burmese and Hangul; and all from
// U+8C48 to the compatibility forms, as llama.cpp has it (the first of those, U+F900, normalised).
constexpr const char kAfmoeScripts[] =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F})"
    R"(\x{2F00}-\x{2FDF}\x{0E40}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F})"
    R"(\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";

#undef LM_HAN
#undef LM_NO_LETTER_OR_HAN
#undef LM_CASED_WORDS
#undef LM_UPPER
#undef LM_LOWER
#undef LM_CONTRACTED
#undef LM_CONTRACTION

constexpr const char* kDefault[] = {kDefaultPunctuation, kGpt2Words, kDigits, kThreeAsciiDigits};
constexpr const char* kGpt2[] = {kGpt2Words};
constexpr const char* kStarcoder[] = {kDigit, kGpt2Words};
constexpr const char* kFalcon[] = {kFalconPunctuation, kGpt2Words, kThreeAsciiDigits};
constexpr const char* kLlama3[] = {kLlama3Words};
constexpr const char* kJais2[] = {kLlama3Words, kPowersOfTwoSpaces};
constexpr const char* kSuperBpe[] = {kDigits, kAsciiRuns, kThreeOfMore};
constexpr const char* kQwen2[] = {kQwen2Words};
constexpr const char* kQwen35[] = {kQwen35Words};
constexpr const char* kMiniCpm5[] = {kUpToThreeDigits, kMiniCpm5Words};
constexpr const char* kBailing[] = {kBailingWords};
constexpr const char* kSeedCoder[] = {kSeedCoderWords};
constexpr const char* kTekken[] = {kTekkenWords};
constexpr const char* kGpt4o[] = {kGpt4oWords};
constexpr const char* kBloom[] = {kBloomWords};
constexpr const char* kViking[] = {kBloomWords, kDigit};
constexpr const char* kDeepSeekLlm[] = {kLineBreak,   kDeepSeekWord, kDeepSeekPunctuation,
                                        kSpacesAtEnd, kDeepSeekWide, kDigits};
constexpr const char* kDeepSeekCoder[] = {kLineBreak, kDeepSeekCoderWord, kDeepSeekCoderPunctuation,
                                          kDeepSeekWide, kDigit};
constexpr const char* kDeepSeekV3[] = {kUpToThreeDigits, kDeepSeekV3Kana, kDeepSeekV3Words};

constexpr const char* kUfakZeka[] = {kUfakZekaWords};
constexpr const char* kExaoneMoe[] = {kExaoneMoeWords};
constexpr const char* kTinyAya[] = {kDecimalRun, kFirstOfDecimals, kNextDecimals, kGpt4oWords};
constexpr const char* kYoutu[] = {kYoutuScripts, kYoutuWords};
constexpr const char* kKimiK2[] = {kKimiK2Words};
constexpr const char* kGraniteMulti[] = {kGraniteMultiWords};
constexpr const char* kLaguna[] = {kLineBreaks, kQwen2Words};
constexpr const char* kChameleon[] = {kSentinel, kImageToken,     kSpacePair,
                                      kDigit,    kAnyPunctuation, kGpt2Words};
constexpr const char* kSpark25[] = {kUpToThreeDigits, kDeepSeekV3Kana, kSpark25Words, kDigit};
constexpr const char* kAfmoe[] = {kDigitRun, kFirstOfThrees, kNextThree, kAfmoeScripts,
                                  kDeepSeekV3Words};

using Table = HashMap<absl::string_view, SplitFamily>;

const Table& Families() {
  static const Table* const kTable = [] {
    auto* table = new Table;
    auto add = [table](SplitFamily family, std::initializer_list<absl::string_view> names) {
      for (absl::string_view name : names) table->emplace(name, family);
    };
    add({kDefault}, {"default"});
    add({kGpt2},
        {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0",
         "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"});
    add({.patterns = kGpt2, .adds_separator = true}, {"jina-v1-en", "jina-v2-code", "roberta-bpe"});
    add({kStarcoder}, {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone",
                       "minerva-7b", "mellum2"});
    add({kFalcon}, {"falcon"});
    add({kLlama3, true, true}, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"});
    add({kLlama3}, {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"});
    add({kQwen2}, {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan",
                   "solar-open", "megrez", "grok-2"});
    add({kQwen35}, {"qwen35"});
    add({kMiniCpm5, true}, {"minicpm5"});
    add({kBailing}, {"bailingmoe", "bailingmoe2", "llada-moe"});
    add({kSeedCoder}, {"seed-coder"});
    add({kTekken, true, true}, {"tekken"});
    add({kGpt4o}, {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"});
    add({kBloom}, {"bloom", "poro-chat", "gpt3-finnish"});
    add({kViking}, {"viking"});
    add({kDeepSeekLlm}, {"deepseek-llm"});
    add({kDeepSeekCoder}, {"deepseek-coder"});
    add({kUfakZeka}, {"ufakzeka"});
    add({kExaoneMoe}, {"exaone-moe"});
    add({kTinyAya}, {"tiny_aya", "cohere2moe"});
    add({kYoutu, true}, {"youtu"});
    add({kKimiK2}, {"kimi-k2"});
    add({kGraniteMulti, true}, {"granite-embed-multi-97m"});
    add({kLaguna}, {"laguna"});
    add({kChameleon, false, true}, {"chameleon"});
    add({kSpark25}, {"spark2_5"});
    add({kAfmoe}, {"afmoe"});
    add({{}, true, true, true}, {"gemma4", "granite-embed-multi-311m"});
    add({{}, false, false, true}, {"sarvam-moe"});
    add({{}, false, false, true, true}, {"whitespace"});
    add({kJais2}, {"jais-2"});
    add({kSuperBpe}, {"superbpe"});
    add({kDeepSeekV3}, {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"});
    return table;
  }();
  return *kTable;
}

}  // namespace

absl::StatusOr<SplitFamily> FindSplitFamily(absl::string_view name) {
  auto it = Families().find(name.empty() ? "default" : name);
  if (it == Families().end()) {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.pre ", QuoteName(name), " is not supported"));
  }
  return it->second;
}

}  // namespace lm

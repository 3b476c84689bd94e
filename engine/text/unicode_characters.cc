#include "engine/text/unicode_characters.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

pcre2_code* Compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                       PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL, &error, &offset, nullptr);
}

// The character as PCRE2's \U or \L makes it; itself where memory is short.
std::string Mapped(absl::string_view character, const char* replacement) {
  // Most scripts of Asia have no case.
  if (static_cast<unsigned char>(character[0]) >= 0xe3 &&
      static_cast<unsigned char>(character[0]) <= 0xe9) {
    return std::string(character);
  }
  static pcre2_code* const kAny = Compile(".");
  PCRE2_UCHAR buffer[16];
  PCRE2_SIZE size = sizeof(buffer);
  if (kAny == nullptr || pcre2_substitute(kAny, reinterpret_cast<PCRE2_SPTR>(character.data()),
                                          character.size(), 0, PCRE2_SUBSTITUTE_EXTENDED, nullptr,
                                          nullptr, reinterpret_cast<PCRE2_SPTR>(replacement),
                                          PCRE2_ZERO_TERMINATED, buffer, &size) < 0) {
    return std::string(character);
  }
  return std::string(reinterpret_cast<const char*>(buffer), size);
}

}  // namespace

bool IsUnicodeSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  return c < 0x7f ? c >= ' ' : c > 0xa0 && IsInClass(c, CharacterClass::kPrintable);
}

bool IsDigit(uint32_t c) {
  // Numeric_Type=Digit of the Unicode Standard; decimals are of another.
  static constexpr uint32_t kOthers[][2] = {
      {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
      {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
      {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  for (const auto& [first, last] : kOthers) {
    if (c >= first && c <= last) return true;
  }
  return IsInClass(c, CharacterClass::kDecimal);
}

bool IsInClass(uint32_t c, CharacterClass wanted) {
  static pcre2_code* const kPatterns[] = {Compile("\\p{L}"),     Compile("\\p{Nd}"),
                                          Compile("\\p{N}"),     Compile("[^\\p{C}\\p{Z}]"),
                                          Compile("\\p{Cased}"), Compile("\\p{Case_Ignorable}")};
  static_assert(std::size(kPatterns) == static_cast<size_t>(CharacterClass::kCaseIgnorable) + 1);
  pcre2_code* const pattern = kPatterns[static_cast<int>(wanted)];
  if (pattern == nullptr) return false;
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  if (data == nullptr) return false;
  std::string character;
  AppendUtf8(c, &character);
  const int rc = pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(character.data()),
                             character.size(), 0, 0, data, nullptr);
  pcre2_match_data_free(data);
  return rc > 0;
}

std::string ToUpperCharacter(absl::string_view character) {
  if (character.size() == 1) return std::string(1, absl::ascii_toupper(character[0]));
  constexpr std::pair<absl::string_view, absl::string_view> kSeveral[] = {
      {"ß", "SS"},  {"ŉ", "ʼN"},  {"ﬀ", "FF"}, {"ﬁ", "FI"}, {"ﬂ", "FL"},
      {"ﬃ", "FFI"}, {"ﬄ", "FFL"}, {"ﬅ", "ST"}, {"ﬆ", "ST"}};
  for (const auto& [one, several] : kSeveral) {
    if (character == one) return std::string(several);
  }
  return Mapped(character, "\\U$0");
}

std::string ToTitleCharacter(absl::string_view character) {
  if (character.size() == 1) return ToUpperCharacter(character);
  size_t pos = 0;
  const uint32_t c = DecodeUtf8(character, &pos);
  // Georgian has no capitals at the beginning of a word; the digraphs have a form of their own.
  if (c >= 0x10d0 && c <= 0x10ff) return std::string(character);
  const bool is_digraph = (c >= 0x1c4 && c <= 0x1cc) || (c >= 0x1f1 && c <= 0x1f3);
  std::string title;
  if (is_digraph) {
    AppendUtf8(c < 0x1f1 ? 0x1c5 + (c - 0x1c4) / 3 * 3 : 0x1f2, &title);
    return title;
  }
  title = ToUpperCharacter(character);
  if (absl::ascii_isupper(title[0])) absl::AsciiStrToLower(&title);
  title[0] = absl::ascii_toupper(title[0]);
  return title;
}

std::string ToLowerCharacter(absl::string_view character) {
  if (character.size() == 1) return std::string(1, absl::ascii_tolower(character[0]));
  return Mapped(character, "\\L$0");
}

}  // namespace lm

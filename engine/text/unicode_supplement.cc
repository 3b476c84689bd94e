#include "engine/text/unicode_supplement.h"

#include <algorithm>
#include <cstdint>

#include "engine/base/utf8.h"

namespace lm {
namespace {

struct ClassRange {
  uint32_t first;
  uint32_t last;
  uint32_t stand_in;
};

// Long-assigned characters of four bytes, by category.
constexpr uint32_t kLetter = 0x20000;
constexpr uint32_t kMark = 0xe0100;
constexpr uint32_t kNumber = 0x1f100;
constexpr uint32_t kPunctuation = 0x10100;
constexpr uint32_t kSymbol = 0x1f300;

// Ascending. UnicodeData.txt of 15.1 against 14.0, categories L, M, N, P and S; those below U+10000
// get a stand-in from their own block. U+180E is here because PCRE2's \s has it and Unicode's
// White_Space has not (since 6.3).
constexpr ClassRange kYoung[] = {
    {0xcf3, 0xcf3, 0xce3},
    {0xece, 0xece, 0xecd},
    {0x180e, 0x180e, 0x200b},
    {0x2ffc, 0x2fff, 0x2ffb},
    {0x31ef, 0x31ef, 0x31e3},
    {0x10efd, 0x10eff, kMark},
    {0x1123f, 0x11240, kLetter},
    {0x11241, 0x11241, kMark},
    {0x11b00, 0x11b09, kPunctuation},
    {0x11f00, 0x11f01, kMark},
    {0x11f02, 0x11f02, kLetter},
    {0x11f03, 0x11f03, kMark},
    {0x11f04, 0x11f10, kLetter},
    {0x11f12, 0x11f33, kLetter},
    {0x11f34, 0x11f3a, kMark},
    {0x11f3e, 0x11f42, kMark},
    {0x11f43, 0x11f4f, kPunctuation},
    {0x11f50, 0x11f59, kNumber},
    {0x1342f, 0x1342f, kLetter},
    {0x13440, 0x13440, kMark},
    {0x13441, 0x13446, kLetter},
    {0x13447, 0x13455, kMark},
    {0x1b132, 0x1b132, kLetter},
    {0x1b155, 0x1b155, kLetter},
    {0x1d2c0, 0x1d2d3, kNumber},
    {0x1df25, 0x1df2a, kLetter},
    {0x1e030, 0x1e06d, kLetter},
    {0x1e08f, 0x1e08f, kMark},
    {0x1e4d0, 0x1e4eb, kLetter},
    {0x1e4ec, 0x1e4ef, kMark},
    {0x1e4f0, 0x1e4f9, kNumber},
    {0x1f6dc, 0x1f6dc, kSymbol},
    {0x1f774, 0x1f776, kSymbol},
    {0x1f77b, 0x1f77f, kSymbol},
    {0x1f7d9, 0x1f7d9, kSymbol},
    {0x1fa75, 0x1fa77, kSymbol},
    {0x1fa87, 0x1fa88, kSymbol},
    {0x1faad, 0x1faaf, kSymbol},
    {0x1fabb, 0x1fabd, kSymbol},
    {0x1fabf, 0x1fabf, kSymbol},
    {0x1face, 0x1facf, kSymbol},
    {0x1fada, 0x1fadb, kSymbol},
    {0x1fae8, 0x1fae8, kSymbol},
    {0x1faf7, 0x1faf8, kSymbol},
    {0x2b739, 0x2b739, kLetter},
    {0x2ebf0, 0x2ee5d, kLetter},
    {0x31350, 0x323af, kLetter},
};

uint32_t StandIn(uint32_t c) {
  const ClassRange* range =
      std::lower_bound(std::begin(kYoung), std::end(kYoung), c,
                       [](const ClassRange& r, uint32_t value) { return r.last < value; });
  return range != std::end(kYoung) && range->first <= c ? range->stand_in : c;
}

// The lead bytes that the table's code points have in UTF-8.
bool MayBeYoung(char lead) {
  uint8_t byte = static_cast<uint8_t>(lead);
  return (byte >= 0xe0 && byte <= 0xe3) || byte == 0xf0;
}

}  // namespace

absl::string_view ReplaceYoungCodePoints(absl::string_view text, std::string* buffer) {
  bool copied = false;
  std::string replacement;
  for (size_t pos = 0; pos < text.size();) {
    if (!MayBeYoung(text[pos])) {
      ++pos;
      continue;
    }
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(text, &pos);
    const uint32_t stand_in = StandIn(c);
    if (stand_in == c) continue;
    if (!copied) buffer->assign(text.data(), text.size());
    copied = true;
    replacement.clear();
    AppendUtf8(stand_in, &replacement);
    std::copy(replacement.begin(), replacement.end(), buffer->begin() + begin);
  }
  return copied ? absl::string_view(*buffer) : text;
}

}  // namespace lm

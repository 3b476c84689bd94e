#include "engine/text/longest_part.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kLongestWord = 64;
constexpr int kMostWords = 4;  // that are tried whole

// Whether a part of so many bytes would cut a character.
bool CutsCharacter(absl::string_view text, TextSide side, size_t bytes) {
  const size_t at = side == TextSide::kBegin ? bytes : text.size() - bytes;
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

// The first part of whole characters with `bytes` or more.
size_t WholeFrom(absl::string_view text, TextSide side, size_t bytes) {
  while (bytes < text.size() && CutsCharacter(text, side, bytes)) ++bytes;
  return bytes;
}

// A part of at least `bytes` that cuts no word; `bytes` where that cuts none, or a long one.
size_t WithWholeWord(absl::string_view text, TextSide side, size_t bytes) {
  size_t whole = bytes;
  while (whole < text.size() && whole < bytes + kLongestWord &&
         !absl::ascii_isspace(side == TextSide::kBegin ? text[whole]
                                                       : text[text.size() - whole - 1])) {
    ++whole;
  }
  return whole < bytes + kLongestWord ? whole : bytes;
}

}  // namespace

absl::string_view PartAt(TextSide side, absl::string_view text, size_t bytes) {
  bytes = std::min(bytes, text.size());
  while (bytes > 0 && CutsCharacter(text, side, bytes)) --bytes;
  return side == TextSide::kBegin ? text.substr(0, bytes) : text.substr(text.size() - bytes);
}

absl::StatusOr<absl::string_view> LongestPart(
    absl::string_view text, TextSide side, PartBounds bounds,
    absl::FunctionRef<absl::StatusOr<bool>(absl::string_view part)> fits) {
  size_t low = bounds.fits;
  const size_t least = std::max<size_t>(bounds.grain, 1);
  for (int words = 0;; ++words) {
    size_t high = bounds.over;
    size_t at = words == 0 ? std::max(bounds.guess, low + 1) : low + 1;
    // In steps that double, until it is known from both sides; then by halves.
    bool rose = words > 0 || bounds.guess == bounds.fits, fell = false;
    for (size_t step = least; high - low > least || bounds.grain == 0; step *= 2) {
      at = WholeFrom(text, side, std::max(at, low + 1));
      if (at >= high) {
        // The last that there may be between.
        at = PartAt(side, text, high - 1).size();
        if (at <= low) break;
      }
      ASSIGN_OR_RETURN(const bool fit, fits(PartAt(side, text, at)));
      (fit ? low : high) = at;
      (fit ? rose : fell) = true;
      if (rose && fell) {
        at = low + (high - low) / 2;
      } else {
        at = fit ? low + step : high - std::min(step, high - low);
      }
    }
    if (bounds.grain > 0 || words == kMostWords) break;
    const size_t whole = WithWholeWord(text, side, low);
    if (whole <= low || whole >= bounds.over) break;
    ASSIGN_OR_RETURN(const bool fit, fits(PartAt(side, text, whole)));
    if (!fit) break;
    low = whole;
  }
  return PartAt(side, text, low);
}

}  // namespace lm

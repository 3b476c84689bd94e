#include "engine/remote/split_character.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lm {
namespace {

constexpr size_t kEscape = 6;  // bytes of \ud83d

// Whether the text begins with an escape of one of the 1,024 halves from `first` on.
bool BeginsHalf(absl::string_view text, uint32_t first) {
  uint32_t code = 0;
  return absl::StartsWith(text, "\\u") && text.size() >= kEscape &&
         absl::SimpleHexAtoi(text.substr(2, 4), &code) && code >> 10 == first >> 10;
}

}  // namespace

std::string SplitCharacter::Join(absl::string_view event) {
  std::string joined, kept;
  while (!event.empty()) {
    const absl::string_view behind = event.size() > kEscape ? event.substr(kEscape) : "";
    const bool is_first = BeginsHalf(event, 0xd800), is_second = BeginsHalf(event, 0xdc00);
    size_t taken = event[0] == '\\' && event.size() > 1 ? 2 : 1;
    if (is_first && BeginsHalf(behind, 0xdc00)) taken = 2 * kEscape;
    if (is_first && absl::StartsWith(behind, "\"")) {
      kept = std::string(event.substr(0, kEscape));
      event = behind;
      continue;
    }
    if (is_second && absl::EndsWith(joined, "\"")) absl::StrAppend(&joined, half_);
    absl::StrAppend(&joined, event.substr(0, taken));
    event.remove_prefix(taken);
  }
  half_ = std::move(kept);
  return joined;
}

}  // namespace lm

#include "engine/text/character_map.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// No real rule is so long; a damaged array may lead in circles.
constexpr size_t kLongestRule = 256;

size_t UnitsFrom(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & ((1u << 31) | 0xff); }
bool IsLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }

}  // namespace

absl::StatusOr<CharacterMap> CharacterMap::Create(absl::string_view data) {
  CharacterMap map;
  uint32_t bytes = 0;
  if (data.size() >= sizeof(bytes)) std::memcpy(&bytes, data.data(), sizeof(bytes));
  if (data.size() < sizeof(bytes) || bytes >= data.size() - sizeof(bytes) || bytes == 0 ||
      bytes % sizeof(uint32_t) != 0 || data.back() != '\0') {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.precompiled_charsmap of ", data.size(), " bytes has units of ",
                     bytes, ", wanted whole ones with texts behind them that end with a NUL"));
  }
  data.remove_prefix(sizeof(bytes));
  map.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), data.data(), bytes);
  map.replacements_ = std::string(data.substr(bytes));
  return map;
}

CharacterMap::Replacement CharacterMap::Find(absl::string_view text) const {
  Replacement found;
  if (units_.empty()) return found;
  size_t at = UnitsFrom(units_[0]);
  const size_t most = std::min(text.size(), kLongestRule);
  for (size_t i = 0; i < most; ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || LabelOf(units_[at]) != byte) break;
    const bool is_leaf = IsLeaf(units_[at]);
    at ^= UnitsFrom(units_[at]);
    if (!is_leaf || at >= units_.size()) continue;
    const size_t place = units_[at] & ~(1u << 31);
    if (place < replacements_.size()) found = {i + 1, replacements_.c_str() + place};
  }
  return found;
}

}  // namespace lm

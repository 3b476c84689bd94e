#include "engine/remote/secrets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace lm {
namespace {

constexpr size_t kShortest = 6;  // bytes of a secret

}  // namespace

Secrets::Secrets(const std::vector<std::string>& headers) {
  for (const absl::string_view header : headers) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(header, absl::MaxSplits(": ", 1));
    if (absl::EqualsIgnoreCase(parts.first, "Content-Type")) continue;
    Add(parts.second);
    for (const absl::string_view piece : absl::StrSplit(parts.second, "; ")) {
      Add(piece);
      Add(piece.substr(std::min(piece.find_first_of(" ="), piece.size() - 1) + 1));
    }
  }
}

void Secrets::Add(absl::string_view text) {
  if (text.size() < kShortest) return;
  const size_t scheme = text.find(' ') + 1;  // with its space; 0: there is none
  texts_.push_back({std::string(text), std::min(std::max(kShortest, scheme + 1), text.size())});
}

size_t Secrets::LengthAt(absl::string_view words) const {
  size_t longest = 0;
  for (const auto& [text, least] : texts_) {
    const size_t length = std::min(text.size(), words.size());
    if (length >= least && absl::StartsWith(text, words.substr(0, length))) {
      longest = std::max(longest, length);
    }
  }
  return longest;
}

std::string Secrets::Without(absl::string_view words, size_t most) const {
  std::string without;
  for (size_t at = 0; at < std::min(most, words.size());) {
    const size_t length = LengthAt(words.substr(at));
    if (length > 0) {
      without += "***";
      at += length;
    } else {
      without += words[at++];
    }
  }
  return without;
}

}  // namespace lm

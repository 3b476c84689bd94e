#include "engine/model/purpose.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kWords = "sqlite_lm.purpose.words";
constexpr size_t kMostWords = 64, kLongestWord = 64;
// Of a text, so much at each end is looked at: a row may have megabytes.
constexpr size_t kLooked = 1024;

bool HasWord(absl::string_view text, absl::Span<const std::string> words) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && absl::ascii_isalnum(text[i - 1])) continue;
    for (const std::string& word : words) {
      if (absl::StartsWithIgnoreCase(text.substr(i), word)) return true;
    }
  }
  return false;
}

bool HasWordAtAnEnd(absl::string_view text, absl::Span<const std::string> words) {
  if (text.size() <= 2 * kLooked) return HasWord(text, words);
  return HasWord(text.substr(0, kLooked), words) ||
         HasWord(text.substr(text.size() - kLooked), words);
}

}  // namespace

bool Purpose::Covers(absl::Span<const absl::string_view> texts) const {
  return words.empty() || std::any_of(texts.begin(), texts.end(), [this](absl::string_view text) {
           return HasWordAtAnEnd(text, words);
         });
}

absl::StatusOr<Purpose> ReadPurpose(const Metadata& metadata) {
  if (!metadata.Has(kWords)) return Purpose();
  ASSIGN_OR_RETURN(const absl::Span<const std::string> words, metadata.GetStrings(kWords));
  const bool are_words = !words.empty() && words.size() <= kMostWords &&
                         std::all_of(words.begin(), words.end(), [](const std::string& word) {
                           return !word.empty() && word.size() <= kLongestWord;
                         });
  if (!are_words) {
    return absl::InvalidArgumentError(absl::StrCat(kWords, " must be 1 to ", kMostWords,
                                                   " texts of 1 to ", kLongestWord, " bytes"));
  }
  const std::string text = metadata.GetString("general.description").value_or("");
  return Purpose{Printable(text.substr(0, 256)), {words.begin(), words.end()}};
}

}  // namespace lm

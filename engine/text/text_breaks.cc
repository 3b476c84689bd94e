#include "engine/text/text_breaks.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lm {
namespace {

constexpr absl::string_view kWideEnds[] = {"。", "！", "？"};
constexpr absl::string_view kWideClosers[] = {"”", "’", "»", "」", "』", "）"};

bool IsAsciiCloser(char c) { return c == '"' || c == '\'' || c == ')' || c == ']'; }

// Takes one of `suffixes` off the end of *text.
template <size_t kCount>
bool ConsumeOneOf(const absl::string_view (&suffixes)[kCount], absl::string_view* text) {
  for (absl::string_view suffix : suffixes) {
    if (!absl::EndsWith(*text, suffix)) continue;
    text->remove_suffix(suffix.size());
    return true;
  }
  return false;
}

absl::string_view WithoutClosers(absl::string_view text) {
  while (!text.empty()) {
    if (IsAsciiCloser(text.back())) {
      text.remove_suffix(1);
    } else if (!ConsumeOneOf(kWideClosers, &text)) {
      break;
    }
  }
  return text;
}

// Whether the full stop behind `text` belongs to an abbreviation or to the number of a list's item.
bool StopEndsNothing(absl::string_view text) {
  size_t word = text.size();
  while (word > 0 && absl::ascii_isalnum(text[word - 1])) --word;
  const size_t letters = text.size() - word;
  if (letters == 1 && absl::ascii_isalpha(text[word])) return true;
  for (size_t i = word; i < text.size(); ++i) {
    if (!absl::ascii_isdigit(text[i])) return false;
  }
  while (word > 0 && (text[word - 1] == ' ' || text[word - 1] == '\t')) --word;
  return letters > 0 && (word == 0 || text[word - 1] == '\n');
}

// `text` has no white space at its end; `next` is the character after that.
bool EndsSentence(absl::string_view text, char next) {
  text = WithoutClosers(text);
  if (text.empty() || absl::ascii_islower(next)) return false;
  if (text.back() == '!' || text.back() == '?' || absl::EndsWith(text, "…")) return true;
  if (text.back() != '.') return false;
  text.remove_suffix(1);
  return !StopEndsNothing(text);
}

bool EndsWideSentence(absl::string_view text) {
  text = WithoutClosers(text);
  return ConsumeOneOf(kWideEnds, &text);
}

bool BeginsWithCloser(absl::string_view text) {
  if (!text.empty() && IsAsciiCloser(text.front())) return true;
  for (absl::string_view closer : kWideClosers) {
    if (absl::StartsWith(text, closer)) return true;
  }
  return false;
}

}  // namespace

TextBreak BreakAt(absl::string_view text, size_t at) {
  if (at == text.size()) return TextBreak::kParagraph;
  const absl::string_view rest = text.substr(at);
  if (absl::ascii_isspace(rest.front())) return TextBreak::kInside;
  absl::string_view before = text.substr(0, at);
  int newlines = 0;
  while (!before.empty() && absl::ascii_isspace(before.back())) {
    newlines += before.back() == '\n';
    before.remove_suffix(1);
  }
  if (newlines > 1) return TextBreak::kParagraph;
  const bool space = before.size() < at;
  if (space && EndsSentence(before, rest.front())) return TextBreak::kSentence;
  if (!BeginsWithCloser(rest) && EndsWideSentence(before)) return TextBreak::kSentence;
  if (newlines > 0) return TextBreak::kLine;
  return space ? TextBreak::kWord : TextBreak::kInside;
}

}  // namespace lm

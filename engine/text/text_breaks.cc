#include "engine/text/text_breaks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "engine/base/utf8.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

constexpr absl::string_view kWideEnds[] = {"。", "！", "？", "｡"};
// Unicode's Sentence_Terminal, the usual ones of scripts with spaces.
constexpr absl::string_view kSentenceEnds[] = {"!", "?", "…", "‼", "⁇", "⁈", "⁉", "؟", "۔",
                                               "։", "।", "॥", "።", "፧", "၊", "။", "។", "៕"};
// What goes on with the sentence: UAX 29's SContinue.
constexpr absl::string_view kContinue[] = {",", ";", ":", "-", "–", "—", "、", "،", "؛"};
// Behind these a full stop ends nothing.
constexpr absl::string_view kAbbreviations[] = {
    // before names
    "Mr", "Mrs", "Ms", "Mx", "Dr", "Prof", "Rev", "Hon", "St", "Ste", "Mt", "Ft", "Messrs", "Gen",
    "Col", "Maj", "Capt", "Cpt", "Cmdr", "Lt", "Sgt", "Cpl", "Pvt", "Adm", "Gov", "Sen", "Rep",
    "Pres", "Supt", "Mme", "Mlle", "Mgr", "Hr", "Fr", "Frl", "Sra", "Srta", "Dra",
    // in the middle of a sentence
    "vs", "cf", "viz", "al", "resp", "approx", "ca", "incl", "excl", "esp", "bzw", "vgl", "sog",
    "ggf", "evtl"};
// Or behind these, if a number follows.
constexpr absl::string_view kBeforeNumbers[] = {
    "No",  "no",  "Nos",  "nos", "Nr",  "nr",  "Fig", "fig", "Figs", "figs", "Tab",  "tab",
    "Eq",  "eq",  "Eqs",  "eqs", "Sec", "sec", "Ch",  "ch",  "Chap", "chap", "Vol",  "vol",
    "pp",  "Pp",  "Art",  "art", "Abs", "Bd",  "Jan", "Feb", "Mar",  "Apr",  "Jun",  "Jul",
    "Aug", "Sep", "Sept", "Oct", "Nov", "Dec", "Op",  "op",  "Ex",   "ex",   "Para", "para"};
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

bool IsLetter(uint32_t c) { return IsInClass(c, CharacterClass::kLetter); }

bool IsLower(absl::string_view character) {
  return character.size() == 1 ? absl::ascii_islower(character[0])
                               : ToUpperCharacter(character) != character;
}

// The last character of `text`, which is not empty.
absl::string_view LastCharacter(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return text.substr(begin);
}

// The letters and digits at the end of `text`, with apostrophes.
absl::string_view LastWord(absl::string_view text) {
  absl::string_view before = text;
  while (!before.empty()) {
    const absl::string_view character = LastCharacter(before);
    size_t pos = 0;
    const uint32_t c = DecodeUtf8(character, &pos);
    const bool apostrophe = c == '\'' || c == 0x2019;
    if (!apostrophe && !IsLetter(c) && !IsInClass(c, CharacterClass::kDecimal)) break;
    before.remove_suffix(character.size());
  }
  return text.substr(before.size());
}

// Whether the full stop between `text` and `rest` belongs to an abbreviation or to the number of a
// list's item.
bool StopEndsNothing(absl::string_view text, absl::string_view rest) {
  const absl::string_view word = LastWord(text);
  if (word.empty()) return false;
  size_t first = 0;
  if (IsLetter(DecodeUtf8(word, &first)) && first == word.size()) return true;  // an initial
  auto is_in = [word](absl::Span<const absl::string_view> table) {
    return std::find(table.begin(), table.end(), word) != table.end();
  };
  if (is_in(kAbbreviations)) return true;
  if (absl::ascii_isdigit(rest.front()) && is_in(kBeforeNumbers)) return true;
  if (!std::all_of(word.begin(), word.end(), absl::ascii_isdigit)) return false;
  text.remove_suffix(word.size());
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text.empty() || text.back() == '\n';
}

// Whether `rest` goes on with a sentence: UAX 29's SB8 (a small letter, perhaps in quotes or
// brackets) and SB8a.
bool GoesOn(absl::string_view rest) {
  for (absl::string_view sign : kContinue) {
    if (absl::StartsWith(rest, sign)) return true;
  }
  constexpr size_t kMostOpeners = 4;
  size_t pos = 0;
  for (size_t i = 0; i <= kMostOpeners && pos < rest.size(); ++i) {
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(rest, &pos);
    if (IsLetter(c)) return IsLower(rest.substr(begin, pos - begin));
    if (IsInClass(c, CharacterClass::kNumber) || IsUnicodeSpace(c)) return false;
  }
  return false;
}

// `text` has no white space at its end; `rest` comes after that.
bool EndsSentence(absl::string_view text, absl::string_view rest) {
  text = WithoutClosers(text);
  if (text.empty()) return false;
  if (ConsumeOneOf(kSentenceEnds, &text)) return !GoesOn(rest);
  if (text.back() != '.') return false;
  text.remove_suffix(1);
  return !GoesOn(rest) && !StopEndsNothing(text, rest);
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
  if (space && EndsSentence(before, rest)) return TextBreak::kSentence;
  if (!BeginsWithCloser(rest) && EndsWideSentence(before)) return TextBreak::kSentence;
  if (newlines > 0) return TextBreak::kLine;
  return space ? TextBreak::kWord : TextBreak::kInside;
}

}  // namespace lm

#include "engine/text/template/template_strings.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/unicode_characters.h"

namespace lm {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The first byte of the character that ends before `end`.
size_t CharacterBefore(absl::string_view bytes, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && IsContinuation(bytes[begin])) --begin;
  return begin;
}

// A list of strings that are each paid for.
struct Parts {
  Parts(const TemplateText& whole, TemplateBudget* payer) : text(whole), budget(payer) {}
  absl::Status Add(size_t begin, size_t end) {
    RETURN_IF_ERROR(budget->Steps(4));
    list.push_back(TemplateValue::String(text.Part(begin, end)));
    return absl::OkStatus();
  }

  const TemplateText& text;
  TemplateBudget* const budget;
  TemplateValue::List list;
};

bool IsLineEnd(uint32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// The end of the word that begins at *begin, which moves over white space before it; there is none
// where *begin is the end of the text.
size_t NextWord(absl::string_view bytes, size_t* begin) {
  bool inside = false;
  for (size_t pos = *begin; pos < bytes.size();) {
    const size_t at = pos;
    if (IsUnicodeSpace(DecodeUtf8(bytes, &pos))) {
      if (inside) return at;
      *begin = pos;
    } else {
      inside = true;
    }
  }
  return bytes.size();
}

absl::Status SplitWords(absl::string_view bytes, int64_t most, bool from_right, Parts* parts) {
  if (from_right && most >= 0) {
    return absl::InvalidArgumentError("rsplit at white space with a limit is not supported");
  }
  size_t begin = 0;
  for (int64_t count = 0;; ++count) {
    const size_t end = NextWord(bytes, &begin);
    if (begin == bytes.size()) return absl::OkStatus();
    const bool rest = most >= 0 && count >= most;
    RETURN_IF_ERROR(parts->Add(begin, rest ? bytes.size() : end));
    if (rest) return absl::OkStatus();
    begin = end;
  }
}

// Whether the capital sigma at [begin, end) is the last letter of a word, by the Unicode Standard's
// Final_Sigma.
bool IsFinalSigma(absl::string_view bytes, size_t begin, size_t end) {
  auto is = [](uint32_t c, CharacterClass wanted) { return IsInClass(c, wanted); };
  bool behind_letter = false;
  while (begin > 0) {
    begin = CharacterBefore(bytes, begin);
    size_t pos = begin;
    const uint32_t c = DecodeUtf8(bytes, &pos);
    if (is(c, CharacterClass::kCaseIgnorable)) continue;
    behind_letter = is(c, CharacterClass::kCased);
    break;
  }
  while (behind_letter && end < bytes.size()) {
    const uint32_t c = DecodeUtf8(bytes, &end);
    if (!is(c, CharacterClass::kCaseIgnorable)) return !is(c, CharacterClass::kCased);
  }
  return behind_letter;
}

}  // namespace

TemplateText StripText(const TemplateText& text, std::optional<absl::string_view> characters,
                       TextSides sides) {
  const absl::string_view bytes = text.bytes();
  auto goes = [&](size_t begin, size_t end) {
    if (characters.has_value()) {
      return absl::StrContains(*characters, bytes.substr(begin, end - begin));
    }
    size_t pos = begin;
    return IsUnicodeSpace(DecodeUtf8(bytes, &pos));
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (sides != TextSides::kRight && begin < end) {
    size_t next = begin;
    DecodeUtf8(bytes, &next);
    if (!goes(begin, next)) break;
    begin = next;
  }
  while (sides != TextSides::kLeft && begin < end) {
    const size_t last = CharacterBefore(bytes, end);
    if (!goes(last, end)) break;
    end = last;
  }
  return text.Part(begin, std::max(begin, end));
}

absl::StatusOr<TemplateValue::List> SplitText(const TemplateText& text,
                                              std::optional<absl::string_view> separator,
                                              int64_t most, bool from_right,
                                              TemplateBudget* budget) {
  const absl::string_view bytes = text.bytes();
  RETURN_IF_ERROR(budget->Bytes(bytes.size()));
  Parts parts(text, budget);
  if (!separator.has_value()) {
    RETURN_IF_ERROR(SplitWords(bytes, most, from_right, &parts));
  } else if (separator->empty()) {
    return absl::InvalidArgumentError("empty separator");
  } else if (from_right) {
    size_t end = bytes.size();
    for (int64_t count = 0; most < 0 || count < most; ++count) {
      ASSIGN_OR_RETURN(const size_t found, FindLast(bytes.substr(0, end), *separator, budget));
      if (found == absl::string_view::npos) break;
      RETURN_IF_ERROR(parts.Add(found + separator->size(), end));
      end = found;
    }
    RETURN_IF_ERROR(parts.Add(0, end));
    std::reverse(parts.list.begin(), parts.list.end());
  } else {
    size_t begin = 0;
    for (int64_t count = 0; most < 0 || count < most; ++count) {
      const size_t found = FindFirst(bytes, *separator, begin);
      if (found == absl::string_view::npos) break;
      RETURN_IF_ERROR(parts.Add(begin, found));
      begin = found + separator->size();
    }
    RETURN_IF_ERROR(parts.Add(begin, bytes.size()));
  }
  return std::move(parts.list);
}

absl::StatusOr<TemplateValue::List> SplitLines(const TemplateText& text, TemplateBudget* budget) {
  const absl::string_view bytes = text.bytes();
  RETURN_IF_ERROR(budget->Bytes(bytes.size()));
  Parts parts(text, budget);
  size_t begin = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t end = pos;
    if (!IsLineEnd(DecodeUtf8(bytes, &pos))) continue;
    if (bytes[end] == '\r' && pos < bytes.size() && bytes[pos] == '\n') ++pos;
    RETURN_IF_ERROR(parts.Add(begin, end));
    begin = pos;
  }
  if (begin < bytes.size()) RETURN_IF_ERROR(parts.Add(begin, bytes.size()));
  return std::move(parts.list);
}

absl::StatusOr<TemplateText> ReplaceText(const TemplateText& text, absl::string_view old,
                                         const TemplateText& replacement, int64_t most,
                                         TemplateBudget* budget) {
  const absl::string_view bytes = text.bytes();
  RETURN_IF_ERROR(budget->Bytes(2 * bytes.size()));
  TemplateText result;
  size_t begin = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    size_t found = begin;
    if (old.empty()) {  // before every character, and at the end
      if (count > 0) {
        if (begin == bytes.size()) return result;
        DecodeUtf8(bytes, &found);
      }
    } else {
      found = FindFirst(bytes, old, begin);
      if (found == absl::string_view::npos) break;
    }
    RETURN_IF_ERROR(budget->Bytes(replacement.size() + 8));
    result.Append(text, begin, found);
    result.Append(replacement);
    begin = found + old.size();
  }
  result.Append(text, begin, bytes.size());
  return result;
}

std::string LowerCharacter(absl::string_view character) {
  return character == "\u0130" ? "i\u0307" : ToLowerCharacter(character);
}

TemplateText ChangeCase(const TemplateText& text, TextCase wanted) {
  const absl::string_view bytes = text.bytes();
  TemplateText result;
  bool starts = true;  // a word, or the text
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(bytes, &pos);
    const bool upper = wanted == TextCase::kUpper;
    const bool title = starts && (wanted == TextCase::kTitle || wanted == TextCase::kCapitalized);
    const absl::string_view character = bytes.substr(begin, pos - begin);
    const bool final_sigma =
        character == "Σ" && !upper && !title && IsFinalSigma(bytes, begin, pos);
    result.Append(upper         ? ToUpperCharacter(character)
                  : title       ? ToTitleCharacter(character)
                  : final_sigma ? "ς"
                                : LowerCharacter(character),
                  text.KindAt(begin));
    starts = wanted == TextCase::kTitle && !IsInClass(c, CharacterClass::kLetter);
  }
  return result;
}

size_t FindFirst(absl::string_view text, absl::string_view part, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  const void* const found =
      memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? absl::string_view::npos : static_cast<const char*>(found) - text.data();
}

absl::StatusOr<size_t> FindLast(absl::string_view text, absl::string_view part,
                                TemplateBudget* budget) {
  for (size_t at = text.size() + 1; at-- > 0;) {
    if (text.size() - at < part.size()) continue;
    const auto parting = std::mismatch(part.begin(), part.end(), text.begin() + at);
    RETURN_IF_ERROR(budget->Bytes(parting.first - part.begin() + 1));
    if (parting.first == part.end()) return at;
  }
  return absl::string_view::npos;
}

int64_t CountCharacters(absl::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return !IsContinuation(c); });
}

size_t ByteOfCharacter(absl::string_view bytes, int64_t character) {
  size_t pos = 0;
  for (; pos < bytes.size(); ++pos) {
    if (!IsContinuation(bytes[pos]) && character-- == 0) break;
  }
  return pos;
}

}  // namespace lm

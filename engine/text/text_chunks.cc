#include "engine/text/text_chunks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "engine/base/status_macros.h"
#include "engine/text/longest_part.h"
#include "engine/text/text_breaks.h"

namespace lm {
namespace {

bool IsInsideCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The last beginning of a character at or before `at`, but past `begin`: at least the end of the
// character there.
size_t CharacterBreak(absl::string_view text, size_t begin, size_t at) {
  at = std::min(at, text.size());
  while (at > begin && at < text.size() && IsInsideCharacter(text[at])) --at;
  if (at > begin) return at;
  ++at;
  while (at < text.size() && IsInsideCharacter(text[at])) ++at;
  return at;
}

// The best place to end a chunk that begins at `begin` and must end at `most` or before.
size_t BestBreak(absl::string_view text, size_t begin, size_t most) {
  const size_t half = begin + (most - begin) / 2;
  const size_t quarter = begin + (most - begin) / 4;
  size_t last[static_cast<int>(TextBreak::kParagraph) + 1] = {};  // [kind]: the last of it; 0: none
  for (size_t at = most; at > begin; --at) {
    if (at < text.size() && IsInsideCharacter(text[at])) continue;
    const TextBreak kind = BreakAt(text, at);
    size_t& found = last[static_cast<int>(kind)];
    if (found == 0) found = at;
    if (kind == TextBreak::kParagraph) break;
    // Further back only words are taken.
    if (at <= quarter && last[static_cast<int>(TextBreak::kWord)] != 0) break;
  }
  auto ends = [&](TextBreak kind, size_t least) {  // 0: nothing of the kind does
    const size_t at = last[static_cast<int>(kind)];
    return at >= least ? at : 0;
  };
  if (const size_t at = ends(TextBreak::kParagraph, half); at != 0) return at;
  for (TextBreak kind : {TextBreak::kSentence, TextBreak::kParagraph, TextBreak::kLine}) {
    if (const size_t at = ends(kind, quarter); at != 0) return at;
  }
  const size_t any = *std::max_element(&last[static_cast<int>(TextBreak::kWord)], std::end(last));
  return any != 0 ? any : most;
}

// Where only how many tokens there are counts, a part may be shorter than the longest by this share
// of it.
constexpr size_t kGrains = 64;

// Whether the bytes of these tokens tell where they lie in the text. (A tokenizer may put a space
// in front of it.)
bool TellPlaces(const TokenSizes& sizes, const std::vector<size_t>& tokens, size_t bytes) {
  const size_t sum = std::accumulate(tokens.begin(), tokens.end(), size_t{0});
  return sizes.AreParts() && (sum == bytes || sum == bytes + 1);
}

// The bytes of about the longest part of `text`, longer than `fits` bytes and shorter than all of
// it, that has at most `most` tokens; all of it has `tokens`, > most.
absl::StatusOr<size_t> CountedPart(const TokenSizes& sizes, absl::string_view text, TextSide side,
                                   size_t fits, size_t tokens, size_t most) {
  const size_t guess = std::max(fits, text.size() * most / tokens);
  ASSIGN_OR_RETURN(
      const absl::string_view part,
      LongestPart(text, side,
                  {.fits = fits, .over = text.size(), .guess = guess, .grain = 1 + guess / kGrains},
                  [&](absl::string_view one) -> absl::StatusOr<bool> {
                    ASSIGN_OR_RETURN(const std::vector<size_t> its, sizes.Of(one));
                    return its.size() <= most;
                  }));
  return part.size();
}

// Either all that is left from `begin`, with its tokens, or about where `max_tokens` tokens end.
struct Reach {
  size_t end = 0;
  bool is_all = false;
  int32_t tokens = 0;  // is_all
};

absl::StatusOr<Reach> FindReach(const TokenSizes& sizes, absl::string_view text, size_t begin,
                                int32_t max_tokens) {
  constexpr size_t kBytesPerToken = 6;  // more than most texts have
  const size_t most = max_tokens;
  size_t fits = 0;
  for (size_t window = kBytesPerToken * most;; window *= 2) {
    const size_t end =
        window < text.size() - begin ? CharacterBreak(text, begin, begin + window) : text.size();
    const absl::string_view seen = text.substr(begin, end - begin);
    // Where it is cut is counted again; a beginning need not be counted for that.
    ASSIGN_OR_RETURN(const std::vector<size_t> tokens,
                     sizes.ToCut(seen, end == text.size() ? max_tokens : 0));
    if (tokens.size() <= most) {
      if (end == text.size()) return Reach{end, true, static_cast<int32_t>(tokens.size())};
      fits = seen.size();
      continue;
    }
    size_t bytes = 0;
    if (TellPlaces(sizes, tokens, seen.size())) {
      bytes = std::accumulate(tokens.begin(), tokens.begin() + max_tokens, bytes);
    } else {
      ASSIGN_OR_RETURN(bytes,
                       CountedPart(sizes, seen, TextSide::kBegin, fits, tokens.size(), most));
    }
    return Reach{CharacterBreak(text, begin, begin + std::min(bytes, end - begin))};
  }
}

absl::StatusOr<TextChunk> ChunkFrom(const TokenSizes& sizes, absl::string_view text, size_t begin,
                                    int32_t max_tokens) {
  ASSIGN_OR_RETURN(const Reach reach, FindReach(sizes, text, begin, max_tokens));
  if (reach.is_all) return TextChunk{begin, reach.end, reach.tokens};
  for (size_t most = reach.end;;) {
    const size_t end = BestBreak(text, begin, most);
    ASSIGN_OR_RETURN(const std::vector<size_t> tokens, sizes.Of(text.substr(begin, end - begin)));
    const bool one_character = CharacterBreak(text, begin, begin) == end;
    if (tokens.size() <= static_cast<size_t>(max_tokens) || one_character) {
      return TextChunk{begin, end, static_cast<int32_t>(tokens.size())};
    }
    // Cut here it has more tokens than as the beginning of a longer text.
    most = CharacterBreak(text, begin, begin + (end - begin) * max_tokens / tokens.size());
    if (most >= end) most = CharacterBreak(text, begin, end - 1);
  }
}

// About how many bytes the last `overlap` tokens of `whole` have.
absl::StatusOr<size_t> OverlapBytes(const TokenSizes& sizes, absl::string_view whole,
                                    int32_t overlap) {
  ASSIGN_OR_RETURN(const std::vector<size_t> tokens, sizes.Of(whole));
  if (TellPlaces(sizes, tokens, whole.size())) {
    const size_t some = std::min(tokens.size(), static_cast<size_t>(overlap));
    return std::accumulate(tokens.end() - some, tokens.end(), size_t{0});
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> added, sizes.Of(""));
  const size_t most = overlap + added.size();
  if (tokens.size() <= most) return whole.size();
  return CountedPart(sizes, whole, TextSide::kEnd, 0, tokens.size(), most);
}

// Where a chunk begins that repeats the end of `chunk`, about `overlap` tokens before chunk.end: at
// the beginning of a sentence, or else of a word, be it a little before; inside of one that is
// longer than that. chunk.end where there is nothing to repeat.
absl::StatusOr<size_t> OverlapBegin(const TokenSizes& sizes, absl::string_view text,
                                    const TextChunk& chunk, int32_t overlap) {
  constexpr size_t kLongWord = 64;
  const absl::string_view whole = chunk.Of(text);
  ASSIGN_OR_RETURN(const size_t bytes, OverlapBytes(sizes, whole, overlap));
  const size_t least = chunk.end - std::min(bytes, whole.size() - 1);
  std::optional<size_t> character, word;
  for (size_t at = least; at < chunk.end; ++at) {
    if (IsInsideCharacter(text[at])) continue;
    if (!character.has_value() && !absl::ascii_isspace(text[at])) character = at;
    const TextBreak kind = BreakAt(text, at);
    if (kind != TextBreak::kInside && !word.has_value()) word = at;
    if (kind >= TextBreak::kSentence) return at;
  }
  if (word.has_value()) return *word;
  if (!character.has_value()) return chunk.end;
  // The end of a word: of one that ends here, all of it.
  if (BreakAt(text, chunk.end) != TextBreak::kInside) {
    for (size_t at = least; at > chunk.begin && least - at < kLongWord; --at) {
      if (!IsInsideCharacter(text[at]) && BreakAt(text, at) != TextBreak::kInside) return at;
    }
    if (least - chunk.begin < kLongWord) return chunk.end;
  }
  return *character;
}

}  // namespace

absl::StatusOr<TextChunk> NextChunk(const TokenSizes& sizes, absl::string_view text,
                                    const TextChunk& last, const ChunkLimits& limits) {
  if (limits.overlap > 0 && last.end > 0) {
    ASSIGN_OR_RETURN(const size_t begin, OverlapBegin(sizes, text, last, limits.overlap));
    ASSIGN_OR_RETURN(const TextChunk chunk, ChunkFrom(sizes, text, begin, limits.tokens));
    // Otherwise what is repeated leaves no room for anything new.
    if (chunk.end > last.end) return chunk;
  }
  return ChunkFrom(sizes, text, last.end, limits.tokens);
}

}  // namespace lm

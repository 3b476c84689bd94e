#include "engine/text/text_chunks.h"

#include <algorithm>
#include <vector>

#include "engine/base/status_macros.h"
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

// Either all that is left from `begin`, with its tokens, or about where `max_tokens` tokens end.
struct Reach {
  size_t end = 0;
  bool is_all = false;
  int32_t tokens = 0;  // is_all
};

absl::StatusOr<Reach> FindReach(const TokenSizes& sizes, absl::string_view text, size_t begin,
                                int32_t max_tokens) {
  constexpr size_t kBytesPerToken = 6;  // more than most texts have
  for (size_t window = kBytesPerToken * max_tokens;; window *= 2) {
    const size_t end =
        window < text.size() - begin ? CharacterBreak(text, begin, begin + window) : text.size();
    // Where it is cut is counted again; a beginning need not be counted for that.
    ASSIGN_OR_RETURN(
        const std::vector<size_t> tokens,
        sizes.ToCut(text.substr(begin, end - begin), end == text.size() ? max_tokens : 0));
    if (tokens.size() <= static_cast<size_t>(max_tokens)) {
      if (end == text.size()) return Reach{end, true, static_cast<int32_t>(tokens.size())};
      continue;
    }
    size_t bytes = 0;
    for (int32_t i = 0; i < max_tokens; ++i) bytes += tokens[i];
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

// Where a chunk begins that repeats the end of `chunk`: at the beginning of a sentence, or else of
// a word, about `overlap` tokens before chunk.end; chunk.end where there is none.
absl::StatusOr<size_t> OverlapBegin(const TokenSizes& sizes, absl::string_view text,
                                    const TextChunk& chunk, int32_t overlap) {
  const absl::string_view whole = chunk.Of(text);
  ASSIGN_OR_RETURN(const std::vector<size_t> tokens, sizes.Of(whole));
  size_t bytes = 0;
  for (size_t i = tokens.size(); i > 0 && tokens.size() - i < static_cast<size_t>(overlap); --i) {
    bytes += tokens[i - 1];
  }
  size_t word = chunk.end;
  for (size_t at = chunk.end - std::min(bytes, whole.size() - 1); at < chunk.end; ++at) {
    if (IsInsideCharacter(text[at])) continue;
    const TextBreak kind = BreakAt(text, at);
    if (kind != TextBreak::kInside && word == chunk.end) word = at;
    if (kind >= TextBreak::kSentence) return at;
  }
  return word;
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

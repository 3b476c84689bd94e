// LongestPart: how much of a text fits where only trying tells, as tokens need not lie in it one
// behind the other: runs of spaces have none, unknown words one whatever their length.
//
//   ASSIGN_OR_RETURN(const absl::string_view kept,
//                    LongestPart(text, TextSide::kBegin, {.over = text.size(), .guess = 500},
//                                [&](absl::string_view part) { return Fits(part); }));
#ifndef LM_ENGINE_TEXT_LONGEST_PART_H_
#define LM_ENGINE_TEXT_LONGEST_PART_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// The side of a text that stays where it is cut.
enum class TextSide { kBegin, kEnd };

// What is there, of so many bytes or a few fewer: whole characters.
absl::string_view PartAt(TextSide side, absl::string_view text, size_t bytes);

// In bytes at that side; fits <= guess <= over.
struct PartBounds {
  size_t fits = 0;   // known to
  size_t over = 0;   // known not to
  size_t guess = 0;  // about the most; where it is `fits`, that is tried no more
  size_t grain = 0;  // it may be shorter than the longest by so many; 0: not by a character
};

// A part of `text` that `fits`, whereas one that is longer by a character (or bounds.grain) does
// not. With grain 0 it goes on to the end of a word that would be cut, where all of that fits: a
// word may have fewer tokens than its beginning. Tries parts some logarithm times, none of them
// much longer than twice the answer or the guess; errors are those of `fits`.
// REQUIRES: text is valid UTF-8, over <= text.size().
absl::StatusOr<absl::string_view> LongestPart(
    absl::string_view text, TextSide side, PartBounds bounds,
    absl::FunctionRef<absl::StatusOr<bool>(absl::string_view part)> fits);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_LONGEST_PART_H_

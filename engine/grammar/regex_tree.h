// A regular expression as it was read: RegexParser makes one, CompileRegexTree an automaton of it.
#ifndef LM_ENGINE_GRAMMAR_REGEX_TREE_H_
#define LM_ENGINE_GRAMMAR_REGEX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/grammar/code_point_set.h"

namespace lm {

inline constexpr uint64_t kUnboundedChars = ~uint64_t{0};

// A value type; trees are no deeper than groups may be.
struct RegexTree {
  enum class Kind : uint8_t {
    kClass,         // one character of `set`
    kSequence,      // all parts, one behind the other; of none: the empty text
    kAlternatives,  // one of the parts
    kRepeat,        // the one part, from `min` to `max` times, without end if !max
    // Places between characters.
    kBegin,            // ^: nothing stands before it
    kEnd,              // $: nothing follows
    kWordBoundary,     // \b: on one side of it is a word's character, on the other is none
    kNotWordBoundary,  // \B
  };

  Kind kind = Kind::kSequence;
  bool has_places = false;  // kBegin and the like are in it
  // Of what matches. Without places, exactly; with them, within these bounds.
  uint64_t min_chars = 0;
  uint64_t max_chars = 0;  // or kUnboundedChars
  size_t offset = 0;       // of a class: its byte in the expression
  std::shared_ptr<const CodePointSet> set;
  int64_t min = 0;
  std::optional<int64_t> max;
  std::vector<RegexTree> parts;

  bool is_place() const { return kind >= Kind::kBegin; }

  static RegexTree Class(std::shared_ptr<const CodePointSet> set, size_t offset);
  static RegexTree Place(Kind kind);
  // The one part itself where there is one.
  static RegexTree Sequence(std::vector<RegexTree> parts);
  static RegexTree Alternatives(std::vector<RegexTree> parts);
  static RegexTree Repeat(RegexTree part, int64_t min, std::optional<int64_t> max);
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_REGEX_TREE_H_

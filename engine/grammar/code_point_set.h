// A set of characters: Unicode scalar values without U+0000, which is in no grammar here because
// SQL text cannot hold it.
//
//   CodePointSet word;
//   word.Add('a', 'z');
//   word.Add('_');
//   CodePointSet rest = word.Complement();
#ifndef LM_ENGINE_GRAMMAR_CODE_POINT_SET_H_
#define LM_ENGINE_GRAMMAR_CODE_POINT_SET_H_

#include <cstdint>
#include <vector>

namespace lm {

class CodePointSet {
 public:
  struct Range {
    uint32_t low;
    uint32_t high;  // inclusive
    friend bool operator==(const Range&, const Range&) = default;
  };

  CodePointSet() = default;
  static CodePointSet All();
  static CodePointSet Of(uint32_t low, uint32_t high) {
    CodePointSet set;
    set.Add(low, high);
    return set;
  }

  // Adds [low, high] except for surrogates, U+0000 and what is above U+10FFFF.
  void Add(uint32_t low, uint32_t high);
  void Add(uint32_t code_point) { Add(code_point, code_point); }
  void Add(const CodePointSet& other);

  CodePointSet Complement() const;
  CodePointSet Intersect(const CodePointSet& other) const;
  CodePointSet Minus(const CodePointSet& other) const { return Intersect(other.Complement()); }

  bool Contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  // Sorted, apart from each other, not adjacent.
  const std::vector<Range>& ranges() const;

 private:
  void Normalize() const;

  mutable std::vector<Range> ranges_;
  mutable bool normal_ = true;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_CODE_POINT_SET_H_

#include "engine/grammar/regex_tree.h"

#include <algorithm>
#include <utility>

#include "engine/base/checked_math.h"

namespace lm {
namespace {

uint64_t AddChars(uint64_t a, uint64_t b) { return CheckedAdd(a, b).value_or(kUnboundedChars); }
uint64_t MulChars(uint64_t a, uint64_t b) { return CheckedMul(a, b).value_or(kUnboundedChars); }

}  // namespace

RegexTree RegexTree::Class(std::shared_ptr<const CodePointSet> set, size_t offset) {
  RegexTree tree;
  tree.kind = Kind::kClass;
  tree.min_chars = tree.max_chars = 1;
  tree.offset = offset;
  tree.set = std::move(set);
  return tree;
}

RegexTree RegexTree::Place(Kind kind) {
  RegexTree tree;
  tree.kind = kind;
  tree.has_places = true;
  return tree;
}

RegexTree RegexTree::Sequence(std::vector<RegexTree> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  RegexTree tree;
  for (const RegexTree& part : parts) {
    tree.has_places = tree.has_places || part.has_places;
    tree.min_chars = AddChars(tree.min_chars, part.min_chars);
    tree.max_chars = AddChars(tree.max_chars, part.max_chars);
  }
  tree.parts = std::move(parts);
  return tree;
}

RegexTree RegexTree::Alternatives(std::vector<RegexTree> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  RegexTree tree;
  tree.kind = Kind::kAlternatives;
  tree.min_chars = kUnboundedChars;
  for (const RegexTree& part : parts) {
    tree.has_places = tree.has_places || part.has_places;
    tree.min_chars = std::min(tree.min_chars, part.min_chars);
    tree.max_chars = std::max(tree.max_chars, part.max_chars);
  }
  tree.parts = std::move(parts);
  return tree;
}

RegexTree RegexTree::Repeat(RegexTree part, int64_t min, std::optional<int64_t> max) {
  RegexTree tree;
  tree.kind = Kind::kRepeat;
  tree.has_places = part.has_places;
  tree.min = min;
  tree.max = max;
  tree.min_chars = MulChars(part.min_chars, static_cast<uint64_t>(min));
  if (max) {
    tree.max_chars = MulChars(part.max_chars, static_cast<uint64_t>(*max));
  } else if (part.max_chars > 0) {
    tree.max_chars = kUnboundedChars;
  }
  tree.parts.push_back(std::move(part));
  return tree;
}

}  // namespace lm

#include "engine/text/name_trie.h"

#include <algorithm>

namespace lm {

void NameTrie::Build(std::vector<std::pair<absl::string_view, int32_t>> names) {
  std::sort(names.begin(), names.end());
  nodes_.assign(1, {});
  // Level by level: the names [begin, end) have a node's bytes in common.
  struct Open {
    int32_t node;
    size_t begin;
    size_t end;
  };
  std::vector<Open> level = {{kRoot, 0, names.size()}}, next;
  for (size_t depth = 0; !level.empty(); ++depth, level.swap(next)) {
    next.clear();
    for (auto [node, begin, end] : level) {
      if (begin < end && names[begin].first.size() == depth) {
        nodes_[node].id = names[begin++].second;
      }
      nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
      while (begin < end) {
        const char byte = names[begin].first[depth];
        size_t after = begin;
        while (after < end && names[after].first[depth] == byte) ++after;
        next.push_back({static_cast<int32_t>(nodes_.size()), begin, after});
        nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
        ++nodes_[node].children;
        begin = after;
      }
    }
  }
}

int32_t NameTrie::Next(int32_t node, char byte) const {
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].children;
  const auto wanted = static_cast<uint8_t>(byte);
  const auto found = std::lower_bound(
      first, last, wanted, [](const Node& child, uint8_t value) { return child.byte < value; });
  return found != last && found->byte == wanted ? static_cast<int32_t>(found - nodes_.begin()) : -1;
}

}  // namespace lm

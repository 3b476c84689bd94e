// NameTrie: the tokens that a text goes on with, found byte by byte.
//
//   for (int32_t node = NameTrie::kRoot; (node = trie.Next(node, text[i])) >= 0; ++i) {
//     if (trie.IdAt(node) >= 0) ...    // a token ends behind text[i]
//   }
#ifndef LM_ENGINE_TEXT_NAME_TRIE_H_
#define LM_ENGINE_TEXT_NAME_TRIE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lm {

// Immutable once built; thread-safe.
class NameTrie {
 public:
  static constexpr int32_t kRoot = 0;

  // Of names and their ids. Constant stack. REQUIRES: the names differ, and none is empty.
  void Build(std::vector<std::pair<absl::string_view, int32_t>> names);

  // The node behind `byte`; -1: no name goes on so.
  int32_t Next(int32_t node, char byte) const;
  // The name that ends there; -1: none does.
  int32_t IdAt(int32_t node) const { return nodes_[node].id; }

 private:
  struct Node {
    int32_t first_child = 0;  // its children are neighbours, in the order of their bytes
    int32_t id = -1;
    uint16_t children = 0;
    uint8_t byte = 0;  // that leads to it
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_NAME_TRIE_H_

// The tokens of a vocabulary as a tree of their bytes, so that one walk finds all that a grammar
// allows. Built once for a vocabulary; immutable; thread-safe.
//
//   std::vector<absl::string_view> bytes = {"a", "ab", "", "b"};     // by token id
//   ASSIGN_OR_RETURN(std::shared_ptr<const TokenTrie> trie, TokenTrie::Create(bytes, {2}));
//
// Nodes are in depth-first order, so a subtree is a range and skipping it is one assignment.
#ifndef LM_ENGINE_GRAMMAR_TOKEN_TRIE_H_
#define LM_ENGINE_GRAMMAR_TOKEN_TRIE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

class TokenTrie {
 public:
  struct Node {
    int32_t subtree_end;   // the first node behind this one's subtree
    int32_t tokens_begin;  // this node's tokens are [tokens_begin, next node's tokens_begin)
    int32_t depth;         // bytes from the root; >= 1
    uint8_t byte;
  };
  // A tree: `nodes` ends with one that only closes the last node's tokens.
  struct Tree {
    std::vector<Node> nodes;
    std::vector<int32_t> tokens;
    int32_t max_depth = 0;
    int32_t num_nodes() const { return static_cast<int32_t>(nodes.size()) - 1; }
  };

  // Plain tokens are whole characters, at most kMaxPlainChars of them, none of which is a control
  // character, '"' or '\'. In the middle of a text grammars tend to allow all of them or none.
  static constexpr int kMaxPlainChars = 16;

  // token_bytes[id] are the bytes that a token adds to the text; empty for control tokens, which no
  // grammar ever allows. `end_of_generation` are the tokens that end an answer, whatever their
  // bytes. InvalidArgument, naming it, for an id outside of the vocabulary; for more than 2^24
  // tokens.
  static absl::StatusOr<std::shared_ptr<const TokenTrie>> Create(
      absl::Span<const absl::string_view> token_bytes, absl::Span<const int32_t> end_of_generation);

  int32_t num_tokens() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  // The length of a mask: bit id % 64 of word id / 64.
  size_t mask_words() const { return (static_cast<size_t>(num_tokens()) + 63) / 64; }

  absl::string_view TokenBytes(int32_t id) const {
    return absl::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  bool IsEndOfGeneration(int32_t id) const;
  absl::Span<const int32_t> end_of_generation() const { return end_of_generation_; }

  // All tokens with bytes that do not end generation.
  const Tree& all() const { return all_; }
  // Every byte of text is one of them: whatever is to be written can be.
  bool has_all_bytes() const { return has_all_bytes_; }
  // Those of them that are not plain, those that are, and the mask of these.
  const Tree& special() const { return special_; }
  const Tree& plain() const { return plain_; }
  const std::vector<uint64_t>& plain_mask() const { return plain_mask_; }
  // The mask of the plain tokens that begin with this byte; empty where they are few.
  absl::Span<const uint64_t> PlainMaskOf(uint8_t byte) const { return plain_masks_[byte]; }

  // The characters of plain tokens, in kinds: each of ASCII is one, and all others together are.
  static constexpr int kOtherKind = 0x80;
  static constexpr int kNumKinds = 0x81;
  static int KindOf(uint8_t byte) { return byte < 0x80 ? byte : kOtherKind; }
  // The mask of the plain tokens that have a character of that kind at or behind byte `from`, which
  // is 0 or 1; empty where there are none.
  absl::Span<const uint64_t> PlainMaskWith(int kind, int from) const {
    return kind_masks_[from][kind];
  }
  // How many plain tokens have such a character, and how many begin with one.
  int32_t NumPlainWith(int kind) const { return num_with_[kind]; }
  int32_t NumPlainFrom(int kind) const { return num_from_[kind]; }

 private:
  TokenTrie() = default;

  // Of a plain token.
  void AddKinds(int32_t id);

  std::string bytes_;
  std::vector<size_t> offsets_;
  std::vector<int32_t> end_of_generation_;  // ascending
  Tree all_;
  Tree special_;
  Tree plain_;
  std::vector<uint64_t> plain_mask_;
  std::array<std::vector<uint64_t>, 256> plain_masks_;
  std::array<std::array<std::vector<uint64_t>, kNumKinds>, 2> kind_masks_;
  std::array<int32_t, kNumKinds> num_with_ = {};
  std::array<int32_t, kNumKinds> num_from_ = {};
  bool has_all_bytes_ = false;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_TOKEN_TRIE_H_

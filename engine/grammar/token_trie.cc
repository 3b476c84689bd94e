#include "engine/grammar/token_trie.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

constexpr size_t kMaxTokens = 1 << 24;
constexpr int32_t kManyTokens = 1024;  // so many bits are set more slowly than all words of a mask

bool IsPlain(absl::string_view bytes) {
  if (ValidUtf8Prefix(bytes) != bytes.size()) return false;
  int chars = 0;
  for (size_t pos = 0; pos < bytes.size(); ++chars) {
    const uint32_t c = DecodeUtf8(bytes, &pos);
    if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') return false;
  }
  return chars <= TokenTrie::kMaxPlainChars;
}

// `ids` sorted by their bytes.
TokenTrie::Tree BuildTree(const TokenTrie& trie, absl::Span<const int32_t> ids) {
  TokenTrie::Tree tree;
  std::vector<int32_t> path;  // the nodes from the root to the last token
  absl::string_view last;
  auto close_to = [&](size_t depth) {
    while (path.size() > depth) {
      tree.nodes[path.back()].subtree_end = static_cast<int32_t>(tree.nodes.size());
      path.pop_back();
    }
  };
  for (int32_t id : ids) {
    const absl::string_view bytes = trie.TokenBytes(id);
    const size_t common =
        std::mismatch(bytes.begin(), bytes.begin() + std::min(bytes.size(), last.size()),
                      last.begin())
            .first -
        bytes.begin();
    close_to(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      path.push_back(static_cast<int32_t>(tree.nodes.size()));
      tree.nodes.push_back({0, static_cast<int32_t>(tree.tokens.size()),
                            static_cast<int32_t>(i + 1), static_cast<uint8_t>(bytes[i])});
    }
    tree.tokens.push_back(id);
    tree.max_depth = std::max(tree.max_depth, static_cast<int32_t>(bytes.size()));
    last = bytes;
  }
  close_to(0);
  tree.nodes.push_back({0, static_cast<int32_t>(tree.tokens.size()), 0, 0});
  return tree;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenTrie>> TokenTrie::Create(
    absl::Span<const absl::string_view> token_bytes, absl::Span<const int32_t> end_of_generation) {
  if (token_bytes.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", token_bytes.size(),
                                                   " tokens is too large; limit ", kMaxTokens));
  }
  for (int32_t id : end_of_generation) {
    if (id >= 0 && static_cast<size_t>(id) < token_bytes.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("end-of-generation token ", id,
                                                   " is not in the vocabulary of ",
                                                   token_bytes.size(), " tokens"));
  }
  std::shared_ptr<TokenTrie> trie(new TokenTrie);
  trie->end_of_generation_.assign(end_of_generation.begin(), end_of_generation.end());
  std::sort(trie->end_of_generation_.begin(), trie->end_of_generation_.end());
  trie->offsets_.push_back(0);
  for (absl::string_view bytes : token_bytes) {
    trie->bytes_.append(bytes.data(), bytes.size());
    trie->offsets_.push_back(trie->bytes_.size());
  }
  trie->plain_mask_.resize(trie->mask_words());
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < trie->num_tokens(); ++id) {
    if (!trie->TokenBytes(id).empty() && !trie->IsEndOfGeneration(id)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const absl::string_view x = trie->TokenBytes(a), y = trie->TokenBytes(b);
    return x != y ? x < y : a < b;
  });
  trie->all_ = BuildTree(*trie, ids);
  std::vector<int32_t> special, plain;
  for (int32_t id : ids) {
    if (IsPlain(trie->TokenBytes(id))) {
      trie->plain_mask_[id / 64] |= uint64_t{1} << (id % 64);
      trie->AddKinds(id);
      plain.push_back(id);
    } else {
      special.push_back(id);
    }
  }
  trie->special_ = BuildTree(*trie, special);
  trie->plain_ = BuildTree(*trie, plain);
  const std::vector<Node>& nodes = trie->plain_.nodes;
  for (int32_t i = 0; i < trie->plain_.num_nodes(); i = nodes[i].subtree_end) {
    const int32_t begin = nodes[i].tokens_begin, end = nodes[nodes[i].subtree_end].tokens_begin;
    if (end - begin < kManyTokens) continue;
    std::vector<uint64_t>& mask = trie->plain_masks_[nodes[i].byte];
    mask.resize(trie->mask_words());
    for (int32_t at = begin; at < end; ++at) {
      const int32_t id = trie->plain_.tokens[at];
      mask[id / 64] |= uint64_t{1} << (id % 64);
    }
  }
  // Of text, that is: no byte of UTF-8 but U+0000 is missing.
  int bytes = 0;
  for (int32_t i = 0; i < trie->all_.num_nodes(); i = trie->all_.nodes[i].subtree_end) {
    const TokenTrie::Node& node = trie->all_.nodes[i];
    const bool is_text =
        node.byte != 0 && node.byte != 0xc0 && node.byte != 0xc1 && node.byte < 0xf5;
    bytes += is_text && node.tokens_begin < trie->all_.nodes[i + 1].tokens_begin;
  }
  trie->has_all_bytes_ = bytes == 0xf5 - 3;
  return std::shared_ptr<const TokenTrie>(std::move(trie));
}

void TokenTrie::AddKinds(int32_t id) {
  const absl::string_view bytes = TokenBytes(id);
  const uint64_t bit = uint64_t{1} << (id % 64);
  for (int from = 0; from < 2; ++from) {
    for (size_t i = from; i < bytes.size(); ++i) {
      const int kind = KindOf(static_cast<uint8_t>(bytes[i]));
      std::vector<uint64_t>& mask = kind_masks_[from][kind];
      if (mask.empty()) mask.resize(mask_words());
      num_with_[kind] += from == 0 && (mask[id / 64] & bit) == 0;
      mask[id / 64] |= bit;
    }
  }
  ++num_from_[KindOf(static_cast<uint8_t>(bytes[0]))];
}

bool TokenTrie::IsEndOfGeneration(int32_t id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

}  // namespace lm

#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lm {

struct PrefixTree::Node {
  Node* parent = nullptr;  // null: a root, which has neither block nor tokens
  Tenant* tenant = nullptr;
  int32_t block = -1;
  int32_t pins = 0;  // leases on this node or a descendant
  uint64_t last_used = 0;
  absl::Time last_used_time;
  int64_t hits = 0;
  std::vector<int32_t> tokens;
  std::vector<std::unique_ptr<Node>> children;  // in lexicographic order of their tokens
  // Its element of the tenant's leaves while it is not listed there: unpinning must not allocate.
  Leaves::node_type listing;

  bool IsEvictableLeaf() const { return parent != nullptr && children.empty() && pins == 0; }
};

// What one salt has.
struct PrefixTree::Tenant {
  const std::string* salt = nullptr;  // the key in tenants_
  Node root;
  Leaves leaves;  // unpinned ones, least recently used first
  int64_t num_nodes = 0;
};

namespace {

int64_t CommonPrefix(absl::Span<const int32_t> a, absl::Span<const int32_t> b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t n = 0;
  while (n < limit && a[n] == b[n]) ++n;
  return static_cast<int64_t>(n);
}

// The position of the first child whose tokens are not less than `run`.
template <typename Children>
auto LowerBound(Children& children, absl::Span<const int32_t> run) {
  return std::lower_bound(children.begin(), children.end(), run,
                          [](const auto& child, absl::Span<const int32_t> key) {
                            return std::lexicographical_compare(
                                child->tokens.begin(), child->tokens.end(), key.begin(), key.end());
                          });
}

}  // namespace

PrefixTree::Lease& PrefixTree::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Truncate(0);
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, nullptr);
  blocks_ = std::exchange(other.blocks_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

void PrefixTree::Lease::Truncate(int64_t tokens) {
  if (tree_ == nullptr || tokens >= tokens_) return;
  const size_t keep = (tokens + tree_->block_tokens_ - 1) / tree_->block_tokens_;
  while (blocks_.size() > keep) {
    Node* parent = node_->parent;
    tree_->Unpin(node_);
    node_ = parent;
    blocks_.pop_back();
  }
  tokens_ = tokens;
  if (tokens == 0) {
    tree_ = nullptr;
    node_ = nullptr;
  }
}

PrefixTree::PrefixTree(KvBlockPool* pool, int32_t block_tokens)
    : pool_(pool), block_tokens_(block_tokens) {
  assert(block_tokens >= 1);
}

PrefixTree::~PrefixTree() {
  // From the leaves up, and not by recursion: a long context is a deep tree.
  for (auto& [salt, tenant] : tenants_) {
    Node* node = &tenant->root;
    while (node != nullptr) {
      if (!node->children.empty()) {
        node = node->children.back().get();
        continue;
      }
      assert(node->pins == 0);
      Node* parent = node->parent;
      if (parent != nullptr) {
        pool_->Unref(node->block);
        parent->children.pop_back();
      }
      node = parent;
    }
  }
}

PrefixTree::Lease PrefixTree::Match(absl::string_view salt, absl::Span<const int32_t> tokens,
                                    int64_t limit) {
  Lease lease;
  Node* node = FindRoot(salt);
  if (node == nullptr) return lease;
  tokens = tokens.subspan(0, std::max<int64_t>(limit, 0));
  ++clock_;
  now_ = absl::Now();
  while (lease.tokens_ < static_cast<int64_t>(tokens.size())) {
    const Neighbour near = FindChild(*node, tokens.subspan(lease.tokens_, block_tokens_));
    if (near.common_tokens == 0) break;
    Extend(near.child, near.common_tokens, &lease);
    ++near.child->hits;
    node = near.child;
    if (near.common_tokens < block_tokens_) break;
  }
  return lease;
}

int64_t PrefixTree::MatchLength(absl::string_view salt, absl::Span<const int32_t> tokens) const {
  const Node* node = FindRoot(salt);
  int64_t matched = 0;
  while (node != nullptr && matched < static_cast<int64_t>(tokens.size())) {
    const Neighbour near = FindChild(*node, tokens.subspan(matched, block_tokens_));
    matched += near.common_tokens;
    if (near.common_tokens < block_tokens_) break;
    node = near.child;
  }
  return matched;
}

PrefixTree::Lease PrefixTree::Insert(absl::string_view salt, absl::Span<const int32_t> tokens,
                                     absl::Span<const int32_t> blocks) {
  assert(blocks.size() == (tokens.size() + block_tokens_ - 1) / block_tokens_);
  Lease lease;
  if (tokens.empty()) return lease;
  Node* node = FindOrAddRoot(salt);
  ++clock_;
  now_ = absl::Now();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const absl::Span<const int32_t> run = tokens.subspan(i * block_tokens_, block_tokens_);
    const Neighbour near = FindChild(*node, run);
    const bool known = near.common_tokens == static_cast<int64_t>(run.size());
    node = known ? near.child : AddRun(node, near, run, blocks[i]);
    Extend(node, run.size(), &lease);
  }
  return lease;
}

// A run that the tree does not have. Where it goes on from a shorter one that it can replace (the
// same block, or nobody looks at it), it takes that one's place.
PrefixTree::Node* PrefixTree::AddRun(Node* parent, const Neighbour& near,
                                     absl::Span<const int32_t> run, int32_t block) {
  std::unique_ptr<Node> node;
  pool_->Ref(block);
  if (near.child != nullptr &&
      near.common_tokens == static_cast<int64_t>(near.child->tokens.size()) &&
      (near.child->pins == 0 || near.child->block == block)) {
    Unlist(near.child);
    node = TakeChild(parent, *near.child);
    pool_->Unref(node->block);
  } else {
    Unlist(parent);
    node = std::make_unique<Node>();
    node->parent = parent;
    node->tenant = parent->tenant;
    Leaves& leaves = parent->tenant->leaves;
    node->listing = leaves.extract(leaves.insert({0, node.get()}).first);
    Count(parent->tenant, 1);
    ++num_unpinned_;
  }
  node->block = block;
  node->tokens.assign(run.begin(), run.end());
  Node* added = node.get();
  AddChild(parent, std::move(node));
  List(added);
  return added;
}

std::vector<PrefixTree::Run> PrefixTree::Runs(absl::string_view salt) const {
  std::vector<Run> runs;
  struct Open {
    const Node* first;
    int64_t parent;
  };
  std::vector<Open> open;
  auto add_children = [&open](const Node& node, int64_t parent) {
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      open.push_back({child->get(), parent});
    }
  };
  if (const Node* root = FindRoot(salt)) add_children(*root, -1);
  while (!open.empty()) {
    const auto [first, parent] = open.back();
    open.pop_back();
    Run run{.parent = parent, .hits = first->hits};
    const Node* last = first;
    for (const Node* node = first;; node = node->children.front().get()) {
      last = node;
      ++run.blocks;
      run.own_tokens += static_cast<int64_t>(node->tokens.size());
      const size_t shown = std::min(node->tokens.size(), Run::kShownTokens - run.beginning.size());
      run.beginning.insert(run.beginning.end(), node->tokens.begin(), node->tokens.begin() + shown);
      if (node->children.size() != 1) break;
    }
    run.tokens = run.own_tokens + (parent < 0 ? 0 : runs[parent].tokens);
    run.last_used = last->last_used_time;
    runs.push_back(std::move(run));
    add_children(*last, static_cast<int64_t>(runs.size()) - 1);
  }
  return runs;
}

PrefixTree::Node* PrefixTree::NextToGo() const {
  for (auto tenant = by_size_.rbegin(); tenant != by_size_.rend(); ++tenant) {
    for (const auto& [last_used, leaf] : tenant->second->leaves) {
      if (pool_->references(leaf->block) == 1) return leaf;
    }
  }
  return nullptr;
}

int32_t PrefixTree::Evict(int32_t blocks) {
  int32_t freed = 0;
  while (freed < blocks) {
    // Asked anew: another salt may be the largest, and a parent that became a leaf as old as any.
    Node* leaf = NextToGo();
    if (leaf == nullptr) break;
    Remove(leaf);
    ++freed;
  }
  return freed;
}

PrefixTree::Neighbour PrefixTree::FindChild(const Node& node, absl::Span<const int32_t> run) {
  const auto next = LowerBound(node.children, run);
  Neighbour best;
  for (auto it = next == node.children.begin() ? next : next - 1;
       it != node.children.end() && it <= next; ++it) {
    const int64_t common = CommonPrefix((*it)->tokens, run);
    if (common > 0 && common >= best.common_tokens) best = {it->get(), common};
  }
  return best;
}

void PrefixTree::AddChild(Node* node, std::unique_ptr<Node> child) {
  const auto position = LowerBound(node->children, child->tokens);
  node->children.insert(position, std::move(child));
}

std::unique_ptr<PrefixTree::Node> PrefixTree::TakeChild(Node* node, const Node& child) {
  const auto position = LowerBound(node->children, child.tokens);
  assert(position != node->children.end() && position->get() == &child);
  std::unique_ptr<Node> taken = std::move(*position);
  node->children.erase(position);
  return taken;
}

PrefixTree::Node* PrefixTree::FindRoot(absl::string_view salt) const {
  const auto found = tenants_.find(salt);
  return found == tenants_.end() ? nullptr : &found->second->root;
}

PrefixTree::Node* PrefixTree::FindOrAddRoot(absl::string_view salt) {
  if (Node* root = FindRoot(salt)) return root;
  auto tenant = std::make_unique<Tenant>();
  Tenant* const added = tenant.get();
  added->root.tenant = added;
  const auto size = by_size_.emplace(0, added).first;
  try {
    added->salt = &tenants_.emplace(std::string(salt), std::move(tenant)).first->first;
  } catch (...) {
    by_size_.erase(size);
    throw;
  }
  return &added->root;
}

void PrefixTree::Count(Tenant* tenant, int64_t change) {
  auto size = by_size_.extract({tenant->num_nodes, tenant});  // inserted again it is not allocated
  tenant->num_nodes += change;
  num_nodes_ += change;
  size.value().first = tenant->num_nodes;
  by_size_.insert(std::move(size));
}

void PrefixTree::Remove(Node* leaf) {
  assert(leaf->IsEvictableLeaf());
  Node* parent = leaf->parent;
  Tenant* tenant = leaf->tenant;
  Unlist(leaf);
  pool_->Unref(leaf->block);
  Count(tenant, -1);
  --num_unpinned_;
  TakeChild(parent, *leaf);
  if (parent->parent != nullptr) {
    List(parent);
  } else if (parent->children.empty()) {
    by_size_.erase({0, tenant});
    tenants_.erase(tenants_.find(*tenant->salt));
  }
}

void PrefixTree::Pin(Node* node) {
  Unlist(node);
  if (node->pins++ == 0) --num_unpinned_;
}

void PrefixTree::Unpin(Node* node) {
  assert(node->pins > 0);
  if (--node->pins == 0) ++num_unpinned_;
  List(node);
}

// Adds a node, valid for `tokens` tokens, to the end of a lease.
void PrefixTree::Extend(Node* node, int64_t tokens, Lease* lease) {
  lease->blocks_.push_back(node->block);
  Pin(node);
  node->last_used = clock_;
  node->last_used_time = now_;
  lease->tree_ = this;
  lease->node_ = node;
  lease->tokens_ += tokens;
}

void PrefixTree::List(Node* node) {
  if (!node->IsEvictableLeaf()) return;
  node->listing.value() = {node->last_used, node};
  node->tenant->leaves.insert(std::move(node->listing));
}

void PrefixTree::Unlist(Node* node) {
  if (!node->IsEvictableLeaf()) return;
  node->listing = node->tenant->leaves.extract({node->last_used, node});
}

absl::Status PrefixTree::CheckIntegrity() const {
  auto broken = [](const Node& node, absl::string_view what) {
    return absl::InternalError(absl::StrCat("prefix tree: the node of KV block ", node.block, " (",
                                            node.tokens.size(), " tokens) ", what));
  };
  int64_t nodes = 0, unpinned = 0, leaves = 0, listed = 0, counted = 0;
  std::vector<const Node*> open;
  for (const auto& [salt, tenant] : tenants_) {
    const Node& root = tenant->root;
    if (tenant->salt != &salt || root.tenant != tenant.get() || root.parent != nullptr ||
        root.pins != 0) {
      return absl::InternalError("prefix tree: a root is not as roots are");
    }
    if (root.children.empty()) return absl::InternalError("prefix tree: a root has no children");
    if (!by_size_.contains({tenant->num_nodes, tenant.get()})) {
      return absl::InternalError("prefix tree: a salt is not found by its size");
    }
    listed += static_cast<int64_t>(tenant->leaves.size());
    counted += tenant->num_nodes;
    open.push_back(&root);
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    const bool is_root = node->parent == nullptr;
    const int64_t tokens = static_cast<int64_t>(node->tokens.size());
    if (!is_root) {
      ++nodes;
      unpinned += node->pins == 0;
      leaves += node->IsEvictableLeaf();
      if (tokens < 1 || tokens > block_tokens_) return broken(*node, "has the wrong length");
      if (tokens < block_tokens_ && !node->children.empty()) {
        return broken(*node, "is not full and has children");
      }
      if (pool_->references(node->block) < 1) return broken(*node, "has a free block");
      if (node->tenant->leaves.contains({node->last_used, const_cast<Node*>(node)}) !=
          node->IsEvictableLeaf()) {
        return broken(*node, "is listed as a leaf where it is not, or the other way round");
      }
    }
    int64_t child_pins = 0;
    for (size_t i = 0; i < node->children.size(); ++i) {
      const Node* child = node->children[i].get();
      if (child->parent != node) return broken(*child, "has another parent");
      if (child->tenant != node->tenant) return broken(*child, "has another salt");
      if (i > 0 && !(node->children[i - 1]->tokens < child->tokens)) {
        return broken(*child, "is out of order");
      }
      child_pins += child->pins;
      open.push_back(child);
    }
    if (!is_root && node->pins < child_pins) return broken(*node, "has fewer pins than below it");
  }
  if (nodes != num_nodes_ || nodes != counted || unpinned != num_unpinned_ || leaves != listed ||
      by_size_.size() != tenants_.size()) {
    return absl::InternalError(absl::StrCat("prefix tree: counted ", nodes, " nodes, ", unpinned,
                                            " unpinned, ", leaves, " leaves to evict; remembered ",
                                            num_nodes_, ", ", num_unpinned_, ", ", listed));
  }
  return pool_->CheckIntegrity();
}

}  // namespace lm

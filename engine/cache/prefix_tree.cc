#include "engine/cache/prefix_tree.h"

#include <algorithm>
#include <cassert>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lm {

struct PrefixTree::Node {
  Node* parent = nullptr;  // null: a root, which has neither block nor tokens
  Tenant* tenant = nullptr;
  int32_t block = -1;
  std::vector<int32_t> windowed;  // a block of each class, or -1
  int32_t state = -1;             // snapshot at its end
  int32_t pins = 0;               // leases on this node or a descendant
  uint64_t last_used = 0;
  uint64_t seen = 0;  // when a match last had it in its window
  uint64_t state_used = 0;
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
  const std::string* salt = nullptr;               // the key in tenants_
  std::map<std::string, Node, std::less<>> roots;  // by adapters; none is without children
  Leaves leaves;                                   // unpinned ones, least recently used first
  std::vector<Leaves> windowed;                    // of each class, nodes that have a block
  Leaves states;                                   // nodes that have one
  int64_t num_nodes = 0;
  bool forgotten = false;

  // Its place among others, by how much it has.
  std::pair<int64_t, Tenant*> Place(int64_t size) {
    constexpr int64_t kBehindAll = int64_t{1} << 62;
    return {size + (forgotten ? kBehindAll : 0), this};
  }
  std::pair<int64_t, Tenant*> Place(const Leaves& listed) {
    return Place(static_cast<int64_t>(listed.size()));
  }
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

// Gives an element another time, or size, without an allocation.
template <typename Set, typename Element, typename To>
void Move(Set* set, Element from, To to) {
  auto handle = set->extract(from);
  handle.value().first = to;
  set->insert(std::move(handle));
}

}  // namespace

void PrefixTree::Holdings::Take(int32_t block) {
  pool->Ref(block);
  num_held += held[block]++ == 0;
}

void PrefixTree::Holdings::Drop(int32_t block) {
  pool->Unref(block);
  num_held -= --held[block] == 0;
}

PrefixTree::Lease& PrefixTree::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Truncate(0);
  tree_ = std::exchange(other.tree_, nullptr);
  node_ = std::exchange(other.node_, nullptr);
  blocks_ = std::exchange(other.blocks_, {});
  windowed_ = std::exchange(other.windowed_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  state_ = std::exchange(other.state_, -1);
  known_ = std::exchange(other.known_, 0);
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
  for (std::vector<int32_t>& blocks : windowed_) blocks.resize(std::min(blocks.size(), keep));
  tokens_ = tokens;
  state_ = -1;
  if (tokens == 0) {
    tree_ = nullptr;
    node_ = nullptr;
  }
}

void PrefixTree::Lease::CountHit() {
  if (node_ == nullptr) return;
  for (Node* node = node_; node->parent != nullptr; node = node->parent) ++node->hits;
}

PrefixTree::PrefixTree(KvBlockPool* pool, int32_t block_tokens, std::vector<WindowedPool> windowed,
                       KvBlockPool* states)
    : blocks_(pool), block_tokens_(block_tokens), states_(states) {
  assert(block_tokens >= 1);
  for (const WindowedPool& c : windowed) windowed_.push_back({Holdings(c.pool), c.window});
}

PrefixTree::~PrefixTree() {
  // From the leaves up, and not by recursion: a long context is a deep tree.
  auto drop_below = [this](Node* root) {
    for (Node* node = root; node != nullptr;) {
      if (!node->children.empty()) {
        node = node->children.back().get();
        continue;
      }
      assert(node->pins == 0);
      Node* parent = node->parent;
      if (parent != nullptr) {
        for (size_t c = 0; c < windowed_.size(); ++c) {
          if (node->windowed[c] >= 0) windowed_[c].blocks.Drop(node->windowed[c]);
        }
        if (node->state >= 0) states_.Drop(node->state);
        blocks_.Drop(node->block);
        parent->children.pop_back();
      }
      node = parent;
    }
  };
  for (auto& [salt, tenant] : tenants_) {
    for (auto& [adapters, root] : tenant->roots) drop_below(&root);
  }
}

// Down the tree as far as the tokens go, and back to where what is needed is there.
PrefixTree::Path PrefixTree::Walk(PrefixOwner owner, absl::Span<const int32_t> tokens) const {
  const bool recurrent = states_.pool != nullptr;
  Path path;
  // Of each windowed class, the first of the nodes in a row that have blocks, up to the present
  // one.
  std::vector<size_t> begins(windowed_.size(), 0);
  // Whether a match may end behind `tokens` tokens, the last of which are `node`'s.
  auto usable = [&](const Node& node, int64_t tokens) {
    for (size_t c = 0; c < windowed_.size(); ++c) {
      const size_t begin = node.windowed[c] < 0 ? path.nodes.size() + 1 : begins[c];
      const int64_t least = static_cast<int64_t>(begin) * block_tokens_ + windowed_[c].window - 1;
      if (begin > 0 && tokens < least) return false;
    }
    return true;
  };
  auto use = [&path](Node* node, int64_t tokens) {
    path.depth = path.nodes.size();
    path.last = node;
    path.tokens = tokens;
  };
  const Node* node = FindRoot(owner);
  while (node != nullptr && path.known < static_cast<int64_t>(tokens.size())) {
    const absl::Span<const int32_t> run = tokens.subspan(path.known, block_tokens_);
    const Neighbour near = FindChild(*node, run);
    if (near.common_tokens == 0) break;
    if (Node* snapshot = recurrent ? FindSnapshot(*node, run) : nullptr) {
      const int64_t end = path.known + static_cast<int64_t>(snapshot->tokens.size());
      if (usable(*snapshot, end)) use(snapshot, end);
    } else if (!recurrent && usable(*near.child, path.known + near.common_tokens)) {
      use(near.child, path.known + near.common_tokens);
    }
    path.known += near.common_tokens;
    path.nodes.push_back(near.child);
    for (size_t c = 0; c < windowed_.size(); ++c) {
      if (near.child->windowed[c] < 0) begins[c] = path.nodes.size();
    }
    if (near.common_tokens < block_tokens_) break;
    node = near.child;
  }
  return path;
}

// The longest child with a snapshot whose tokens are the beginning of `run`, or all of it.
PrefixTree::Node* PrefixTree::FindSnapshot(const Node& node, absl::Span<const int32_t> run) const {
  for (size_t length = run.size(); length > 0; --length) {
    const absl::Span<const int32_t> beginning = run.subspan(0, length);
    const auto child = LowerBound(node.children, beginning);
    if (child != node.children.end() && (*child)->state >= 0 &&
        absl::MakeConstSpan((*child)->tokens) == beginning) {
      return child->get();
    }
  }
  return nullptr;
}

PrefixTree::Lease PrefixTree::Match(PrefixOwner owner, absl::Span<const int32_t> tokens,
                                    int64_t limit) {
  Lease lease;
  ++clock_;
  now_ = absl::Now();
  const Path path = Walk(owner, tokens.subspan(0, std::max<int64_t>(limit, 0)));
  lease.known_ = path.known;
  lease.windowed_.resize(windowed_.size());
  auto node_at = [&path](size_t i) { return i < path.depth ? path.nodes[i] : path.last; };
  for (size_t i = 0; lease.tokens_ < path.tokens; ++i) {
    Node* node = node_at(i);
    Extend(node, std::min<int64_t>(block_tokens_, path.tokens - lease.tokens_), &lease);
  }
  for (size_t c = 0; c < windowed_.size(); ++c) {
    std::vector<int32_t>& blocks = lease.windowed_[c];
    const int64_t first = std::max<int64_t>(path.tokens - windowed_[c].window + 1, 0);
    blocks.assign(lease.blocks_.size(), -1);
    for (size_t i = first / block_tokens_; i < blocks.size(); ++i) {
      Node* node = node_at(i);
      blocks[i] = node->windowed[c];
      if (blocks[i] < 0) continue;  // the last token alone is seen
      See(node);
    }
  }
  if (states_.pool != nullptr && path.last != nullptr) {
    lease.state_ = path.last->state;
    Move(&path.last->tenant->states, std::make_pair(path.last->state_used, path.last), clock_);
    path.last->state_used = clock_;
  }
  return lease;
}

int64_t PrefixTree::MatchLength(PrefixOwner owner, absl::Span<const int32_t> tokens) const {
  return Walk(owner, tokens).tokens;
}

PrefixTree::Lease PrefixTree::Insert(PrefixOwner owner, absl::Span<const int32_t> tokens,
                                     absl::Span<const int32_t> blocks, const Additions& additions) {
  assert(blocks.size() == (tokens.size() + block_tokens_ - 1) / block_tokens_);
  Lease lease;
  if (tokens.empty()) return lease;
  Node* node = FindOrAddRoot(owner);
  ++clock_;
  now_ = absl::Now();
  lease.windowed_.resize(windowed_.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const absl::Span<const int32_t> run = tokens.subspan(i * block_tokens_, block_tokens_);
    const bool last = i + 1 == blocks.size();
    const Neighbour near = FindChild(*node, run);
    // A snapshot needs a run that ends where it stands.
    const bool known = near.common_tokens == static_cast<int64_t>(run.size()) &&
                       (!last || additions.state < 0 || near.child->tokens.size() == run.size());
    node = known ? near.child : AddRun(node, near, run, blocks[i]);
    // Of a longer run these blocks have a part only.
    if (node->tokens.size() == run.size()) Attach(node, additions, i, last);
    Extend(node, run.size(), &lease);
  }
  return lease;
}

// Gives a node what it lacks of the additions to the block of that index.
void PrefixTree::Attach(Node* node, const Additions& additions, size_t index, bool last) {
  Tenant* const tenant = node->tenant;
  for (size_t c = 0; c < additions.windowed.size(); ++c) {
    const int32_t block = additions.windowed[c][index];
    if (block < 0 || node->windowed[c] >= 0) continue;
    See(node);
    const std::pair<int64_t, Tenant*> place = tenant->Place(tenant->windowed[c]);
    tenant->windowed[c].insert({node->seen, node});
    Move(&windowed_[c].by_size, place, tenant->Place(tenant->windowed[c]).first);
    windowed_[c].blocks.Take(block);
    node->windowed[c] = block;
  }
  if (last && additions.state >= 0 && node->state < 0) {
    const std::pair<int64_t, Tenant*> place = tenant->Place(tenant->states);
    tenant->states.insert({clock_, node});
    Move(&by_states_size_, place, tenant->Place(tenant->states).first);
    states_.Take(additions.state);
    node->state = additions.state;
    node->state_used = clock_;
  }
}

// A match, or an insertion, has the node's windowed blocks in sight.
void PrefixTree::See(Node* node) {
  for (size_t c = 0; c < windowed_.size(); ++c) {
    if (node->windowed[c] < 0) continue;
    Move(&node->tenant->windowed[c], std::make_pair(node->seen, node), clock_);
  }
  node->seen = clock_;
}

void PrefixTree::DropWindowed(Node* node, size_t c) {
  if (node->windowed[c] < 0) return;
  Leaves& listed = node->tenant->windowed[c];
  const std::pair<int64_t, Tenant*> place = node->tenant->Place(listed);
  listed.erase({node->seen, node});
  Move(&windowed_[c].by_size, place, node->tenant->Place(listed).first);
  windowed_[c].blocks.Drop(std::exchange(node->windowed[c], -1));
}

void PrefixTree::DropState(Node* node) {
  if (node->state < 0) return;
  Leaves& listed = node->tenant->states;
  const std::pair<int64_t, Tenant*> place = node->tenant->Place(listed);
  listed.erase({node->state_used, node});
  Move(&by_states_size_, place, node->tenant->Place(listed).first);
  states_.Drop(std::exchange(node->state, -1));
}

// Adds a run that the tree does not have. It takes the place of a shorter run that it goes on from
// where that has no snapshot, and has the same block or is not pinned.
PrefixTree::Node* PrefixTree::AddRun(Node* parent, const Neighbour& near,
                                     absl::Span<const int32_t> run, int32_t block) {
  std::unique_ptr<Node> node;
  blocks_.Take(block);
  if (near.child != nullptr &&
      near.common_tokens == static_cast<int64_t>(near.child->tokens.size()) &&
      near.child->tokens.size() < run.size() && near.child->state < 0 &&
      (near.child->pins == 0 || near.child->block == block)) {
    Unlist(near.child);
    node = TakeChild(parent, *near.child);
    // Its windowed blocks lack what the run has more.
    for (size_t c = 0; c < windowed_.size(); ++c) DropWindowed(node.get(), c);
    blocks_.Drop(node->block);
  } else {
    Unlist(parent);
    node = std::make_unique<Node>();
    node->parent = parent;
    node->tenant = parent->tenant;
    node->windowed.assign(windowed_.size(), -1);
    Leaves& leaves = parent->tenant->leaves;
    node->listing = leaves.extract(leaves.insert({0, node.get()}).first);
    Count(parent->tenant, 1);
    ++num_unpinned_;
  }
  node->block = block;
  node->seen = clock_;
  node->tokens.assign(run.begin(), run.end());
  Node* added = node.get();
  AddChild(parent, std::move(node));
  List(added);
  return added;
}

std::vector<PrefixTree::Run> PrefixTree::Runs(absl::string_view salt) const {
  std::vector<Run> runs;
  const auto tenant = tenants_.find(salt);
  if (tenant == tenants_.end()) return runs;
  for (const auto& [adapters, root] : tenant->second->roots) AddRuns(root, adapters, &runs);
  return runs;
}

void PrefixTree::AddRuns(const Node& root, absl::string_view adapters,
                         std::vector<Run>* runs) const {
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
  add_children(root, -1);
  while (!open.empty()) {
    const auto [first, parent] = open.back();
    open.pop_back();
    Run run{.parent = parent, .hits = first->hits, .adapters = std::string(adapters)};
    const Node* last = first;
    for (const Node* node = first;; node = node->children.front().get()) {
      last = node;
      ++run.blocks;
      run.own_tokens += static_cast<int64_t>(node->tokens.size());
      const size_t shown = std::min(node->tokens.size(), Run::kShownTokens - run.beginning.size());
      run.beginning.insert(run.beginning.end(), node->tokens.begin(), node->tokens.begin() + shown);
      if (node->children.size() != 1) break;
    }
    run.tokens = run.own_tokens + (parent < 0 ? 0 : (*runs)[parent].tokens);
    run.last_used = last->last_used_time;
    runs->push_back(std::move(run));
    add_children(*last, static_cast<int64_t>(runs->size()) - 1);
  }
}

PrefixTree::Node* PrefixTree::NextOf(const BySize& by_size,
                                     absl::FunctionRef<const Leaves&(const Tenant&)> list,
                                     absl::FunctionRef<bool(const Node&)> may_go) {
  for (auto tenant = by_size.rbegin(); tenant != by_size.rend(); ++tenant) {
    for (const auto& [used, node] : list(*tenant->second)) {
      if (may_go(*node)) return node;
    }
  }
  return nullptr;
}

PrefixTree::Node* PrefixTree::NextToGo() const {
  return NextOf(
      by_size_, [](const Tenant& tenant) -> const Leaves& { return tenant.leaves; },
      [this](const Node& leaf) { return blocks_.Alone(leaf.block); });
}

int32_t PrefixTree::Evict(int32_t blocks) {
  const int32_t before = blocks_.pool->num_free();
  while (blocks_.pool->num_free() - before < blocks) {
    // Asked anew: another salt may be the largest, and a parent that became a leaf as old as any.
    Node* leaf = NextToGo();
    if (leaf == nullptr) break;
    Remove(leaf);
  }
  return blocks_.pool->num_free() - before;
}

bool PrefixTree::EvictWindowed(size_t c) {
  const Holdings& held = windowed_[c].blocks;
  const int32_t before = held.pool->num_free();
  while (held.pool->num_free() == before) {
    Node* oldest = NextOf(
        windowed_[c].by_size,
        [c](const Tenant& tenant) -> const Leaves& { return tenant.windowed[c]; },
        [&held, c](const Node& node) { return held.Alone(node.windowed[c]); });
    if (oldest == nullptr) return false;
    DropWindowed(oldest, c);
  }
  return true;
}

bool PrefixTree::EvictState(uint64_t before) {
  const int32_t free = states_.pool->num_free();
  while (states_.pool->num_free() == free) {
    Node* oldest = NextOf(
        by_states_size_, [](const Tenant& tenant) -> const Leaves& { return tenant.states; },
        [this, before](const Node& node) {
          return states_.Alone(node.state) && node.state_used < before;
        });
    if (oldest == nullptr) return false;
    DropState(oldest);
  }
  return true;
}

void PrefixTree::Forget(absl::string_view salt) {
  const auto known = tenants_.find(salt);
  if (known == tenants_.end() || known->second->forgotten) return;
  Tenant* const tenant = known->second.get();
  auto each = [this, tenant](auto move) {
    move(&by_size_, tenant->Place(tenant->num_nodes));
    move(&by_states_size_, tenant->Place(tenant->states));
    for (size_t c = 0; c < windowed_.size(); ++c) {
      move(&windowed_[c].by_size, tenant->Place(tenant->windowed[c]));
    }
  };
  std::vector<BySize::node_type> places;
  places.reserve(2 + windowed_.size());  // nothing may be lost on the way
  each([&places](BySize* by_size, const std::pair<int64_t, Tenant*>& place) {
    places.push_back(by_size->extract(place));
  });
  tenant->forgotten = true;
  size_t next = 0;
  each([&](BySize* by_size, const std::pair<int64_t, Tenant*>& place) {
    places[next].value() = place;
    by_size->insert(std::move(places[next++]));
  });
}

void PrefixTree::ForgetStates() {
  for (auto& [salt, tenant] : tenants_) {
    while (!tenant->states.empty()) DropState(tenant->states.begin()->second);
  }
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

PrefixTree::Node* PrefixTree::FindRoot(PrefixOwner owner) const {
  const auto tenant = tenants_.find(owner.salt);
  if (tenant == tenants_.end()) return nullptr;
  const auto root = tenant->second->roots.find(owner.adapters);
  return root == tenant->second->roots.end() ? nullptr : &root->second;
}

PrefixTree::Node* PrefixTree::FindOrAddRoot(PrefixOwner owner) {
  if (Node* root = FindRoot(owner)) return root;
  auto add_root = [&owner](Tenant* tenant) {
    Node* root = &tenant->roots.try_emplace(std::string(owner.adapters)).first->second;
    root->tenant = tenant;
    return root;
  };
  const auto known = tenants_.find(owner.salt);
  if (known != tenants_.end()) return add_root(known->second.get());
  auto tenant = std::make_unique<Tenant>();
  Tenant* const added = tenant.get();
  Node* const root = add_root(added);
  added->windowed.resize(windowed_.size());
  absl::Cleanup not_added = [this, added] { LeaveOut(added); };
  by_size_.emplace(0, added);
  by_states_size_.emplace(0, added);
  for (WindowedClass& c : windowed_) c.by_size.emplace(0, added);
  added->salt = &tenants_.emplace(std::string(owner.salt), std::move(tenant)).first->first;
  std::move(not_added).Cancel();
  return root;
}

// A tenant that has nothing is among no others any more.
void PrefixTree::LeaveOut(Tenant* tenant) {
  const std::pair<int64_t, Tenant*> place = tenant->Place(0);
  by_size_.erase(place);
  by_states_size_.erase(place);
  for (WindowedClass& c : windowed_) c.by_size.erase(place);
}

void PrefixTree::Count(Tenant* tenant, int64_t change) {
  const std::pair<int64_t, Tenant*> place = tenant->Place(tenant->num_nodes);
  tenant->num_nodes += change;
  num_nodes_ += change;
  Move(&by_size_, place, tenant->Place(tenant->num_nodes).first);
}

void PrefixTree::Remove(Node* leaf) {
  assert(leaf->IsEvictableLeaf());
  Node* parent = leaf->parent;
  Tenant* tenant = leaf->tenant;
  Unlist(leaf);
  for (size_t c = 0; c < windowed_.size(); ++c) DropWindowed(leaf, c);
  DropState(leaf);
  blocks_.Drop(leaf->block);
  Count(tenant, -1);
  --num_unpinned_;
  TakeChild(parent, *leaf);
  if (parent->parent != nullptr) {
    List(parent);
  } else if (parent->children.empty()) {
    std::erase_if(tenant->roots, [parent](const auto& root) { return &root.second == parent; });
    if (!tenant->roots.empty()) return;
    LeaveOut(tenant);
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
    for (const auto& [adapters, root] : tenant->roots) {
      if (tenant->salt != &salt || root.tenant != tenant.get() || root.parent != nullptr ||
          root.pins != 0) {
        return absl::InternalError("prefix tree: a root is not as roots are");
      }
      if (root.children.empty()) return absl::InternalError("prefix tree: a root has no children");
      open.push_back(&root);
    }
    if (tenant->roots.empty()) return absl::InternalError("prefix tree: a salt has no roots");
    bool found = by_size_.contains(tenant->Place(tenant->num_nodes)) &&
                 by_states_size_.contains(tenant->Place(tenant->states));
    for (size_t c = 0; c < windowed_.size(); ++c) {
      found = found && windowed_[c].by_size.contains(tenant->Place(tenant->windowed[c]));
    }
    if (!found) return absl::InternalError("prefix tree: a salt is not found by its size");
    listed += static_cast<int64_t>(tenant->leaves.size());
    counted += tenant->num_nodes;
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
      if (blocks_.pool->references(node->block) < 1) return broken(*node, "has a free block");
      for (size_t c = 0; c < windowed_.size(); ++c) {
        if (node->tenant->windowed[c].contains({node->seen, const_cast<Node*>(node)}) !=
            (node->windowed[c] >= 0)) {
          return broken(*node, "is listed with a windowed block where it has none, or not");
        }
      }
      if (node->tenant->states.contains({node->state_used, const_cast<Node*>(node)}) !=
          (node->state >= 0)) {
        return broken(*node, "is listed with a snapshot where it has none, or not");
      }
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
      by_size_.size() != tenants_.size() || by_states_size_.size() != tenants_.size()) {
    return absl::InternalError(absl::StrCat("prefix tree: counted ", nodes, " nodes, ", unpinned,
                                            " unpinned, ", leaves, " leaves to evict; remembered ",
                                            num_nodes_, ", ", num_unpinned_, ", ", listed));
  }
  for (const WindowedClass& c : windowed_) {
    if (absl::Status status = c.blocks.pool->CheckIntegrity(); !status.ok()) return status;
  }
  if (states_.pool != nullptr) {
    if (absl::Status status = states_.pool->CheckIntegrity(); !status.ok()) return status;
  }
  return blocks_.pool->CheckIntegrity();
}

}  // namespace lm

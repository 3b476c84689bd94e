// PrefixTree remembers which KV blocks hold which token prefixes, so that a prompt that begins like
// an earlier one starts where the two part.
//
//   PrefixTree::Lease lease = tree.Match(salt, prompt, prompt.size() - 1);  // pinned while it
//   lives lease.blocks();                           // KV blocks, valid for lease.tokens() tokens
//   ...
//   lease = tree.Insert(salt, tokens, blocks);  // after their KV has been computed
//
// A radix tree over tokens. A node is one KV block and the 1 to block_tokens tokens it holds; only
// a full node has children. Children are kept in lexicographic order of their tokens, so the child
// with the longest common prefix is a neighbour of the search key. Tokens themselves are compared,
// never only hashes. Each salt has a tree of its own (and one for each set of adapters that its
// prefixes were computed with): what one database cached is invisible to another. Whoever holds a
// lease keeps its nodes; the rest goes leaf by leaf: of the salt that has the most nodes, least
// recently used first. So each of n salts keeps an n-th of what is cached, however much the others
// ask for, and a salt alone may have everything. What was a salt's that will not ask again (Forget)
// goes before all else.
//
// A model may remember more than full attention's keys and values, and a node then has more:
// - a block of each windowed class. Those go by themselves, of the salt that has the most of them
//   the longest unused first: a node without one is still a node, and a match ends where all blocks
//   of its window are there.
// - a snapshot of the recurrent state at its end, which goes likewise. A recurrent model's match
//   ends at a snapshot; a run that has one is never replaced by a longer one, but stays beside it.
#ifndef LM_ENGINE_CACHE_PREFIX_TREE_H_
#define LM_ENGINE_CACHE_PREFIX_TREE_H_

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/cache/kv_block_pool.h"

namespace lm {

// Whose prefixes, and computed with what beside the model's own weights: adapters, as a text that
// names them; empty: none. What is found for one owner was inserted for the same.
struct PrefixOwner {
  template <typename T>
  requires std::convertible_to<T, absl::string_view> PrefixOwner(const T& salt,
                                                                 absl::string_view adapters = {})
      : salt(salt), adapters(adapters) {}

  absl::string_view salt;
  absl::string_view adapters;
};

// Not thread-safe: the engine's thread owns it.
class PrefixTree {
  struct Node;
  struct Tenant;

 public:
  // A pinned match: blocks()[i] holds tokens [i * block_tokens, (i + 1) * block_tokens) of the
  // prompt. The last one may be valid for fewer (tokens() says): behind them it may have, or get,
  // tokens of another sequence, so copy it before writing. Move-only; the destructor unpins.
  // REQUIRES: the tree outlives its leases.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Truncate(0); }

    absl::Span<const int32_t> blocks() const { return blocks_; }
    int64_t tokens() const { return tokens_; }
    // Of a windowed class, as blocks(); -1 where there was none, or no token behind sees it.
    const std::vector<int32_t>& windowed(size_t c) const { return windowed_[c]; }
    // The snapshot at the end of a match; -1: none.
    int32_t state() const { return state_; }
    // Tokens of the prompt that the tree has runs of, used or not.
    int64_t known() const { return known_; }

    // The match is used: counts a hit of each of its runs.
    void CountHit();
    // Keeps the first `tokens` tokens of the match and unpins the rest.
    void Truncate(int64_t tokens);

   private:
    friend class PrefixTree;
    PrefixTree* tree_ = nullptr;
    Node* node_ = nullptr;  // the deepest one; its ancestors are pinned too
    std::vector<int32_t> blocks_;
    std::vector<std::vector<int32_t>> windowed_;
    int64_t tokens_ = 0;
    int32_t state_ = -1;
    int64_t known_ = 0;
  };

  // What an insertion may add to the blocks of full attention.
  struct WindowedPool {
    KvBlockPool* pool = nullptr;
    int64_t window = 0;  // > 0
  };
  struct Additions {
    absl::Span<const std::vector<int32_t>> windowed;  // of each class, as the blocks; -1: none
    int32_t state = -1;                               // a snapshot at the end of the tokens
  };

  // `states`, where not null, says that the model is recurrent.
  // REQUIRES: the pools outlive this; block_tokens >= 1.
  PrefixTree(KvBlockPool* pool, int32_t block_tokens, std::vector<WindowedPool> windowed = {},
             KvBlockPool* states = nullptr);
  ~PrefixTree();

  // The longest cached prefix of `tokens`, at most `limit` tokens of it.
  Lease Match(PrefixOwner owner, absl::Span<const int32_t> tokens, int64_t limit);

  // How long that prefix is, without pinning or touching anything.
  int64_t MatchLength(PrefixOwner owner, absl::Span<const int32_t> tokens) const;

  // Remembers that blocks[i] holds the i-th run of block_tokens tokens; the last run may be
  // shorter. Where the tree has a run already it keeps its own block; for each new one it takes a
  // reference. A last, short run may still grow: its owner may go on to write behind it, and insert
  // the longer run later. Returns a lease on all of `tokens`, with the tree's own blocks.
  // It takes references to the additions, too, that it lacks.
  // REQUIRES: blocks.size() == ceil(tokens.size() / block_tokens).
  Lease Insert(PrefixOwner owner, absl::Span<const int32_t> tokens,
               absl::Span<const int32_t> blocks, const Additions& additions);
  Lease Insert(PrefixOwner owner, absl::Span<const int32_t> tokens,
               absl::Span<const int32_t> blocks) {
    return Insert(owner, tokens, blocks, Additions());
  }

  // Drops unpinned leaves, of the largest salt and least recently used first, until `blocks` pool
  // blocks have become free or nothing more can go. Leaves whose block is referenced outside the
  // tree too stay: dropping them frees nothing. Returns how many blocks became free.
  int32_t Evict(int32_t blocks);
  // Drops a block of a windowed class, or a snapshot, that only the tree references, of the salt
  // that has the most of them and least recently used first. False where there is none.
  bool EvictWindowed(size_t c);
  // Only a snapshot that was used `before` that time.
  bool EvictState(uint64_t before = std::numeric_limits<uint64_t>::max());
  // Goes on with each Match and Insert.
  uint64_t clock() const { return clock_; }
  // Drops all snapshots.
  void ForgetStates();
  // What is cached for the salt, and what its leases still insert, goes first from now on.
  void Forget(absl::string_view salt);

  // What is cached for a salt: its trees with each chain of nodes that does not fork as one run, a
  // run before those below it.
  struct Run {
    static constexpr size_t kShownTokens = 32;
    int64_t parent = -1;                  // index of the run it goes on from; -1: none
    int64_t tokens = 0;                   // of the prefix that ends with this run
    int64_t own_tokens = 0;               // of this run
    int64_t blocks = 0;                   // that it has
    int64_t hits = 0;                     // prompts that were spared the run's first block
    absl::Time last_used = {};            // by a prompt, or when its last token was added
    std::string adapters = {};            // PrefixOwner's
    std::vector<int32_t> beginning = {};  // of its own tokens, at most kShownTokens
  };
  std::vector<Run> Runs(absl::string_view salt) const;

  int64_t num_nodes() const { return num_nodes_; }
  // Blocks, each once.
  int64_t num_blocks() const { return blocks_.num_held; }
  int64_t num_windowed(size_t c) const { return windowed_[c].blocks.num_held; }
  int64_t num_states() const { return states_.num_held; }
  // Blocks of nodes that no lease pins: those that Evict could free now or after their descendants,
  // and those that are also referenced elsewhere.
  int64_t num_evictable() const {
    return std::max<int64_t>(num_unpinned_ - (num_nodes_ - blocks_.num_held), 0);
  }

  // Internal, saying what, where counts, order, pins or references do not add up.
  absl::Status CheckIntegrity() const;

 private:
  // The tree's references to a pool.
  struct Holdings {
    explicit Holdings(KvBlockPool* pool) : pool(pool), held(pool ? pool->num_blocks() : 0) {}
    void Take(int32_t block);
    void Drop(int32_t block);
    // Whether only the tree references the block.
    bool Alone(int32_t block) const { return pool->references(block) == held[block]; }

    KvBlockPool* pool;
    std::vector<int32_t> held;  // of each block
    int64_t num_held = 0;       // blocks
  };
  // Tenants by how much of one kind they have, the forgotten ones behind all others.
  using BySize = std::set<std::pair<int64_t, Tenant*>>;
  struct WindowedClass {
    Holdings blocks;
    int64_t window;
    BySize by_size = {};
  };
  using Leaves = std::set<std::pair<uint64_t, Node*>>;  // by when they were used last

  // How far a walk down the tree came. What may be used of it are the first `depth` nodes and
  // `last` below them, which has the snapshot of a recurrent model: `tokens` tokens.
  struct Path {
    std::vector<Node*> nodes;
    int64_t known = 0;  // tokens of all of them
    size_t depth = 0;
    Node* last = nullptr;
    int64_t tokens = 0;
  };
  Path Walk(PrefixOwner owner, absl::Span<const int32_t> tokens) const;
  Node* FindSnapshot(const Node& node, absl::Span<const int32_t> run) const;
  void DropWindowed(Node* node, size_t c);
  void DropState(Node* node);
  void Attach(Node* node, const Additions& additions, size_t index, bool last);
  void See(Node* node);

  // The child of `node` that shares the longest prefix with `run`.
  struct Neighbour {
    Node* child = nullptr;
    int64_t common_tokens = 0;  // 0: no child
  };
  static Neighbour FindChild(const Node& node, absl::Span<const int32_t> run);
  static void AddChild(Node* node, std::unique_ptr<Node> child);
  static std::unique_ptr<Node> TakeChild(Node* node, const Node& child);

  Node* FindRoot(PrefixOwner owner) const;
  Node* FindOrAddRoot(PrefixOwner owner);
  void LeaveOut(Tenant* tenant);
  void AddRuns(const Node& root, absl::string_view adapters, std::vector<Run>* runs) const;
  // The leaf that goes next; null where none can.
  Node* NextToGo() const;
  // The node whose block (or snapshot) goes next, of those that each tenant lists; null where none
  // can.
  static Node* NextOf(const BySize& by_size, absl::FunctionRef<const Leaves&(const Tenant&)> list,
                      absl::FunctionRef<bool(const Node&)> may_go);
  // Counts a node of the tenant that comes or goes.
  void Count(Tenant* tenant, int64_t change);
  Node* AddRun(Node* parent, const Neighbour& near, absl::Span<const int32_t> run, int32_t block);
  void Remove(Node* leaf);
  void Pin(Node* node);
  void Unpin(Node* node);  // one node, not its ancestors
  void Extend(Node* node, int64_t tokens, Lease* lease);
  // Every node is in its tenant's leaves if and only if it is an unpinned leaf; call after and
  // before a change.
  void List(Node* node);
  void Unlist(Node* node);

  Holdings blocks_;
  const int32_t block_tokens_;
  std::vector<WindowedClass> windowed_;
  Holdings states_;
  std::map<std::string, std::unique_ptr<Tenant>, std::less<>> tenants_;  // by salt; none is empty
  BySize by_size_;                                                       // by nodes
  BySize by_states_size_;                                                // by snapshots
  uint64_t clock_ = 0;  // ticks once a Match or Insert
  absl::Time now_;      // of the last Match or Insert
  int64_t num_nodes_ = 0;
  int64_t num_unpinned_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_TREE_H_

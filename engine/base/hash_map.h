// HashMap and HashSet, which survive an allocation that fails.
//
//   HashMap<std::string, Lane> lanes;
//   lanes.try_emplace("a");                    // throws std::bad_alloc, or the element is there
//   auto at = lanes.find(absl::string_view("a"));
//
// OUT OF MEMORY
// A host that is short of memory lives on, and so must everything in it. The rules, everywhere in
// engine/ and extension/:
// - Memory that cannot be had is a std::bad_alloc. It goes up through our code to the border where
//   our code was called (extension/host/boundary.h, engine/runtime/c_api.cc) or a thread of ours began,
//   and is an error there, whose text was made in advance.
// - What outlives the call is either not changed or changed whole: build aside, then swap, or take
//   what needs memory first and let the rest be noexcept. What was begun is ended by a destructor.
// - Destructors, noexcept functions and catch blocks allocate nothing.
// So some parts of our libraries are of no use here. Abseil's hash tables and B-trees are broken,
// beyond being destroyed, by an allocation that fails while they grow; absl::StrFormat and
// nlohmann's containers allocate in destructors (see Json), and a std::variant's copy that fails is
// destroyed all the same (see Variant). std's containers keep to the rules.
#ifndef LM_ENGINE_BASE_HASH_MAP_H_
#define LM_ENGINE_BASE_HASH_MAP_H_

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace lm {

template <typename Key>
struct HasherOf {
  using Hash = absl::Hash<Key>;
  using Equal = std::equal_to<Key>;
};

// Strings are found by views.
template <>
struct HasherOf<std::string> {
  struct Hash {
    using is_transparent = void;
    size_t operator()(absl::string_view text) const { return absl::HashOf(text); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(absl::string_view a, absl::string_view b) const { return a == b; }
  };
};

template <typename Key, typename Value>
using HashMap =
    std::unordered_map<Key, Value, typename HasherOf<Key>::Hash, typename HasherOf<Key>::Equal>;
template <typename Key>
using HashSet =
    std::unordered_set<Key, typename HasherOf<Key>::Hash, typename HasherOf<Key>::Equal>;

}  // namespace lm

#endif  // LM_ENGINE_BASE_HASH_MAP_H_

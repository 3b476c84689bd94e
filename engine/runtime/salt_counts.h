// SaltCounts: what is counted for each salt, by itself.
//
//   SaltCounts<RequestCounts> counts;
//   ++counts.Of("file:/a.db").requests;
//   counts.Get("file:/b.db").requests;     // 0
#ifndef LM_ENGINE_RUNTIME_SALT_COUNTS_H_
#define LM_ENGINE_RUNTIME_SALT_COUNTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"

namespace lm {

// Of kMost salts: one more takes the place of that which has counted nothing for the longest time.
// Not thread-safe.
template <typename Counts>
class SaltCounts {
 public:
  static constexpr size_t kMost = 1000;

  // To be added to.
  Counts& Of(absl::string_view salt) {
    auto entry = entries_.find(salt);
    if (entry == entries_.end()) {
      entry = entries_.try_emplace(std::string(salt)).first;
      if (entries_.size() > kMost) {
        entry->second.used = ++uses_;  // so that it is not the one
        entries_.erase(std::min_element(
            entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
      }
    }
    entry->second.used = ++uses_;
    return entry->second.counts;
  }

  Counts Get(absl::string_view salt) const {
    const auto entry = entries_.find(salt);
    return entry != entries_.end() ? entry->second.counts : Counts();
  }

 private:
  struct Entry {
    Counts counts;
    uint64_t used = 0;
  };
  HashMap<std::string, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SALT_COUNTS_H_

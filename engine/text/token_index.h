// From a token's name to its id.
#ifndef LM_ENGINE_TEXT_TOKEN_INDEX_H_
#define LM_ENGINE_TEXT_TOKEN_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Immutable once built; thread-safe. Open addressing with linear probing, at most half full: a
// model waits for its vocabulary, so there is no node for each name, and names stay where they are.
class TokenIndex {
 public:
  // InvalidArgument, naming both ids, where two tokens have the same name. Tokens without a name
  // cannot be found.
  // REQUIRES: *vocabulary outlives this and does not change its tokens.
  absl::Status Build(const Vocabulary* vocabulary);

  // The id of that name, or -1.
  int32_t Find(absl::string_view name) const {
    return slots_.empty() ? -1 : slots_[Place(name, HashOf(name))].id;
  }

  // The same for tokens that plain text may become: neither control nor unknown nor byte tokens.
  int32_t FindPlain(absl::string_view name) const {
    const int32_t id = Find(name);
    return id >= 0 && IsPlain(id) ? id : -1;
  }
  bool IsPlain(int32_t id) const;

 private:
  struct Slot {
    uint32_t hash = 0;  // the upper half
    int32_t id = -1;    // nobody
  };

  static uint64_t HashOf(absl::string_view name);
  // Where the name is, or would go. REQUIRES: there is an empty slot.
  size_t Place(absl::string_view name, uint64_t hash) const;

  const Vocabulary* vocabulary_ = nullptr;
  std::vector<Slot> slots_;  // 0 or a power of two
};

// A token's name for an error message: quoted, escaped, at most 40 bytes of it.
std::string QuoteName(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TOKEN_INDEX_H_

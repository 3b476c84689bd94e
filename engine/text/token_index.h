// From a token's name to its id.
#ifndef LM_ENGINE_TEXT_TOKEN_INDEX_H_
#define LM_ENGINE_TEXT_TOKEN_INDEX_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Immutable once built; thread-safe. Holds views into the vocabulary's names.
class TokenIndex {
 public:
  // InvalidArgument, naming both ids, where two tokens have the same name. Tokens without a name
  // cannot be found.
  // REQUIRES: *vocabulary outlives this and does not change its tokens.
  absl::Status Build(const Vocabulary* vocabulary);

  // The id of that name, or -1.
  int32_t Find(absl::string_view name) const {
    auto it = ids_.find(name);
    return it == ids_.end() ? -1 : it->second;
  }

  // The same for tokens that plain text may become: neither control nor unknown nor byte tokens.
  int32_t FindPlain(absl::string_view name) const;

 private:
  const Vocabulary* vocabulary_ = nullptr;
  HashMap<absl::string_view, int32_t> ids_;
};

// A token's name for an error message: quoted, escaped, at most 40 bytes of it.
std::string QuoteName(absl::string_view name);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TOKEN_INDEX_H_

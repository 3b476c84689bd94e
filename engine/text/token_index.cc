#include "engine/text/token_index.h"

#include "absl/hash/hash.h"
#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"

namespace lm {

absl::Status TokenIndex::Build(const Vocabulary* vocabulary) {
  vocabulary_ = vocabulary;
  slots_.assign(absl::bit_ceil(2 * vocabulary->tokens.size() + 1), {});
  for (size_t i = 0; i < vocabulary->tokens.size(); ++i) {
    const std::string& name = vocabulary->tokens[i];
    if (name.empty()) continue;
    const uint64_t hash = HashOf(name);
    Slot& slot = slots_[Place(name, hash)];
    if (slot.id >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: tokens ", slot.id,
                                                     " and ", i, " are both ", QuoteName(name)));
    }
    slot = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(i)};
  }
  return absl::OkStatus();
}

uint64_t TokenIndex::HashOf(absl::string_view name) { return absl::HashOf(name); }

size_t TokenIndex::Place(absl::string_view name, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  auto is_other = [&](const Slot& slot) {
    return slot.id >= 0 &&
           (slot.hash != static_cast<uint32_t>(hash >> 32) || vocabulary_->tokens[slot.id] != name);
  };
  while (is_other(slots_[at])) at = (at + 1) & mask;
  return at;
}

bool TokenIndex::IsPlain(int32_t id) const {
  const TokenType type = vocabulary_->types[id];
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

std::string QuoteName(absl::string_view name) {
  constexpr size_t kShown = 40;
  return absl::StrCat("\"", Printable(name.substr(0, kShown)), name.size() > kShown ? "..." : "",
                      "\"");
}

}  // namespace lm

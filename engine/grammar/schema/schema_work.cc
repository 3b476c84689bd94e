#include "engine/grammar/schema/schema_work.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Beyond, those known are forgotten.
constexpr size_t kMostBytes = size_t{32} << 20;

}  // namespace

absl::StatusOr<SharedTextSet> KnownTexts::OfPattern(const std::string& pattern) {
  if (auto known = patterns_.find(pattern); known != patterns_.end()) return known->second;
  return Keep(TextSet::OfPattern(pattern), pattern, &patterns_);
}

absl::StatusOr<SharedTextSet> KnownTexts::OfFormat(absl::string_view regex) {
  if (auto known = formats_.find(regex); known != formats_.end()) return known->second;
  return Keep(TextSet::OfRegex(regex), std::string(regex), &formats_);
}

absl::StatusOr<SharedTextSet> KnownTexts::Keep(absl::StatusOr<TextSet> set, const std::string& name,
                                               Sets* sets) {
  if (absl::IsCancelled(set.status())) return set.status();
  if (!set.ok()) return sets->emplace(name, set.status()).first->second;
  auto shared = std::make_shared<const TextSet>(*std::move(set));
  if (bytes_ + shared->bytes() > kMostBytes) {
    patterns_.clear();
    formats_.clear();
    bytes_ = 0;
  }
  bytes_ += shared->bytes();
  sets->emplace(name, shared);
  return shared;
}

}  // namespace lm

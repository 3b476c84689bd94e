#include "extension/connection/options_cache.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// A few calls of a statement, each of which asks twice.
constexpr size_t kMostEntries = 8;
constexpr size_t kMostBytes = 8 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const GenerationOptions>> OptionsCache::Get(
    absl::string_view settings, const std::optional<std::string>& json,
    const CallDefaults& defaults,
    absl::FunctionRef<absl::StatusOr<GenerationOptions>()> parse) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->json != json || entry->settings != settings || entry->defaults != defaults) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().options;
  }
  ASSIGN_OR_RETURN(GenerationOptions parsed, parse());
  auto options = std::make_shared<const GenerationOptions>(std::move(parsed));
  const size_t bytes = settings.size() + (json.has_value() ? json->size() : 0);
  if (bytes > kMostBytes) return options;
  entries_.push_front({std::string(settings), json, defaults, options, bytes});
  bytes_ += bytes;
  while (entries_.size() > kMostEntries || bytes_ > kMostBytes) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
  return options;
}

}  // namespace lm

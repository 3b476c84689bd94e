// OptionsCache: what options in JSON say, kept for the rows that come with the same text.
#ifndef LM_EXTENSION_CONNECTION_OPTIONS_CACHE_H_
#define LM_EXTENSION_CONNECTION_OPTIONS_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// What a function's options are where neither they nor the settings say so.
struct CallDefaults {
  OnError on_error = OnError::kError;
  Priority priority = Priority::kBatch;
  OnLength on_length = OnLength::kCut;

  friend bool operator==(const CallDefaults&, const CallDefaults&) = default;
};

// Not thread-safe.
class OptionsCache {
 public:
  // What `parse` makes of these texts, or made of the same ones lately. An error is not kept.
  absl::StatusOr<std::shared_ptr<const GenerationOptions>> Get(
      absl::string_view settings, const std::optional<std::string>& json,
      const CallDefaults& defaults,
      absl::FunctionRef<absl::StatusOr<GenerationOptions>()> parse);

 private:
  struct Entry {
    std::string settings;
    std::optional<std::string> json;
    CallDefaults defaults;
    std::shared_ptr<const GenerationOptions> options;
    size_t bytes;  // of the texts
  };

  std::list<Entry> entries_;  // the one that was asked for last is the first
  size_t bytes_ = 0;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_OPTIONS_CACHE_H_

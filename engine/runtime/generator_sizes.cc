#include "engine/runtime/generator_sizes.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Control tokens that a model adds to a text. A server that tells of more is not believed.
constexpr int64_t kMostAdded = 8;

}  // namespace

GeneratorSizes::GeneratorSizes(const Generator& generator)
    : generator_(generator), tokenizer_(generator.tokenizer().value_or(nullptr)) {}

absl::StatusOr<std::vector<size_t>> GeneratorSizes::Of(absl::string_view text) const {
  if (tokenizer_ != nullptr) return TokenizerSizes(*tokenizer_).Of(text);
  ASSIGN_OR_RETURN(const int64_t asked, Ask(text));
  const size_t tokens = static_cast<size_t>(asked);
  std::vector<size_t> sizes(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    sizes[i] = text.size() * (i + 1) / tokens - text.size() * i / tokens;
  }
  return sizes;
}

absl::StatusOr<int64_t> GeneratorSizes::AtMost(absl::string_view text, int64_t enough) const {
  if (tokenizer_ != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer_->EncodePlain(text));
    return static_cast<int64_t>(ids.size());
  }
  const int64_t bytes = static_cast<int64_t>(text.size());
  if (bytes <= enough) return bytes;
  return Ask(text);
}

absl::StatusOr<int64_t> GeneratorSizes::Ask(absl::string_view text) const {
  const int64_t bytes = static_cast<int64_t>(text.size());
  if (counts_) {
    const absl::StatusOr<int64_t> told =
        generator_.CountTokens({.task = Task::kScore, .prompt = text});
    if (told.ok()) return std::min(*told, bytes + kMostAdded);
    // It has no such question, or will not answer it about this text.
    const absl::Status& why = told.status();
    if (!absl::IsFailedPrecondition(why) && !absl::IsInvalidArgument(why)) return told;
    counts_ = false;
  }
  return bytes;
}

}  // namespace lm

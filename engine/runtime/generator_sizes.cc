#include "engine/runtime/generator_sizes.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/runtime/trouble.h"

namespace lm {
namespace {

// Control tokens that a model adds to a text. A server that tells of more is not believed.
constexpr int64_t kMostAdded = 8;
// A text of so few bytes says nothing of others.
constexpr int64_t kLeastTelling = 256;
// By how much texts may differ that are like one another: beyond an eighth they do not; and most of
// those that are cut where the last one had its tokens fit.
constexpr int64_t kUncertain = 8;
constexpr double kShorter = 0.98;

// Tokens that are about as long as one another.
std::vector<size_t> Even(size_t bytes, size_t tokens) {
  std::vector<size_t> sizes(tokens);
  for (size_t i = 0; i < tokens; ++i) sizes[i] = bytes * (i + 1) / tokens - bytes * i / tokens;
  return sizes;
}

}  // namespace

GeneratorSizes::GeneratorSizes(const Generator& generator)
    : generator_(generator), tokenizer_(generator.tokenizer().value_or(nullptr)) {}

absl::StatusOr<std::vector<size_t>> GeneratorSizes::Of(absl::string_view text) const {
  if (tokenizer_ != nullptr) return TokenizerSizes(*tokenizer_).Of(text);
  ASSIGN_OR_RETURN(const int64_t asked, Ask(text));
  return Even(text.size(), static_cast<size_t>(asked));
}

absl::StatusOr<std::vector<size_t>> GeneratorSizes::ToCut(absl::string_view text,
                                                          int64_t most) const {
  if (tokenizer_ == nullptr && bytes_per_token_ > 0) {
    ASSIGN_OR_RETURN(const int64_t about, About(text));
    if (IsMore(about, most)) {
      return Even(text.size(), static_cast<size_t>(static_cast<double>(about) / kShorter));
    }
  }
  return Of(text);
}

absl::StatusOr<int64_t> GeneratorSizes::About(absl::string_view text) const {
  if (tokenizer_ != nullptr || bytes_per_token_ == 0) return AtMost(text, INT64_MAX);
  return static_cast<int64_t>(static_cast<double>(text.size()) / bytes_per_token_);
}

bool GeneratorSizes::IsMore(int64_t about, int64_t most) const {
  return about > (bytes_per_token_ > 0 ? most + most / kUncertain : most);
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
    if (told.ok()) {
      const int64_t tokens = std::min(*told, bytes + kMostAdded);
      if (bytes >= kLeastTelling && tokens > 0) {
        bytes_per_token_ = static_cast<double>(bytes) / static_cast<double>(tokens);
      }
      return tokens;
    }
    // It has no such question, or will not answer it about this text.
    const absl::Status& why = told.status();
    const Trouble trouble = TroubleOf(why);
    const bool will_not = trouble == Trouble::kAccount || trouble == Trouble::kRefusal;
    if (!absl::IsFailedPrecondition(why) && !absl::IsInvalidArgument(why) && !will_not) return told;
    counts_ = false;
    bytes_per_token_ = 0;
  }
  return bytes;
}

}  // namespace lm

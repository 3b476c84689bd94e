#include "engine/text/token_index.h"
#include "engine/base/printable.h"

#include "absl/strings/str_cat.h"

namespace lm {

absl::Status TokenIndex::Build(const Vocabulary* vocabulary) {
  vocabulary_ = vocabulary;
  ids_.clear();
  ids_.reserve(vocabulary->tokens.size());
  for (size_t i = 0; i < vocabulary->tokens.size(); ++i) {
    const std::string& name = vocabulary->tokens[i];
    if (name.empty()) continue;
    auto [it, inserted] = ids_.emplace(absl::string_view(name), static_cast<int32_t>(i));
    if (!inserted) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: tokens ", it->second,
                                                     " and ", i, " are both ", QuoteName(name)));
    }
  }
  return absl::OkStatus();
}

int32_t TokenIndex::FindPlain(absl::string_view name) const {
  int32_t id = Find(name);
  if (id < 0) return -1;
  TokenType type = vocabulary_->types[id];
  bool plain =
      type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
  return plain ? id : -1;
}

std::string QuoteName(absl::string_view name) {
  constexpr size_t kShown = 40;
  return absl::StrCat("\"", Printable(name.substr(0, kShown)), name.size() > kShown ? "..." : "",
                      "\"");
}

}  // namespace lm

#include "engine/grammar/grammar_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {

GrammarMatcher::GrammarMatcher(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)) {
  now_.position = constraint_->Start();
}

absl::Status GrammarMatcher::FillMask(absl::Span<uint64_t> mask) {
  const size_t words = constraint_->trie().mask_words();
  if (mask.size() != words) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mask must have ", words, " words, got ", mask.size()));
  }
  if (now_.ended) {
    std::fill(mask.begin(), mask.end(), 0);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(constraint_->FillMask(&now_.position, mask));
  for (uint64_t word : mask) {
    if (word != 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "no token of this model's vocabulary goes on with the grammar here");
}

absl::Status GrammarMatcher::Accept(int32_t token) {
  const TokenTrie& trie = constraint_->trie();
  if (token < 0 || token >= trie.num_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat("token ", token, " is not in the vocabulary of ",
                                                   trie.num_tokens(), " tokens"));
  }
  if (now_.ended) {
    return absl::InvalidArgumentError(absl::StrCat("token ", token, " after the end"));
  }
  if (trie.IsEndOfGeneration(token)) {
    if (!CanEnd()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " ends the text where the grammar does not"));
    }
    Push();
    now_.ended = true;
    return absl::OkStatus();
  }
  const absl::string_view bytes = trie.TokenBytes(token);
  if (bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("token ", token, " is a control token"));
  }
  return AcceptBytes(bytes);
}

absl::Status GrammarMatcher::AcceptBytes(absl::string_view bytes) {
  Constraint::Position next = now_.position;
  bool goes_on = false;
  if (!now_.ended) {
    ASSIGN_OR_RETURN(goes_on, constraint_->Advance(&next, bytes));
  }
  if (!goes_on) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(bytes.substr(0, 100)),
                                                   "\" is not allowed by the grammar here"));
  }
  Push();
  now_.position = std::move(next);
  return absl::OkStatus();
}

void GrammarMatcher::Push() {
  before_.push_back(now_);
  if (before_.size() > kMaxRollback) before_.pop_front();
}

absl::StatusOr<std::string> GrammarMatcher::ForcedBytes() {
  if (now_.ended) return std::string();
  Constraint::Position position = now_.position;
  return constraint_->SkipForced(&position, kMaxForcedBytes);
}

absl::StatusOr<std::vector<int32_t>> GrammarMatcher::ForcedTokens(
    absl::FunctionRef<std::vector<int32_t>(absl::string_view)> tokenize, absl::string_view tail) {
  std::vector<int32_t> tokens;
  if (now_.ended) return tokens;
  Constraint::Position position = now_.position;
  ASSIGN_OR_RETURN(std::string forced, constraint_->SkipForced(&position, kMaxForcedBytes));
  std::string text = absl::StrCat(tail, forced);
  // Whole characters only: tokenizers take text.
  if (size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    if (valid <= tail.size()) return tokens;
    text.resize(valid);
    position = now_.position;
    ASSIGN_OR_RETURN(const bool goes_on,
                     constraint_->Advance(&position, absl::string_view(text).substr(tail.size())));
    if (!goes_on) return absl::InternalError("forced bytes are not allowed");
  }
  if (text.size() == tail.size()) return tokens;
  absl::string_view rest = text;
  for (int32_t token : tokenize(text)) {
    const TokenTrie& trie = constraint_->trie();
    if (token < 0 || token >= trie.num_tokens() || trie.IsEndOfGeneration(token)) break;
    const absl::string_view bytes = trie.TokenBytes(token);
    if (bytes.empty() || rest.substr(0, bytes.size()) != bytes) break;
    // Could the model have wanted a longer token from here on?
    ASSIGN_OR_RETURN(const bool longer, constraint_->SomeTokenGoesOn(position, rest));
    if (longer) break;
    rest.remove_prefix(bytes.size());
    tokens.push_back(token);
  }
  if (text.size() - rest.size() < tail.size()) tokens.clear();
  return tokens;
}

absl::Status GrammarMatcher::Rollback(size_t n) {
  if (n > before_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot take back ", n, " tokens, only ", before_.size()));
  }
  if (n == 0) return absl::OkStatus();
  now_ = before_[before_.size() - n];
  before_.resize(before_.size() - n);
  return absl::OkStatus();
}

}  // namespace lm

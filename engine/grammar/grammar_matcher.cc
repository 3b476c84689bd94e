#include "engine/grammar/grammar_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

// What of text_bytes() a mask must visit to be counted, so that long answers are free.
constexpr size_t kLeastShare = 2048;

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)) {
  now_.position = constraint_->Start();
}

void GrammarMatcher::Begin() {
  if (!under_way_) constraint_->Settle(&now_.position);
}

absl::Status GrammarMatcher::FillMask(absl::Span<uint64_t> mask, int64_t* work) {
  bool left_out = false;
  return FillMask(std::nullopt, mask, &left_out, work);
}

absl::Status GrammarMatcher::FillMaskToEnd(int32_t room, absl::Span<uint64_t> mask, bool* left_out,
                                           int64_t* work) {
  return FillMask(room, mask, left_out, work);
}

absl::StatusOr<int32_t> GrammarMatcher::TokensToEnd(int64_t* work) {
  if (now_.ended) return 0;
  Begin();
  absl::StatusOr<int32_t> tokens = constraint_->TokensToEnd(now_.position, work);
  End(tokens.status());
  return tokens;
}

absl::Status GrammarMatcher::FillMask(std::optional<int32_t> room, absl::Span<uint64_t> mask,
                                      bool* left_out, int64_t* work) {
  *left_out = false;
  const size_t words = constraint_->trie().mask_words();
  if (mask.size() != words) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mask must have ", words, " words, got ", mask.size()));
  }
  if (now_.ended) {
    std::fill(mask.begin(), mask.end(), 0);
    return absl::OkStatus();
  }
  Begin();
  const absl::StatusOr<Constraint::MaskCost> cost =
      constraint_->FillMask(now_.position, room, mask, left_out, work);
  End(cost.status());
  RETURN_IF_ERROR(cost.status());
  RETURN_IF_ERROR(Charge(*cost));
  for (uint64_t word : mask) {
    if (word != 0) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "no token of this model's vocabulary goes on with the grammar here");
}

absl::Status GrammarMatcher::Charge(const Constraint::MaskCost& cost) {
  if (cost.visited <= constraint_->text_bytes() / kLeastShare) return absl::OkStatus();
  if (std::find(costly_.begin(), costly_.end(), cost.digest) != costly_.end()) {
    return absl::OkStatus();
  }
  costly_.push_back(cost.digest);
  charged_ += cost.visited;
  if (charged_ <= constraint_->text_bytes()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the grammar is too ambiguous: to follow this text took more than ",
                   constraint_->text_bytes() >> 10,
                   " KiB of states; remove alternatives and counts that match the same text"));
}

absl::Status GrammarMatcher::Accept(int32_t token, int64_t* work) {
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
  return AcceptBytes(bytes, work);
}

absl::Status GrammarMatcher::AcceptBytes(absl::string_view bytes, int64_t* work) {
  Begin();
  Constraint::Position next = now_.position;
  absl::StatusOr<bool> goes_on = false;
  if (!now_.ended) goes_on = constraint_->Advance(&next, bytes, work);
  End(goes_on.status());
  RETURN_IF_ERROR(goes_on.status());
  if (!*goes_on) {
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

absl::StatusOr<std::string> GrammarMatcher::ForcedBytes(int64_t* work) {
  if (now_.ended) return std::string();
  Begin();
  Constraint::Position position = now_.position;
  absl::StatusOr<std::string> bytes = constraint_->SkipForced(&position, kMaxForcedBytes, work);
  End(bytes.status());
  return bytes;
}

absl::StatusOr<std::vector<int32_t>> GrammarMatcher::ForcedTokens(
    absl::FunctionRef<std::vector<int32_t>(absl::string_view)> tokenize, absl::string_view tail,
    int64_t* work) {
  if (now_.ended) return std::vector<int32_t>();
  Begin();
  absl::StatusOr<std::vector<int32_t>> tokens = FindForcedTokens(tokenize, tail, work);
  End(tokens.status());
  return tokens;
}

// Begins from the start in each turn: of what it finds, only the states are kept.
absl::StatusOr<std::vector<int32_t>> GrammarMatcher::FindForcedTokens(
    absl::FunctionRef<std::vector<int32_t>(absl::string_view)> tokenize, absl::string_view tail,
    int64_t* work) {
  std::vector<int32_t> tokens;
  Constraint::Position position = now_.position;
  ASSIGN_OR_RETURN(std::string forced, constraint_->SkipForced(&position, kMaxForcedBytes, work));
  std::string text = absl::StrCat(tail, forced);
  // Whole characters only: tokenizers take text.
  if (size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    if (valid <= tail.size()) return tokens;
    text.resize(valid);
    position = now_.position;
    ASSIGN_OR_RETURN(
        const bool goes_on,
        constraint_->Advance(&position, absl::string_view(text).substr(tail.size()), work));
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
    ASSIGN_OR_RETURN(const bool longer, constraint_->SomeTokenGoesOn(position, rest, work));
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

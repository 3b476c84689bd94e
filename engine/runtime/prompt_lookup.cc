#include "engine/runtime/prompt_lookup.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

struct OwnText final : DraftMemory {
  NgramIndex index;
};

const NgramIndex& OwnIndex(const DraftRow& row) {
  if (*row.memory == nullptr) *row.memory = std::make_unique<OwnText>();
  NgramIndex& index = static_cast<OwnText&>(**row.memory).index;
  if (index.size() < row.tokens.size()) index.Append(row.tokens.subspan(index.size()));
  return index;
}

}  // namespace

const NgramIndex* PromptLookup::AnswersOf(absl::string_view salt) const {
  const auto at = std::find_if(answers_.begin(), answers_.end(),
                               [salt](const Answers& a) { return a.salt == salt; });
  return at == answers_.end() ? nullptr : &at->index;
}

void PromptLookup::Propose(absl::Span<DraftRow> rows) {
  for (DraftRow& row : rows) {
    const NgramIndex* index = &OwnIndex(row);
    NgramIndex::Match match = index->Find(row.context);
    if (const NgramIndex* answers = AnswersOf(row.salt)) {
      const NgramIndex::Match other = answers->Find(row.context);
      if (other.length > match.length) {
        match = other;
        index = answers;
      }
    }
    row.draft = {};
    if (match.length == 0) continue;
    row.draft = {.tokens = index->Continuation(match, row.most),
                 .kind = match.length,
                 .last_kind = NgramIndex::kLongest};
  }
}

void PromptLookup::Learn(absl::string_view salt, absl::Span<const int32_t> tokens,
                         int32_t prompt_tokens) {
  // With the prompt's end, which says that an answer begins.
  const size_t begin = std::max<int64_t>(prompt_tokens - NgramIndex::kLongest, 0);
  absl::Span<const int32_t> answer = tokens.subspan(begin);
  if (static_cast<size_t>(prompt_tokens) == tokens.size()) return;
  answer = answer.subspan(answer.size() - std::min(answer.size(), kAnswerTokens / 4));
  const auto at = std::find_if(answers_.begin(), answers_.end(),
                               [salt](const Answers& a) { return a.salt == salt; });
  if (at == answers_.end()) {
    answers_.push_front({.salt = std::string(salt), .index = {}});
    if (answers_.size() > kMostSalts) answers_.pop_back();
  } else {
    answers_.splice(answers_.begin(), answers_, at);
  }
  NgramIndex& index = answers_.front().index;
  if (index.size() + answer.size() >= kAnswerTokens) index.DropFirst(index.size() / 2);
  index.Append(answer);
  index.Append({NgramIndex::kBorder});
}

}  // namespace lm

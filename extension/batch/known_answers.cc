#include "extension/batch/known_answers.h"

#include <utility>

namespace lm {

bool KnownAnswers::Add(const CallText& call, const RowAnswer& answer) {
  if (bytes_ > kMaxBytes) return false;
  RowAnswer copy = answer;
  copy.generation.tokens = {};  // no function looks at them
  size_t bytes = sizeof(size_t) + sizeof(RowAnswer) + copy.generation.text.size() +
                 copy.generation.embedding.size() * sizeof(float);
  for (const FirstChoice& choice : copy.generation.first_choices) {
    bytes += sizeof(FirstChoice) + choice.text.size();
  }
  if (answers_.emplace(call.hash, std::move(copy)).second) bytes_ += bytes;
  return true;
}

const RowAnswer* KnownAnswers::Find(const CallText& call) const {
  const auto found = answers_.find(call.hash);
  return found != answers_.end() ? &found->second : nullptr;
}

void KnownAnswers::Clear() {
  answers_.clear();
  bytes_ = 0;
}

}  // namespace lm

#include "engine/remote/constraint_proofs.h"

#include <utility>

namespace lm {

void ConstraintProofs::ForgetAsked() noexcept {
  for (State& state : states_) {
    if (state == State::kAsked) state = State::kNone;
  }
}

void ConstraintProofs::Note(Kind kind, const absl::Status& status) {
  std::string words = status.ok() ? "kept" : std::string(status.message());
  absl::MutexLock lock(&mutex_);
  words_[IndexOf(kind)] = std::move(words);
}

std::vector<ConstraintProof> ConstraintProofs::List() const {
  std::vector<ConstraintProof> list;
  absl::MutexLock lock(&mutex_);
  for (Kind kind : kKinds) list.push_back({ConstraintName(kind), words_[IndexOf(kind)]});
  return list;
}

}  // namespace lm

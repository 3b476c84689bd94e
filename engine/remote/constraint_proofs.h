// ConstraintProofs: which kinds of constraints a server has been seen to keep to (canary.h).
#ifndef LM_ENGINE_REMOTE_CONSTRAINT_PROOFS_H_
#define LM_ENGINE_REMOTE_CONSTRAINT_PROOFS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/remote/remote_generator.h"
#include "engine/runtime/generation_options.h"

namespace lm {

// kExtraction is a schema to a server.
class ConstraintProofs {
 public:
  using Kind = AnswerConstraint::Kind;
  enum class State : uint8_t { kNone, kAsked, kGiven };
  static constexpr Kind kKinds[] = {Kind::kChoices, Kind::kRegex, Kind::kSchema, Kind::kGrammar};

  // Of the network's thread.
  State of(Kind kind) const { return states_[IndexOf(kind)]; }
  void set(Kind kind, State state) { states_[IndexOf(kind)] = state; }
  // Those who were asked were asked in vain.
  void ForgetAsked() noexcept;
  static bool AreOne(Kind a, Kind b) { return IndexOf(a) == IndexOf(b); }

  // Thread-safe. What is known of the kind: OK where the server keeps to it.
  void Note(Kind kind, const absl::Status& status);
  std::vector<ConstraintProof> List() const;

 private:
  static size_t IndexOf(Kind kind) {
    return static_cast<size_t>(kind == Kind::kExtraction ? Kind::kSchema : kind);
  }

  std::array<State, 6> states_{};  // by Kind
  mutable absl::Mutex mutex_;
  std::array<std::string, 6> words_ ABSL_GUARDED_BY(mutex_);  // likewise; empty: not known
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CONSTRAINT_PROOFS_H_

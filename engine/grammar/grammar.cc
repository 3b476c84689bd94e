#include "engine/grammar/grammar.h"

#include "engine/grammar/state_machine.h"

namespace lm {

absl::StatusOr<bool> Grammar::Matches(absl::string_view text) const {
  StateMachine machine(&automaton_);
  StateId state = machine.start();
  for (size_t i = 0; i < text.size() && state != StateMachine::kNoState; ++i) {
    state = machine.Next(state, static_cast<uint8_t>(text[i]));
  }
  if (machine.exhausted()) {
    return absl::ResourceExhaustedError("the grammar is too ambiguous to be followed");
  }
  return state != StateMachine::kNoState && machine.CanEnd(state);
}

}  // namespace lm

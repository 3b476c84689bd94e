// What this room keeps for a connection.
#ifndef LM_EXTENSION_BATCH_BATCH_STATE_H_
#define LM_EXTENSION_BATCH_BATCH_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/hash_map.h"
#include "extension/batch/tickets.h"
#include "extension/connection/connection.h"

namespace lm {

class LookAhead;

// Of a model, as the first of a cascade.
struct CascadeCounts {
  int64_t asked = 0;      // rows that it was asked for
  int64_t escalated = 0;  // of these, rows that another model has answered
};

struct BatchState : ConnectionExtra {
  void Batched() noexcept override {
    hint.clear();
    num_single = 0;
  }

  // Of lm_submit() and lm_await().
  Tickets tickets;

  // Of look_ahead.h.
  LookAhead* stepping = nullptr;  // whose shadow is being stepped, and makes the calls
  std::vector<LookAhead*> running;

  // For lm_stats.
  int64_t num_foreseen = 0;  // calls whose answers were under way before they were made
  // What the last statement that had to ask for one row at a time could do better; empty once rows
  // of a statement have decoded together.
  std::string hint;
  int num_single = 0;                            // statements in a row that asked for one row each
  HashMap<std::string, CascadeCounts> cascades;  // by the first model's path
};

// The connection's; made when it is first asked for.
inline BatchState& BatchOf(Connection& connection) {
  if (connection.extra() == nullptr) connection.extra() = std::make_unique<BatchState>();
  return static_cast<BatchState&>(*connection.extra());
}

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_BATCH_STATE_H_

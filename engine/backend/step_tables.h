// StepTables: what all layers of a step refer to, as a value that is complete before the first op.
//
// T tokens of several sequences, one behind the other; for each class of the cache the block tables
// of the sequences, for each rope of the model the angles of the tokens' positions.
#ifndef LM_ENGINE_BACKEND_STEP_TABLES_H_
#define LM_ENGINE_BACKEND_STEP_TABLES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace lm {

// Tokens a KV block holds.
inline constexpr int kKvBlockTokens = 32;

// How many blocks `tokens` tokens need.
constexpr int32_t BlocksFor(int64_t tokens) {
  return static_cast<int32_t>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

// The rows [first_row, first_row + num_tokens) of a step: the tokens of one sequence at the
// absolute positions [first_position, first_position + num_tokens). Position p of its context lies
// in block blocks[c][first_block + p / kKvBlockTokens] of class c, at p % kKvBlockTokens. Sequences
// that share a prefix have the same leading blocks.
struct StepSequence {
  int32_t first_row = 0;
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  int32_t first_block = 0;  // of its BlocksFor(context()) blocks
  int32_t state = -1;       // its slot of recurrent state; -1: it has none

  int32_t context() const { return first_position + num_tokens; }
};

// The angles by which the pairs of a head turn: cos and sin of pair i at [2i] and [2i + 1].
struct RopeTable {
  int32_t dim = 0;                 // values of a head that turn, even
  std::vector<float> angles = {};  // (T, dim)
};

struct StepTables {
  // (T,). One below 0, where they may be, is not known yet: ~i is the i-th of those that the step
  // before picks.
  std::vector<int32_t> tokens = {};
  int32_t num_picked = 0;  // by the step before; 0: all tokens are known
  std::vector<StepSequence> sequences = {};       // cover the rows [0, T), in order, without gaps
  std::vector<std::vector<int32_t>> blocks = {};  // of each class; -1 where no token sees the block
  std::vector<RopeTable> ropes = {};
  std::vector<std::vector<int32_t>> row_lists = {};  // rows >= 0, for GatherRows

  // Appends the tokens' sequence, without its blocks. REQUIRES: blocks has the classes' number.
  void Append(const int32_t* tokens, int32_t count, int32_t first_position, int32_t state = -1);
};

// What the ops look up: made once a step.
struct StepIndex {
  const StepTables* tables = nullptr;
  // Of each class: the slot of each row, block * kKvBlockTokens + token, and the greatest block.
  std::vector<std::vector<int64_t>> slots;
  std::vector<int32_t> last_block;
  std::vector<int32_t> last_row;  // of each row list; -1: none
  int32_t last_state = -1;
  int32_t last_token = -1;
  int64_t serial = 0;  // of the step
};

// Fills *index from the tables. InvalidArgument, saying which and how, where they do not fit each
// other: rows with gaps, tables that are too short, a token to be stored where there is no block.
absl::Status IndexStep(const StepTables* tables, StepIndex* index);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_STEP_TABLES_H_

#include "engine/backend/step_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

template <typename... Parts>
absl::Status Misfit(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("BeginStep: ", parts...));
}

int32_t Greatest(const std::vector<int32_t>& values) {
  const auto most = std::max_element(values.begin(), values.end());
  return most == values.end() ? -1 : *most;
}

int32_t Least(const std::vector<int32_t>& values) {
  const auto least = std::min_element(values.begin(), values.end());
  return least == values.end() ? 0 : *least;
}

// The slots of the rows in one class.
absl::Status IndexClass(const StepTables& tables, const std::vector<int32_t>& blocks,
                        std::vector<int64_t>* slots) {
  slots->clear();
  for (const StepSequence& sequence : tables.sequences) {
    const int64_t end = int64_t{sequence.first_block} + BlocksFor(sequence.context());
    if (sequence.first_block < 0 || end > static_cast<int64_t>(blocks.size())) {
      return Misfit("the blocks [", sequence.first_block, ", ", end,
                    ") of a sequence must be in [0, ", blocks.size(), ")");
    }
    for (int32_t p = sequence.first_position; p < sequence.context(); ++p) {
      const int64_t block = blocks[sequence.first_block + p / kKvBlockTokens];
      if (block < 0) return Misfit("position ", p, " of a sequence has no block");
      slots->push_back(block * kKvBlockTokens + p % kKvBlockTokens);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void StepTables::Append(const int32_t* first, int32_t count, int32_t first_position,
                        int32_t state) {
  int32_t first_block = 0;
  if (!sequences.empty()) {
    first_block = sequences.back().first_block + BlocksFor(sequences.back().context());
  }
  sequences.push_back({.first_row = static_cast<int32_t>(tokens.size()),
                       .num_tokens = count,
                       .first_position = first_position,
                       .first_block = first_block,
                       .state = state});
  tokens.insert(tokens.end(), first, first + count);
}

absl::Status IndexStep(const StepTables* tables, StepIndex* index) {
  index->tables = nullptr;
  ++index->serial;
  int64_t rows = 0;
  index->last_state = -1;
  for (const StepSequence& sequence : tables->sequences) {
    if (sequence.first_row != rows || sequence.num_tokens < 0 || sequence.first_position < 0) {
      return Misfit("a sequence has ", sequence.num_tokens, " rows from ", sequence.first_row,
                    " on, at position ", sequence.first_position, "; the next row is ", rows);
    }
    rows += sequence.num_tokens;
    index->last_state = std::max(index->last_state, sequence.state);
  }
  const int64_t tokens = static_cast<int64_t>(tables->tokens.size());
  if (rows != tokens) return Misfit("the sequences have ", rows, " rows for ", tokens, " tokens");
  if (Least(tables->tokens) < -tables->num_picked) {
    return Misfit("a token is ", Least(tables->tokens), ", of ", tables->num_picked, " picked");
  }
  index->last_token = Greatest(tables->tokens);
  index->slots.resize(tables->blocks.size());
  index->last_block.clear();
  for (size_t i = 0; i < tables->blocks.size(); ++i) {
    if (absl::Status s = IndexClass(*tables, tables->blocks[i], &index->slots[i]); !s.ok()) {
      return s;
    }
    index->last_block.push_back(Greatest(tables->blocks[i]));
  }
  for (const RopeTable& rope : tables->ropes) {
    if (rope.dim < 0 || rope.dim % 2 != 0 ||
        static_cast<int64_t>(rope.angles.size()) != tokens * rope.dim) {
      return Misfit("a rope table of ", rope.dim, " columns has ", rope.angles.size(),
                    " values for ", tokens, " tokens");
    }
  }
  index->last_row.clear();
  for (const std::vector<int32_t>& list : tables->row_lists) {
    if (Least(list) < 0) return Misfit("a row list has row ", Least(list));
    index->last_row.push_back(Greatest(list));
  }
  index->tables = tables;
  return absl::OkStatus();
}

}  // namespace lm

// LanguageModel: what the runtime needs of a model, and no more. Transformer is the real one; tests
// of the scheduler and the engine use a scripted one.
#ifndef LM_ENGINE_MODEL_LANGUAGE_MODEL_H_
#define LM_ENGINE_MODEL_LANGUAGE_MODEL_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"

namespace lm {

// One step's work: T tokens of several sequences.
struct Batch {
  absl::Span<const int32_t> tokens;          // (T,)
  absl::Span<const SequenceSpan> sequences;  // cover the rows [0, T), in order, without gaps
  absl::Span<const int32_t> logit_rows;      // ascending rows of the batch whose logits are wanted

  // Logits are wanted of the tokens [64 i, 64 i + 64) for each i with wanted_logits[i] != 0 (a mask
  // of tokens has such words), the others may be anything; empty: of all.
  absl::Span<const uint64_t> wanted_logits = {};

  // Ascending rows whose hidden states (what the head multiplies: after the output norm) are
  // wanted, and where they go: (hidden_rows.size(), hidden_size()), row-major.
  absl::Span<const int32_t> hidden_rows = {};
  absl::Span<float> hidden = {};
};

// One thread at a time, except for the constant getters.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int32_t vocab_size() const = 0;
  virtual int32_t hidden_size() const = 0;
  // The longest sequence, prompt and answer together, in tokens.
  virtual int32_t context_length() const = 0;
  // KV blocks (of kKvBlockTokens tokens) that this model's cache has.
  virtual int32_t num_kv_blocks() const = 0;
  virtual int64_t kv_block_bytes() const = 0;  // all layers, keys and values

  // Computes the batch's keys and values into the blocks that its sequences list, the logits of
  // logit_rows: logits (logit_rows.size(), vocab_size()), row-major, and the hidden states asked
  // for. `cancel` is polled between layers: once it is true, Forward returns Cancelled soon; the KV
  // of the batch's tokens is then undefined, as after an error. Whether results are finite is not
  // looked at: whoever uses a row checks it, so that a bad one fails its own sequence only.
  // REQUIRES: logits.size() == logit_rows.size() * vocab_size(); likewise hidden.
  virtual absl::Status Forward(const Batch& batch, const std::atomic<bool>& cancel,
                               absl::Span<float> logits) = 0;

  // Copies the first `tokens` tokens of a block to another one, all layers.
  virtual absl::Status CopyKvBlock(int32_t from, int32_t to, int32_t tokens) = 0;
  // Clears a block, before another owner may use it.
  virtual absl::Status ZeroKvBlock(int32_t block) = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LANGUAGE_MODEL_H_

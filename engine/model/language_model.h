// LanguageModel: what the runtime needs of a model, and no more. Transformer is the real one; tests
// of the scheduler and the engine use a scripted one.
//
//   ModelStep step;
//   step.tables.blocks.resize(model.cache().classes.size());
//   step.tables.Append(tokens, count, /*first_position=*/0);  ... and its blocks
//   step.logit_rows = {count - 1};
//   RETURN_IF_ERROR(model.Run(std::move(step), cancel, &results));
#ifndef LM_ENGINE_MODEL_LANGUAGE_MODEL_H_
#define LM_ENGINE_MODEL_LANGUAGE_MODEL_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/sampling.h"
#include "engine/backend/step_tables.h"
#include "engine/model/adapter_set.h"

namespace lm {

// A class of attention layers, whose keys and values share block tables.
struct CacheClass {
  int64_t window = 0;  // tokens that a token sees, itself included; 0: all, class 0 and no other
  int32_t num_blocks = 0;  // of kKvBlockTokens tokens
  int64_t block_bytes = 0;
};

// How much a model remembers.
struct CacheShape {
  std::vector<CacheClass> classes = {};
  // Nothing, for each token sees also those behind it: a sequence is computed in one step, and its
  // blocks are of use until that has ended.
  bool whole_sequences = false;
  int32_t num_states = 0;   // slots of recurrent state
  int64_t state_bytes = 0;  // of a slot; 0: the model has none

  bool recurrent() const { return state_bytes > 0; }
  int64_t bytes() const {
    int64_t sum = num_states * state_bytes;
    for (const CacheClass& c : classes) sum += c.num_blocks * c.block_bytes;
    return sum;
  }
};

// An operation on the cache.
struct CacheOp {
  enum class Kind {
    kCopyBlock,  // at least the first `tokens` tokens of block `from` to block `to`, a new one
    kZeroBlock,  // clears block `to`, before another owner may use it
    kCopyState,  // slot `from` to slot `to`
  };
  Kind kind = Kind::kCopyBlock;
  int32_t cache_class = 0;
  int32_t from = -1;
  int32_t to = 0;
  int32_t tokens = 0;
};

// One step's work, as a value that is complete before anything runs. Of the tables the model adds
// ropes and row lists itself.
struct ModelStep {
  std::vector<CacheOp> cache_ops = {};  // before the tokens are computed, in this order
  StepTables tables = {};
  std::vector<int32_t> logit_rows = {};  // ascending rows whose logits are wanted
  // Rows, ascending, after which the next token is wanted: where that is all, their logits stay
  // where they are computed. A row may be one of logit_rows too. Their views are the caller's, and
  // stay until the step is over.
  std::vector<SamplingRow> samples = {};
  bool margins = false;  // of the samples are wanted
  // Of these rows and those logits are computed of the tokens [64 i, 64 i + 64) for each i with
  // wanted_logits[i] != 0 (a mask of tokens has such words), the others may be anything; empty: of
  // all.
  std::vector<uint64_t> wanted_logits = {};
  // Those that are computed with adapters, ascending.
  std::vector<AdaptedRows> adapted = {};
  // Ascending rows whose hidden states (what the head multiplies: after the output norm) are
  // wanted.
  std::vector<int32_t> hidden_rows = {};
  // Of a model that has_mtp(): the token behind each row (T,), -1 where it is not known, as it is
  // not behind those; empty: of none. The layer of mtp.h then has keys and values of these rows.
  std::vector<int32_t> mtp_next = {};
  // Not empty: a step of that layer alone, of hidden states (T, hidden_size()) and, as the tables'
  // tokens, what came behind each. Its logits and samples are of what comes behind that; its hidden
  // states stand for the model's in another such step. All rows are wanted.
  std::vector<float> mtp_hidden = {};
};

struct StepResults {
  std::vector<float> logits;  // (logit_rows.size(), vocab_size())
  std::vector<float> hidden;  // (hidden_rows.size(), hidden_size())
  // Of each of `samples`: a token, or an error that is this row's own.
  std::vector<absl::StatusOr<int32_t>> tokens;
  // Behind Pick: of each, whether a step that has begun meanwhile has another token in its place.
  std::vector<bool> late = {};
  // Where they are wanted: how sure each is (MarginOf). A model may not tell: then there are none.
  std::vector<float> margins = {};
  // Those of cache_ops that have not been done, where one of them failed, and that first. To begin
  // anew with others would copy from what those have written.
  std::vector<CacheOp> cache_ops_left = {};
};

// One thread at a time, except for the constant getters.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int32_t vocab_size() const = 0;
  virtual int32_t hidden_size() const = 0;
  // The longest sequence, prompt and answer together, in tokens.
  virtual int32_t context_length() const = 0;
  virtual const CacheShape& cache() const = 0;
  // Whether it has a layer that guesses further tokens (mtp.h).
  virtual bool has_mtp() const { return false; }

  // Carries a step out: its cache ops, of which it may have nothing else, then its tokens, whose
  // keys, values and states go to the blocks and slots that its sequences list; and waits for the
  // results. `cancel` is polled within layers too: once it is true, Run returns Cancelled soon; the
  // KV of the step's tokens and the states of its sequences are then undefined, as after an error.
  // Whether results are finite is not looked at: whoever uses a row checks it, so that a bad one
  // fails its own sequence only.
  virtual absl::Status Run(ModelStep step, const std::atomic<bool>& cancel,
                           StepResults* results) = 0;

  // Whether a step may begin before the one before has been awaited, so that a device has always
  // something to do:
  //
  //   model.Begin(first);  model.Pick(its samples);
  //   model.Begin(second);  model.Await(cancel, &results);  // of the first
  //   ... by what came back ...  model.Pick(samples of the second);  ...
  virtual bool queues_steps() const { return false; }

  // Begins a step: its cache ops and its tokens, of which some may be those that the step before
  // picks (StepTables::num_picked). `samples`, ascending, have no more than their rows yet, and
  // nothing else is wanted. After an error what the cache's blocks hold is not known. What an error
  // has left behind of steps before is forgotten by Pick, and by Run.
  // REQUIRES: queues_steps(), and the step before, if it is not over, has been picked of.
  virtual absl::Status Begin(ModelStep /*step*/) {
    return absl::UnimplementedError("steps are not queued");
  }
  // Has tokens picked in the step that has begun, of all of its samples' rows or some, ascending;
  // `wanted_logits` as ModelStep has it. One more step may begin then, before Await.
  virtual absl::Status Pick(std::vector<SamplingRow> /*samples*/,
                            std::vector<uint64_t> /*wanted_logits*/) {
    return absl::UnimplementedError("steps are not queued");
  }

  // Waits for what was picked last, or where there was nothing to pick for the step's tokens.
  // `cancel` as of Run. REQUIRES: Pick has returned OK, and none has been awaited since.
  virtual absl::Status Await(const std::atomic<bool>& /*cancel*/, StepResults* /*results*/) {
    return absl::UnimplementedError("steps are not queued");
  }

  // Lays out, between two steps and for about `time`, weights that have been read for every step so
  // far. Returns whether any are left. An error of reading them is one of the steps, too.
  virtual absl::StatusOr<bool> LayOutMore(absl::Duration /*time*/) { return false; }

  // Lets go, between two steps, of a file that weights are in where somebody waits to change it.
  // Returns whether that is to be asked again, in a few seconds where no step comes before. An
  // error, where they are gone, is one of the steps, too.
  virtual absl::StatusOr<bool> KeepWeights() { return false; }

  // The bytes of a block, of all layers of its class (classes[cache_class].block_bytes of them), or
  // of a slot's state, to be read between two steps and written while nothing else uses it. Empty
  // where they are not in one piece in host memory; then those of no other number are.
  virtual absl::Span<char> BlockMemory(int32_t cache_class, int32_t block) = 0;
  virtual absl::Span<char> StateMemory(int32_t slot) = 0;

  // What the model makes of a text's pooled hidden state (hidden_size(),): its embedding, of as
  // many numbers; with `ranks` the scores of its labels, one or more. Between two steps. REQUIRES:
  // with `ranks`, a model that has a classifier.
  virtual absl::StatusOr<std::vector<float>> ApplyHead(bool ranks,
                                                       absl::Span<const float> pooled) = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_LANGUAGE_MODEL_H_

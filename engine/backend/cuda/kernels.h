// Kernels, each put into a queue by a function of this file. They check nothing: backend.h's
// REQUIRES hold, there is at least one row, and all pointers are the device's.
//
// What they return says whether the kernel can be launched, which is done later, with others
// (launch_recorder.h); faults inside a kernel show in a later call.
#ifndef LM_ENGINE_BACKEND_CUDA_KERNELS_H_
#define LM_ENGINE_BACKEND_CUDA_KERNELS_H_

#include <cstdint>

#include "engine/backend/activation.h"
#include "engine/backend/cuda/attention_tiles.cuh"
#include "engine/backend/cuda/kernel_queue.h"
#include "engine/backend/cuda/packed_input.cuh"
#include "engine/backend/cuda/packed_weights.cuh"
#include "engine/backend/draw_law.h"
#include "engine/backend/expert_slots.h"
#include "engine/backend/window.h"
#include "engine/tensor/dtype.h"

namespace lm::cuda {

// F32 (rows, cols), rows `stride` values apart.
struct Matrix {
  float* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
};

// KvLayer (backend.h), arranged as kv_value.cuh says.
struct KvCacheLayer {
  void* keys;
  void* values;
  DType dtype;  // kF16, kF32 or kI8
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  int64_t block_stride;
};

// StateLayer (backend.h).
struct States {
  float* data;
  int64_t slot_stride;  // values
};

// A sequence of the step: StepSequence (step_tables.h).
struct Sequence {
  int32_t first_row;
  int32_t num_tokens;
  int32_t first_position;
  int32_t first_block;
  int32_t state;
};

// Whose the rows of the step are.
struct StepRows {
  const Sequence* sequences;
  int64_t num_sequences;
  const int32_t* sequence_of_row;
};

// AttentionOptions (backend.h).
struct AttentionScores {
  float scale;
  Window window;
  float softcap;        // 0: none
  const float* slopes;  // one a head, or null
  const float* sinks;   // likewise
};

// Norm (backend.h).
struct NormRow {
  bool centred;  // the mean is taken away first: kLayer
  bool scaled;   // to a mean square of 1: not kNone
  const float* weight;
  const float* bias;  // or null
  int64_t weights;    // m
  int64_t group;
  float eps;
};

// ProductInput (backend.h).
enum class InputKind { kPlain, kNormed, kActivated, kGated };
struct InputRows {
  InputKind kind;
  Matrix x;
  int64_t cols;  // of the input: half of x's where it is gated
  NormRow norm;
  Activation activation;
  // Where each row of x goes among those that are packed, which are so many; or null: where it is.
  const int32_t* places;
  int64_t num_places;
  int64_t cols_per_block;  // PackInput's own
};

// A row that a token is picked of, as SamplingRow (sampling.h) says.
struct SampledRow {
  int32_t row;
  int32_t mask;              // its first word in the masks; -1: all tokens are allowed
  int32_t first_adjustment;  // in the adjustments, where they are in ascending order
  int32_t num_adjustments;
  double repeat_penalty;
  // Of rows that are drawn:
  double inverse_temperature;
  double top_p;
  uint64_t least_weight;  // for min_p
  uint64_t random;
  int64_t top_k;
};
struct PickedToken {
  int32_t token;
  float margin;
};

// DeltaRuleInputs (backend.h).
struct DeltaRows {
  Matrix q, k, v, alpha, beta;
  const float* dt_bias;
  const float* a;
  int64_t heads;
  int64_t key_heads;
  bool grouped;
  bool reads;         // StateRule::kDelta
  bool a_of_keys;     // a has a value for each key
  const float* skip;  // or null
  Matrix log_decay;   // or no data
  Matrix erase;       // StateRule::kErase, or no data
};

// RowLayer (backend.h), and the step's block tables of its class.
struct RowCache {
  float* data;
  int64_t dim;
  int64_t every;
  int64_t block_stride;  // values
  const int32_t* blocks;
};

// PoolInputs (backend.h).
struct PooledRows {
  Matrix values, scores, places;
  int64_t every;
  bool overlaps;
};

// RowAttention (backend.h).
struct RowScores {
  RowCache near, far;  // far may have no data
  Window window;
  const int32_t* chosen;  // rows `chosen_stride` values apart, or null: all
  int64_t chosen_stride;
  int64_t most_chosen;
  float scale;
  const float* sinks;  // one a head, or null
};

// Router (expert_routes.h).
struct RouterRule {
  RouterGate gate;
  int32_t experts;
  int32_t chosen;
  int32_t groups;
  int32_t chosen_groups;
  bool normalised;
  float scale;
  const float* bias;     // of each expert, or null
  const float* scales;   // likewise
  const int32_t* given;  // (rows, chosen), or null
};

// ExpertRoutes (expert_routes.h).
struct SlotTables {
  int64_t num_rows;
  int32_t experts;
  int32_t chosen;
  int32_t* begin;
  int32_t* rows;
  int32_t* slots;
  float* weights;
  SlotGroup* groups;
  int64_t num_groups;
  int32_t group_slots;
  int32_t* places;
};

// What a product takes of an expert.
struct ExpertMatrix {
  const char* data;
  const float* row_scales;  // or null
  const float* bias;        // or null
};

// A product of each group of slots with its expert's matrix.
struct ExpertProducts {
  const ExpertMatrix* matrices;
  const SlotGroup* groups;
  int64_t num_groups;
  int32_t group_slots;
  int64_t num_rows;  // that are routed
};
// Slots that a group may have, which are tokens that kernels of products make at a time.
inline constexpr int32_t kGroupSlots[] = {8, 32, 64};

// The address of one: they are all compiled for the same GPUs.
const void* SomeKernel();

// out[t] = scale * W[ids[t]]; of an id below 0, ~i, of picked[i], which may be -1: then of any row.
// F32 is not packed: w.data is W.
cudaError_t Embed(const Queue& queue, DType dtype, const PackedWeights& w, const int32_t* ids,
                  const PickedToken* picked, float scale, Matrix out);
cudaError_t Normalize(const Queue& queue, Matrix x, const NormRow& norm, Matrix out);
// `up` may have no data.
cudaError_t GatedActivation(const Queue& queue, Activation activation, Matrix gate, Matrix up,
                            Matrix out);
cudaError_t Add(const Queue& queue, Matrix x, Matrix y, float scale);
cudaError_t ScaleAndCap(const Queue& queue, Matrix x, float scale, float cap);
cudaError_t Clamp(const Queue& queue, Matrix x, float low, float high);
cudaError_t ScaleGroups(const Queue& queue, Matrix x, Matrix factors, Activation activation);
cudaError_t Dot(const Queue& queue, Matrix x, Matrix y, Matrix out);
cudaError_t MixStreams(const Queue& queue, Matrix x, Matrix weights, int64_t streams, bool adds,
                       Matrix out);
cudaError_t BalanceStreams(const Queue& queue, Matrix x, int64_t streams, int32_t iterations,
                           float eps, Matrix out);
cudaError_t RotateTails(const Queue& queue, Matrix x, int64_t head_dim, Matrix rope, bool halves);
cudaError_t PoolRows(const Queue& queue, const PooledRows& inputs, const StepRows& step,
                     const States& states, Matrix out);
cudaError_t StoreRows(const Queue& queue, Matrix x, const StepRows& step, const int64_t* slots,
                      const RowCache& layer);
cudaError_t ScoreRows(const Queue& queue, Matrix q, Matrix weights, const StepRows& step,
                      const RowCache& layer, Matrix out);
cudaError_t AttendRows(const Queue& queue, Matrix q, const StepRows& step, const RowScores& scores,
                       Matrix out);
// Routes the rows of logits.
cudaError_t Route(const Queue& queue, Matrix logits, const RouterRule& router,
                  const SlotTables& slots);
// out[slot] = the slot's weight, which is 1 from then on.
cudaError_t MoveWeights(const Queue& queue, const SlotTables& slots, Matrix out);
cudaError_t CombineSlots(const Queue& queue, Matrix y, const SlotTables& slots, Matrix out);
cudaError_t GatherRows(const Queue& queue, Matrix x, const int32_t* rows, Matrix out);
// `from` may lie in the memory of another device.
cudaError_t CopyMatrix(const Queue& queue, Matrix from, Matrix to);
// rope (T, rope_dim): nothing turns where it has no columns. Without rows of k only q turns.
cudaError_t RopeAndStoreKv(const Queue& queue, Matrix q, Matrix k, Matrix v, Matrix rope,
                           bool halves, const int64_t* slots, const KvCacheLayer& layer);
cudaError_t Attention(const Queue& queue, Matrix q, const StepRows& step, const int32_t* blocks,
                      const KvCacheLayer& layer, const AttentionScores& scores, Matrix out);
// The same on tensor cores: F16 or int8, dims that are multiples of 16 and at most kMostTileDim.
// `partials` has room for AttentionPartialBytes. There are at most `most_tiles`; `merges`: some have
// partial results.
int64_t AttentionPartialBytes(int64_t num_partials, const KvCacheLayer& layer);
cudaError_t AttendTiles(const Queue& queue, Matrix q, const StepRows& step,
                        const AttentionTiles& tiles, int64_t most_tiles, bool merges,
                        const int32_t* blocks, const KvCacheLayer& layer,
                        const AttentionScores& scores, float* partials, Matrix out);
// picked[i] = the token of row rows[i].row, as SampleToken picks it, and by how much its logit is
// above the next, where it is the greatest, else 0; the token is -1 where a logit that is looked at
// is not finite, or where more than kMostListed tokens (sampled_row.cuh) would have to be put in
// order to find the last one that is kept: the host finds it. The rows that are drawn are the first
// `num_drawn`. At most kMostSampledTokens columns. `scratch` has room for SampleBytes.
inline constexpr int kMostSampledTokens = 1 << 20;
int64_t SampleBytes(int64_t num_drawn, int64_t count, int64_t cols);
cudaError_t SampleRows(const Queue& queue, Matrix logits, const SampledRow* rows, int64_t num_drawn,
                       int64_t count, const uint64_t* masks, const LogitAdjustment* adjustments,
                       void* scratch, PickedToken* picked);
cudaError_t CausalConv(const Queue& queue, Matrix x, Matrix weight, const float* bias,
                       Activation activation, const StepRows& step, const States& states,
                       Matrix out);
cudaError_t DeltaRule(const Queue& queue, const DeltaRows& inputs, const StepRows& step,
                      const States& states, Matrix out);

// Products. Quantised, F16 and BF16 weights are packed (packed_weights.cuh), 16 rows or a multiple
// at a time but for the last ones, from blocks as WriteBlocksOnDevice gives them (loaded_blocks.h);
// their input is packed likewise (packed_input.cuh), to PackedInputBytes bytes at `to`.
PackedShape ShapeOfPacked(DType dtype, int64_t rows, int64_t cols);
cudaError_t PackWeights(const Queue& queue, DType dtype, const PackedWeights& w, const void* raw,
                        int64_t first_row, int64_t num_rows);
int64_t PackedInputBytes(DType dtype, int64_t tokens, int64_t cols);
cudaError_t PackInput(const Queue& queue, DType dtype, InputRows input, void* to,
                      PackedInput* packed);
// Whether each thread block of the product packs the input for itself, which then is not packed
// before: of one token, or of one that is routed.
bool PacksOwnInput(DType dtype, const InputRows& input, const Matrix& out,
                   const ExpertProducts* experts);
// out = s W x^T + bias, or that is added to it. `bias` may be null, here and below. With `experts`
// (or null) each group of slots is multiplied with its expert's matrix: all are as `w`, whose own
// data, row scales and bias are not looked at, and x is packed by their places. Without data x is
// what PacksOwnInput says of `input`, which else is not looked at.
cudaError_t MultiplyPacked(const Queue& queue, DType dtype, const PackedWeights& w,
                           const PackedInput& x, const InputRows& input, const float* bias,
                           bool adds, Matrix out, const ExpertProducts* experts);
// Of F32 weights, w.data being W.
cudaError_t MultiplyFloat(const Queue& queue, const PackedWeights& w, Matrix x, const float* bias,
                          bool adds, Matrix out, const ExpertProducts* experts = nullptr);

}  // namespace lm::cuda

#endif  // LM_ENGINE_BACKEND_CUDA_KERNELS_H_

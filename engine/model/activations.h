// Activations: the matrices that a step computes in on one backend, one row a token, in F32. They
// are grown when a step needs more rows.
#ifndef LM_ENGINE_MODEL_ACTIVATIONS_H_
#define LM_ENGINE_MODEL_ACTIVATIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/backend/backend.h"
#include "engine/model/model_spec.h"

namespace lm {

struct Activations {
  Buffer buffer;
  int64_t capacity = 0;  // rows
  Tensor x;              // (T, hidden)             the residual stream
  // Each of these three is as wide as the widest layer's; a layer uses its first columns.
  Tensor mixer_input;  // (T, MixerInputCols)
  Tensor mixed;        // (T, MixerOutputCols, or what a recurrent layer convolves)
  // (T, hidden) what is added to x beside the mixer, or x before it, where that is added once more.
  Tensor beside;
  Tensor gate_up;         // (T, what a feed-forward's first product gives)
  Tensor gathered;        // (T, max(hidden, mixed))  rows whose results are wanted
  Tensor hidden;          // (T, hidden)              the output norm of these; what is to be normed
  Tensor joined;          // (T, 2 * hidden)          what the layer of mtp.h is made of
  Tensor temperature;     // (T, 1)
  Tensor selective;       // (T, what steps, B and C of a selective state space are made of)
  Tensor per_layer;       // (T, layers * per_layer_input)  the tokens' embedding for each layer
  Tensor per_layer_read;  // likewise, as the file has it
  Tensor per_layer_gate;  // (T, per_layer_input)
  // Of several residual streams: themselves, a layer's guesses at them (T, streams * hidden), what
  // is made of those (T, streams), and the numbers that mix them (T, streams * streams).
  Tensor streams, predicted, stream_router, stream_numbers;
  Tensor laurel;      // (T, laurel_rank)
  Tensor sparse;      // (T, width)  of a feed-forward whose gate is cut
  Tensor row_factor;  // (T, 1)
  Tensor rwkv;        // (T, what RWKV's mixing is made of)
  Tensor rwkv_first;  // (T, hidden)  the first layer's values
  // Of latent attention: q', q, k, and what attention gives.
  Tensor latent_q, latent_query, latent_key, latent_out;
  // Of compressed attention: q and what attention gives (T, heads * key_dim), what is pooled, q'
  // and what is pooled of the index, and what that chooses, I32; the index's scores, as many as
  // needed.
  Tensor compressed_q, compressed_out, pooled, index_q, index_pooled, index_chosen;
  Buffer index_scores;
  // Of mixtures of experts.
  Tensor normed, shared;  // (T, hidden)
  Tensor router;          // (T, experts + 1)
  Tensor slots;           // (T, chosen * hidden)  of each slot its row, then its result
  Tensor slot_gate_up;    // (T, chosen * what an expert's first product gives)
  Tensor slot_factors;    // (T, chosen)  of each slot, what its row is multiplied by
  Tensor low_rank;        // (T, most ranks)  of adapters: A x
  ExpertRoutes routes;    // of the layer that runs

  // Makes room for a step of so many tokens, and adapters of so many ranks; what is in them is lost
  // where they grow.
  absl::Status Reserve(const ModelSpec& spec, int64_t ranks, int64_t tokens, Backend* backend);
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_ACTIVATIONS_H_

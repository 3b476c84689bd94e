// Multi-token prediction ("MTP", "NextN": DeepSeek-AI 2024, arXiv 2412.19437): a layer behind a
// model's own that guesses what comes behind the next token, so that a step can check it.
//
// Of the hidden state h_p that the model has of position p (what its head multiplies), and of the
// token t_{p+1} that came next, it computes, as any layer over the keys and values that it has of
// the positions before,
//   x = W_join [norm(embedding[t_{p+1}]), norm(h_p)];  x = layer(x)
//   h = norm(x),  logits of t_{p+2} = W_head h
// and once more, with that h and the token guessed, of the one behind. Position p's keys and values
// lie where those of the other layers do, so that a prefix that is shared has them, too. Where the
// next token is not the one that they were made with (a prefix goes on in two ways), they are a
// little off, and a guess is a little worse: it decides nothing but how soon an answer is there. A
// step that decodes without a guess stores none, so that a text written while nothing was guessed
// has gaps in what the layer sees.
//
// In a file it is block number block_count - nextn_predict_layers; of several the first is used.
#ifndef LM_ENGINE_MODEL_MTP_H_
#define LM_ENGINE_MODEL_MTP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/step_tables.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/layer_run.h"
#include "engine/model/model_spec.h"
#include "engine/model/weight_loader.h"
#include "engine/model/weights.h"

namespace lm {

// Describes it, where the file has one (its head may be another file's): as the last of the model's
// own layers with attention.
void AddMtp(const GgufFile& gguf, ModelSpec* spec);

// What it has beside a layer's weights. InvalidArgument, naming the tensor. REQUIRES: spec.has_mtp.
absl::StatusOr<MtpWeights> LoadMtp(const ModelSpec& spec, WeightLoader* loader);

// x = W_join [norm(embedding), norm(hidden)] of the run's rows, whose tokens are those of the step
// that has begun. hidden (rows, hidden) is not act.x.
absl::Status JoinMtp(const LayerRun& run, const Weights& weights, Tensor hidden);

// The rows of a step that have a next token (next[row] >= 0), sequence by sequence the first ones,
// as tables of those tokens at the rows' positions, without ropes; its only row list, kMtpRows, has
// the rows' places among `kept`, which has all of them. States are none's.
constexpr int32_t kMtpRows = 0;
StepTables MtpTables(const StepTables& step, absl::Span<const int32_t> next,
                     absl::Span<const int32_t> kept);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MTP_H_

// ModelConfig: the shape of a model, read from a GGUF's metadata and checked.
//
// Families: "llama" (Llama 2/3.x, SmolLM2, TinyLlama, Mistral) and "qwen2" (Qwen2, Qwen2.5).
#ifndef LM_ENGINE_MODEL_MODEL_CONFIG_H_
#define LM_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/backend/backend.h"
#include "engine/gguf/gguf_file.h"

namespace lm {

struct ModelConfig {
  std::string architecture;
  int64_t layers = 0;
  int64_t hidden = 0;    // embedding_length
  int64_t ffn = 0;       // feed_forward_length
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;
  int64_t vocab = 0;
  int64_t context_length = 0;
  float rms_eps = 0;

  int64_t rope_dim = 0;  // leading values of a head that rotate; even, <= head_dim
  double rope_base = 0;
  double rope_scale = 1;  // positions are divided by it ("linear" scaling)
  RopePairing rope_pairing = RopePairing::kAdjacent;

  int64_t q_cols() const { return heads * head_dim; }
  int64_t kv_cols() const { return kv_heads * head_dim; }
};

// Unimplemented for an architecture (or a variant of one: experts, other rope scaling, any key of its
// own that asks for more than is computed) that is not known, naming it; InvalidArgument, naming the
// key and the numbers, for a shape that cannot be.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& gguf);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_CONFIG_H_

#include "engine/model/model_config.h"

#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/backend/backend.h"
#include "engine/base/status_macros.h"
#include "engine/model/other_keys.h"

namespace lm {
namespace {

// Wider than any real model; small enough that products of two of them fit in 64 bits.
constexpr int64_t kMaxDim = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;

// Reads the keys of one architecture: Int("block_count") is "<arch>.block_count". Takes note of every
// key that is asked for.
class KeyReader {
 public:
  KeyReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  std::string Key(absl::string_view name) const { return absl::StrCat(architecture_, ".", name); }
  bool Has(absl::string_view name) { return metadata_.Has(Asked(name)); }

  absl::StatusOr<std::string> String(absl::string_view name) {
    return metadata_.GetString(Asked(name));
  }

  absl::StatusOr<int64_t> Int(absl::string_view name, int64_t low, int64_t high) {
    ASSIGN_OR_RETURN(int64_t value, metadata_.GetInt(Asked(name)));
    if (value < low || value > high) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Key(name), "' must be ", low, " to ", high, ", got ", value));
    }
    return value;
  }

  absl::StatusOr<int64_t> IntOr(absl::string_view name, int64_t low, int64_t high,
                                int64_t otherwise) {
    if (!Has(name)) return otherwise;
    return Int(name, low, high);
  }

  // A finite number > 0.
  absl::StatusOr<double> Positive(absl::string_view name) {
    ASSIGN_OR_RETURN(double value, metadata_.GetFloat(Asked(name)));
    if (!std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Key(name), "' must be a finite number > 0, got ", value));
    }
    return value;
  }

  absl::StatusOr<double> PositiveOr(absl::string_view name, double otherwise) {
    if (!Has(name)) return otherwise;
    return Positive(name);
  }

  absl::StatusOr<double> NotNegativeOr(absl::string_view name, double otherwise) {
    if (!Has(name)) return otherwise;
    ASSIGN_OR_RETURN(double value, metadata_.GetFloat(Asked(name)));
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Key(name), "' must be a finite number >= 0, got ", value));
    }
    return value;
  }

  // An error for a key of the architecture that was not asked for and matters.
  absl::Status CheckTheOthers() const { return CheckOtherKeys(metadata_, architecture_, asked_); }

 private:
  std::string Asked(absl::string_view name) {
    std::string key = Key(name);
    asked_.insert(key);
    return key;
  }

  const Metadata& metadata_;
  const std::string architecture_;
  absl::flat_hash_set<std::string> asked_;
};

absl::Status ReadAttention(KeyReader& keys, ModelConfig* config) {
  ASSIGN_OR_RETURN(config->heads, keys.Int("attention.head_count", 1, kMaxDim));
  ASSIGN_OR_RETURN(config->kv_heads,
                   keys.IntOr("attention.head_count_kv", 1, kMaxDim, config->heads));
  if (config->heads % config->kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", keys.Key("attention.head_count_kv"), "' = ", config->kv_heads, " does not divide '",
        keys.Key("attention.head_count"), "' = ", config->heads));
  }
  if (!keys.Has("attention.key_length") && config->hidden % config->heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("attention.head_count"), "' = ", config->heads,
                     " does not divide '", keys.Key("embedding_length"), "' = ", config->hidden));
  }
  ASSIGN_OR_RETURN(config->head_dim,
                   keys.IntOr("attention.key_length", 1, kMaxDim, config->hidden / config->heads));
  ASSIGN_OR_RETURN(int64_t value_length,
                   keys.IntOr("attention.value_length", 1, kMaxDim, config->head_dim));
  if (value_length != config->head_dim) {
    return absl::UnimplementedError(absl::StrCat(
        "'", keys.Key("attention.value_length"), "' = ", value_length,
        " differs from the key length ", config->head_dim, "; such attention is not supported"));
  }
  if (config->head_dim < 1 || config->head_dim > kMaxHeadDim || config->head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the head size must be even and 2 to ", kMaxHeadDim, ", got ", config->head_dim));
  }
  // A window that no context outgrows hides nothing; 0 is none.
  ASSIGN_OR_RETURN(int64_t window, keys.IntOr("attention.sliding_window", 0, int64_t{1} << 40, 0));
  if (window > 0 && window < config->context_length) {
    return absl::UnimplementedError(absl::StrCat(
        "'", keys.Key("attention.sliding_window"), "' = ", window, ", and the context has ",
        config->context_length, " tokens; attention to a window is not supported"));
  }
  return absl::OkStatus();
}

absl::Status ReadRope(KeyReader& keys, ModelConfig* config) {
  ASSIGN_OR_RETURN(config->rope_dim,
                   keys.IntOr("rope.dimension_count", 2, config->head_dim, config->head_dim));
  if (config->rope_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("rope.dimension_count"),
                                                   "' must be even, got ", config->rope_dim));
  }
  ASSIGN_OR_RETURN(config->rope_base, keys.PositiveOr("rope.freq_base", 10000));
  // As llama.cpp reads them: without a type a factor is linear, and 0 is no factor; "scale_linear" is
  // what converters wrote before.
  std::string scaling = "linear";
  if (keys.Has("rope.scaling.type")) {
    ASSIGN_OR_RETURN(scaling, keys.String("rope.scaling.type"));
  }
  if (scaling != "linear" && scaling != "none") {
    return absl::UnimplementedError(absl::StrCat("'", keys.Key("rope.scaling.type"), "' = '",
                                                 absl::CHexEscape(scaling.substr(0, 64)),
                                                 "' is not supported (none and linear are)"));
  }
  ASSIGN_OR_RETURN(const double old_factor, keys.NotNegativeOr("rope.scale_linear", 0));
  ASSIGN_OR_RETURN(const double factor, keys.NotNegativeOr("rope.scaling.factor", old_factor));
  if (scaling == "linear" && factor > 0) config->rope_scale = factor;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& gguf) {
  const Metadata& metadata = gguf.metadata();
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, metadata.GetString("general.architecture"));
  if (config.architecture == "llama") {
    config.rope_pairing = RopePairing::kAdjacent;
  } else if (config.architecture == "qwen2") {
    config.rope_pairing = RopePairing::kHalves;
  } else {
    return absl::UnimplementedError(
        absl::StrCat("model architecture '", absl::CHexEscape(config.architecture.substr(0, 64)),
                     "' is not supported (llama and qwen2 are)"));
  }
  KeyReader keys(metadata, config.architecture);
  ASSIGN_OR_RETURN(int64_t experts, keys.IntOr("expert_count", 0, kMaxDim, 0));
  if (experts > 0) {
    return absl::UnimplementedError(absl::StrCat("'", keys.Key("expert_count"), "' = ", experts,
                                                 ": mixtures of experts are not supported"));
  }
  ASSIGN_OR_RETURN(config.layers, keys.Int("block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.hidden, keys.Int("embedding_length", 1, kMaxDim));
  ASSIGN_OR_RETURN(config.ffn, keys.Int("feed_forward_length", 1, kMaxDim));
  ASSIGN_OR_RETURN(config.context_length, keys.Int("context_length", 1, int64_t{1} << 30));
  ASSIGN_OR_RETURN(double eps, keys.Positive("attention.layer_norm_rms_epsilon"));
  config.rms_eps = static_cast<float>(eps);
  RETURN_IF_ERROR(ReadAttention(keys, &config));
  RETURN_IF_ERROR(ReadRope(keys, &config));
  if (config.q_cols() > kMaxDim) {
    return absl::InvalidArgumentError(absl::StrCat("heads x head size = ", config.heads, " x ",
                                                   config.head_dim, " is more than ", kMaxDim));
  }

  ASSIGN_OR_RETURN(absl::Span<const std::string> tokens,
                   metadata.GetStrings("tokenizer.ggml.tokens"));
  config.vocab = static_cast<int64_t>(tokens.size());
  ASSIGN_OR_RETURN(int64_t declared, keys.IntOr("vocab_size", 1, kMaxDim, config.vocab));
  if (declared != config.vocab) {
    return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("vocab_size"), "' = ", declared,
                                                   " but the vocabulary has ", config.vocab,
                                                   " tokens"));
  }
  RETURN_IF_ERROR(keys.CheckTheOthers());
  return config;
}

}  // namespace lm

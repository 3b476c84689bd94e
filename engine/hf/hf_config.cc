#include "engine/hf/hf_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

// More than any backend computes with; bounds what is made for each pair of a head.
constexpr int64_t kMostHeadDim = 4096;

constexpr HfName kDecoderNames[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

// As kDecoderNames, but for these.
constexpr HfName kGemma3Names[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

constexpr HfName kBertNames[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"},
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
};

// Those and, of a model that ranks texts, its head.
constexpr HfName kRankingNames[] = {
    {"pooler.dense", "cls"},       // BERT's
    {"classifier", "cls.output"},  // BERT's
    {"classifier.dense", "cls"},   // XLM-RoBERTa's
    {"classifier.out_proj", "cls.output"},
};

constexpr HfFamily kFamilies[] = {
    {"bert", "bert", kBertNames, false, false},
    {"gemma3", "gemma3", kGemma3Names, false, true},  // with images; of it the text's part
    {"gemma3_text", "gemma3", kGemma3Names, false, true},
    {"llama", "llama", {}, true, false},
    {"mistral", "llama", {}, true, false},
    {"phi3", "phi3", {}, false, false},
    {"qwen2", "qwen2", {}, false, false},
    {"qwen3", "qwen3", {}, false, false},
    {"xlm-roberta", "bert", kBertNames, false, false},
};

// What transformers' configurations have where config.json is silent.
struct Defaults {
  std::optional<int64_t> heads, kv_heads, head_dim, context, vocab;
  double eps = 1e-6;
  double rope_base = 10000;
  bool tied = false;
};

// Adds "<architecture>.<name>".
class Keys {
 public:
  Keys(absl::string_view architecture, Metadata* metadata)
      : prefix_(absl::StrCat(architecture, ".")), metadata_(*metadata) {}

  void Count(absl::string_view name, int64_t value) {
    Put(name, static_cast<uint64_t>(std::max<int64_t>(value, 0)));
  }
  void Put(absl::string_view name, MetadataValue value) {
    metadata_.Insert(absl::StrCat(prefix_, name), std::move(value));
  }

 private:
  const std::string prefix_;
  Metadata& metadata_;
};

absl::Status WantActivation(const HfObject& config, absl::string_view name,
                            absl::string_view wanted) {
  ASSIGN_OR_RETURN(const std::string found, config.Text(name, std::string(wanted)));
  return found == wanted ? absl::OkStatus() : config.Unsupported(name);
}

// Llama 3.1's: pairs that turn slowly within the original context turn `factor` times slower, and
// those between two limits in between.
absl::StatusOr<std::vector<float>> Llama3Factors(const HfObject& rope, double base, int64_t dim) {
  ASSIGN_OR_RETURN(const double factor, rope.Number("factor"));
  ASSIGN_OR_RETURN(const double low, rope.Number("low_freq_factor", 1));
  ASSIGN_OR_RETURN(const double high, rope.Number("high_freq_factor", 4));
  ASSIGN_OR_RETURN(const double original, rope.Number("original_max_position_embeddings"));
  if (!(factor > 0) || !(high > low)) return rope.Error("factor", "one > 0, and low < high");
  std::vector<float> factors;
  for (int64_t i = 0; i < dim; i += 2) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(dim));
    const double turns = original * frequency / (2 * M_PI);  // within the original context
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

// LongRoPE, as Phi-3 has it.
absl::Status AddLongRope(const HfObject& config, const HfObject& rope, int64_t context, int64_t dim,
                         Keys* keys, HfModel* model) {
  ASSIGN_OR_RETURN(const int64_t nested, rope.Int("original_max_position_embeddings", context));
  ASSIGN_OR_RETURN(const int64_t original, config.Int("original_max_position_embeddings", nested));
  if (original < 2) return config.Error("original_max_position_embeddings", "2 or more");
  const double scale = static_cast<double>(context) / static_cast<double>(original);
  const double grown =
      scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original))) : 1;
  ASSIGN_OR_RETURN(const double factor, rope.Number("attention_factor", grown));
  keys->Count("rope.scaling.original_context_length", original);
  keys->Put("rope.scaling.attn_factor", factor);
  for (const char* which : {"long", "short"}) {
    ASSIGN_OR_RETURN(std::vector<float> factors,
                     rope.Floats(absl::StrCat(which, "_factor"), dim / 2));
    model->vectors.emplace_back(absl::StrCat("rope_factors_", which, ".weight"),
                                std::move(factors));
  }
  return absl::OkStatus();
}

absl::Status AddYarn(const HfObject& rope, int64_t context, Keys* keys) {
  for (const char* name : {"mscale", "mscale_all_dim"}) {
    if (rope.Has(name)) return rope.Unsupported(name);
  }
  ASSIGN_OR_RETURN(const bool truncated, rope.Bool("truncate", true));
  if (!truncated) return rope.Unsupported("truncate");
  ASSIGN_OR_RETURN(const double factor, rope.Number("factor"));
  ASSIGN_OR_RETURN(const int64_t original, rope.Int("original_max_position_embeddings", context));
  keys->Put("rope.scaling.type", std::string("yarn"));
  keys->Put("rope.scaling.factor", factor);
  keys->Count("rope.scaling.original_context_length", original);
  for (const auto& [from, to] : {std::pair("beta_fast", "rope.scaling.yarn_beta_fast"),
                                 std::pair("beta_slow", "rope.scaling.yarn_beta_slow")}) {
    if (!rope.Has(from)) continue;
    ASSIGN_OR_RETURN(const double beta, rope.Number(from));
    keys->Put(to, beta);
  }
  if (!rope.Has("attention_factor")) return absl::OkStatus();
  // GGUF's multiplies the growth that YaRN has by itself.
  ASSIGN_OR_RETURN(const double attention, rope.Number("attention_factor"));
  keys->Put("rope.scaling.attn_factor", attention / (factor > 1 ? 0.1 * std::log(factor) + 1 : 1));
  return absl::OkStatus();
}

// `rope` is what the file calls rope_scaling or rope_parameters; it may be absent.
absl::Status AddRope(const HfObject& config, const Json* given, int64_t context,
                     double default_base, Keys* keys, HfModel* model) {
  static const Json& kNone = *new Json(Json::MakeObject());  // never destroyed
  const HfObject rope(given == nullptr ? kNone : *given, absl::StrCat(config.where(), ": rope"));
  ASSIGN_OR_RETURN(const double outer, config.Number("rope_theta", default_base));
  ASSIGN_OR_RETURN(const double base, rope.Number("rope_theta", outer));
  ASSIGN_OR_RETURN(const double outer_part, config.Number("partial_rotary_factor", 1));
  ASSIGN_OR_RETURN(const double part, rope.Number("partial_rotary_factor", outer_part));
  const bool in_range = part > 0 && part <= 1;
  const int64_t dim =
      in_range ? static_cast<int64_t>(static_cast<double>(model->head_dim) * part) : 0;
  if (dim < 2) return config.Error("partial_rotary_factor", "a number > 0 and up to 1");
  keys->Put("rope.freq_base", base);
  keys->Count("rope.dimension_count", dim);
  ASSIGN_OR_RETURN(const std::string old_type, rope.Text("type", "default"));
  ASSIGN_OR_RETURN(const std::string type, rope.Text("rope_type", old_type));
  if (type == "default") return absl::OkStatus();
  if (type == "yarn") return AddYarn(rope, context, keys);
  if (type == "linear") {
    ASSIGN_OR_RETURN(const double factor, rope.Number("factor"));
    keys->Put("rope.scaling.type", std::string("linear"));
    keys->Put("rope.scaling.factor", factor);
    return absl::OkStatus();
  }
  if (type == "llama3") {
    ASSIGN_OR_RETURN(std::vector<float> factors, Llama3Factors(rope, base, dim));
    model->vectors.emplace_back("rope_freqs.weight", std::move(factors));
    return absl::OkStatus();
  }
  const bool longrope = type == "longrope" || type == "su";
  if (longrope && model->family->architecture == "phi3") {
    return AddLongRope(config, rope, context, dim, keys, model);
  }
  return rope.Unsupported(rope.Has("rope_type") ? "rope_type" : "type");
}

absl::StatusOr<int64_t> AddSizes(const HfObject& config, const Defaults& defaults, Keys* keys,
                                 HfModel* model) {
  ASSIGN_OR_RETURN(const int64_t hidden, config.Int("hidden_size"));
  ASSIGN_OR_RETURN(model->layers, config.Int("num_hidden_layers"));
  ASSIGN_OR_RETURN(const int64_t heads, config.Int("num_attention_heads", defaults.heads));
  ASSIGN_OR_RETURN(const int64_t ffn, config.Int("intermediate_size"));
  ASSIGN_OR_RETURN(const int64_t context, config.Int("max_position_embeddings", defaults.context));
  ASSIGN_OR_RETURN(model->vocab, config.Int("vocab_size", defaults.vocab));
  if (heads < 1) return config.Error("num_attention_heads", "1 or more");
  if (model->vocab < 1) return config.Error("vocab_size", "1 or more");
  ASSIGN_OR_RETURN(model->head_dim,
                   config.Int("head_dim", defaults.head_dim.value_or(hidden / heads)));
  if (model->head_dim < 2 || model->head_dim % 2 != 0 || model->head_dim > kMostHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(config.where(),
                                                   ": heads of an even size from 2 to ",
                                                   kMostHeadDim, " wanted, got ", model->head_dim));
  }
  keys->Count("block_count", model->layers);
  keys->Count("embedding_length", hidden);
  keys->Count("feed_forward_length", ffn);
  keys->Count("attention.head_count", heads);
  keys->Count("vocab_size", model->vocab);
  return context;
}

absl::Status AddDecoder(const HfObject& config, const Defaults& defaults, const Json* rope,
                        Keys* keys, HfModel* model) {
  ASSIGN_OR_RETURN(const int64_t context, AddSizes(config, defaults, keys, model));
  keys->Count("context_length", context);
  ASSIGN_OR_RETURN(const int64_t heads, config.Int("num_attention_heads", defaults.heads));
  ASSIGN_OR_RETURN(const int64_t kv_heads,
                   config.Int("num_key_value_heads", defaults.kv_heads.value_or(heads)));
  ASSIGN_OR_RETURN(const double eps, config.Number("rms_norm_eps", defaults.eps));
  ASSIGN_OR_RETURN(model->tied, config.Bool("tie_word_embeddings", defaults.tied));
  keys->Count("attention.head_count_kv", kv_heads);
  keys->Count("attention.key_length", model->head_dim);
  keys->Count("attention.value_length", model->head_dim);
  keys->Put("attention.layer_norm_rms_epsilon", eps);
  return AddRope(config, rope, context, defaults.rope_base, keys, model);
}

absl::StatusOr<const Json*> RopeOf(const HfObject& config) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* const rope = config.Find(name);
    if (rope == nullptr) continue;
    if (!rope->is_object()) return config.Error(name, "an object");
    return rope;
  }
  return nullptr;
}

// Llama, Mistral, Qwen2, Qwen3, Phi-3.
absl::Status AddPlainDecoder(const HfObject& config, Keys* keys, HfModel* model) {
  RETURN_IF_ERROR(WantActivation(config, "hidden_act", "silu"));
  Defaults defaults;
  if (model->family->model_type == "mistral") defaults.kv_heads = 8;
  ASSIGN_OR_RETURN(const Json* const rope, RopeOf(config));
  RETURN_IF_ERROR(AddDecoder(config, defaults, rope, keys, model));
  if (model->family->model_type == "llama") return absl::OkStatus();  // whatever it says, no window
  // Qwen's configurations have a window that they do not use.
  const bool has_switch =
      model->family->architecture == "qwen2" || model->family->architecture == "qwen3";
  ASSIGN_OR_RETURN(const bool windowed, config.Bool("use_sliding_window", !has_switch));
  if (windowed && config.Has("sliding_window")) {
    ASSIGN_OR_RETURN(const int64_t window, config.Int("sliding_window"));
    keys->Count("attention.sliding_window", window);
  }
  return absl::OkStatus();
}

absl::Status AddGemma3(const HfObject& config, Keys* keys, HfModel* model) {
  RETURN_IF_ERROR(WantActivation(config, "hidden_activation", "gelu_pytorch_tanh"));
  // EmbeddingGemma's: another architecture.
  const Json* const both_ways = config.Find("use_bidirectional_attention");
  if (both_ways != nullptr && *both_ways != Json(false)) {
    return config.Unsupported("use_bidirectional_attention");
  }
  const Defaults defaults{.heads = 8,
                          .kv_heads = 4,
                          .head_dim = 256,
                          .context = 131072,
                          .vocab = 262208,
                          .rope_base = 1e6,
                          .tied = true};
  ASSIGN_OR_RETURN(const Json* rope, RopeOf(config));
  ASSIGN_OR_RETURN(double local_base, config.Number("rope_local_base_freq", 10000));
  if (rope != nullptr && rope->Has("full_attention")) {  // transformers 5
    if (const Json* local = rope->Find("sliding_attention")) {
      ASSIGN_OR_RETURN(local_base,
                       HfObject(*local, config.where()).Number("rope_theta", local_base));
    }
    rope = rope->Find("full_attention");
  }
  RETURN_IF_ERROR(AddDecoder(config, defaults, rope, keys, model));
  keys->Put("rope.freq_base_swa", local_base);
  ASSIGN_OR_RETURN(const int64_t window, config.Int("sliding_window", 4096));
  ASSIGN_OR_RETURN(const int64_t old_period, config.Int("_sliding_window_pattern", 6));
  ASSIGN_OR_RETURN(const int64_t period, config.Int("sliding_window_pattern", old_period));
  keys->Count("attention.sliding_window", window);
  if (const Json* types = config.Find("layer_types")) {
    std::vector<bool> windowed;
    for (size_t i = 0; types->is_array() && i < types->size(); ++i) {
      const Json& type = types->array()[i];
      windowed.push_back(type.is_string() && type.string() == "sliding_attention");
    }
    keys->Put("attention.sliding_window_pattern", std::move(windowed));
  } else if (period != 6) {
    keys->Count("attention.sliding_window_pattern", period);
  }
  ASSIGN_OR_RETURN(const double cap, config.Number("final_logit_softcapping", 0));
  if (cap != 0) keys->Put("final_logit_softcapping", cap);
  if (config.Has("attn_logit_softcapping")) return config.Unsupported("attn_logit_softcapping");
  // The scale is not in GGUF's keys: it follows from the number of layers.
  ASSIGN_OR_RETURN(const int64_t hidden, config.Int("hidden_size"));
  ASSIGN_OR_RETURN(const int64_t heads, config.Int("num_attention_heads", defaults.heads));
  const double by_layers =
      static_cast<double>(model->layers == 62 ? hidden / heads : model->head_dim);
  ASSIGN_OR_RETURN(const double scalar, config.Number("query_pre_attn_scalar", 256));
  if (scalar != by_layers) return config.Error("query_pre_attn_scalar", absl::StrCat(by_layers));
  return absl::OkStatus();
}

absl::Status AddBert(const HfObject& config, Metadata* metadata, Keys* keys, HfModel* model) {
  RETURN_IF_ERROR(WantActivation(config, "hidden_act", "gelu"));
  ASSIGN_OR_RETURN(const std::string positions, config.Text("position_embedding_type", "absolute"));
  if (positions != "absolute") return config.Unsupported("position_embedding_type");
  ASSIGN_OR_RETURN(int64_t context, AddSizes(config, {}, keys, model));
  if (model->family->model_type == "xlm-roberta") {
    // The positions of padding come first.
    ASSIGN_OR_RETURN(const int64_t padding, config.Int("pad_token_id", 1));
    if (padding < 0 || padding >= context - 1) {
      return config.Error("pad_token_id", absl::StrCat("an id below ", context - 1));
    }
    model->skipped_positions = padding + 1;
    context -= model->skipped_positions;
  }
  keys->Count("context_length", context);
  ASSIGN_OR_RETURN(const double eps, config.Number("layer_norm_eps", 1e-12));
  keys->Put("attention.layer_norm_epsilon", eps);
  keys->Put("attention.causal", false);
  ASSIGN_OR_RETURN(const int64_t types, config.Int("type_vocab_size", 2));
  metadata->Insert("tokenizer.ggml.token_type_count",
                   static_cast<uint64_t>(std::max<int64_t>(types, 0)));
  const Json* const names = config.Find("architectures");
  for (size_t i = 0; names != nullptr && names->is_array() && i < names->size(); ++i) {
    const Json& name = names->array()[i];
    model->ranks |= name.is_string() && absl::EndsWith(name.string(), "ForSequenceClassification");
  }
  constexpr int64_t kRank = 4;
  if (model->ranks) keys->Count("pooling_type", kRank);
  return absl::OkStatus();
}

}  // namespace

absl::string_view GgufNameOf(const HfModel& model, absl::string_view stored) {
  const absl::Span<const HfName> head = kRankingNames;
  for (const absl::Span<const HfName> names :
       {model.ranks ? head : head.subspan(0, 0), model.family->names,
        absl::Span<const HfName>(kDecoderNames)}) {
    for (const HfName& name : names) {
      if (name.stored == stored) return name.gguf;
    }
  }
  return {};
}

absl::StatusOr<HfModel> ReadHfConfig(const HfObject& config, Metadata* metadata) {
  ASSIGN_OR_RETURN(const std::string type, config.Text("model_type"));
  HfModel model;
  model.family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                              [&](const HfFamily& family) { return family.model_type == type; });
  if (model.family == std::end(kFamilies)) {
    auto name = [](std::string* out, const HfFamily& f) { absl::StrAppend(out, f.model_type); };
    return absl::UnimplementedError(absl::StrCat(
        config.where(), ": model_type '", Excerpt(type, 64), "' is not read from a directory (",
        absl::StrJoin(kFamilies, ", ", name), " are; others load from GGUF files)"));
  }
  metadata->Insert("general.architecture", std::string(model.family->architecture));
  Keys keys(model.family->architecture, metadata);
  if (model.family->architecture == "bert") {
    RETURN_IF_ERROR(AddBert(config, metadata, &keys, &model));
  } else if (model.family->architecture == "gemma3") {
    const Json* const text = config.Find("text_config");
    RETURN_IF_ERROR(
        AddGemma3(text == nullptr ? config : HfObject(*text, config.where()), &keys, &model));
  } else {
    RETURN_IF_ERROR(AddPlainDecoder(config, &keys, &model));
  }
  return model;
}

}  // namespace lm

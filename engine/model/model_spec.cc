#include "engine/model/model_spec.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/model/adapter_file.h"
#include "engine/model/families.h"
#include "engine/model/mtp.h"

namespace lm {
namespace {

struct Family {
  absl::string_view architecture;
  absl::Status (*describe)(KeyReader& keys, ModelSpec* spec);
  bool predicts_tokens = false;  // its files may have the layer of mtp.h
};

// clang-format off
constexpr Family kFamilies[] = {
    {"afmoe", &DescribeAfmoe},
    {"arcee", &DescribeArcee},
    {"arwkv7", &DescribeArwkv7},
    {"bailingmoe", &DescribeDeepSeek},
    {"bailingmoe2", &DescribeDots1},
    {"bailingmoe3", &DescribeBailingMoe3},
    {"bert", &DescribeBert},
    {"chatglm", &DescribeChatGlm},
    {"cohere2", &DescribeCohere2},
    {"command-r", &DescribeCommandR},
    {"deci", &DescribeDeci},
    {"deepseek", &DescribeDeepSeek},
    {"deepseek2", &DescribeDeepSeek2, /*predicts_tokens=*/true},
    {"deepseek4", &DescribeDeepSeek4},
    {"dots1", &DescribeDots1},
    {"ernie4_5", &DescribeErnie45},
    {"ernie4_5-moe", &DescribeErnie45},
    {"eurobert", &DescribeEuroBert},
    {"exaone", &DescribeExaone},
    {"exaone-moe", &DescribeExaoneMoe},
    {"exaone4", &DescribeExaone4},
    {"falcon", &DescribeFalcon},
    {"falcon-h1", &DescribeFalconH1},
    {"gemma", &DescribeGemma},
    {"gemma2", &DescribeGemma2},
    {"gemma-embedding", &DescribeGemmaEmbedding},
    {"gemma3", &DescribeGemma3},
    {"gemma3n", &DescribeGemma3n},
    {"gemma4", &DescribeGemma4},
    {"glm4", &DescribeGlm4},
    {"glm4moe", &DescribeGlm4Moe, /*predicts_tokens=*/true},
    {"gpt-oss", &DescribeGptOss},
    {"gpt2", &DescribeGpt2},
    {"gptneox", &DescribeGptNeoX},
    {"granite", &DescribeGranite},
    {"granite_swa", &DescribeGraniteSwa},
    {"granitehybrid", &DescribeGraniteHybrid},
    {"granitemoe", &DescribeGraniteMoe},
    {"hunyuan-dense", &DescribeHunyuan},
    {"hunyuan-moe", &DescribeHunyuan},
    {"hy_v3", &DescribeHyV3},
    {"internlm2", &DescribeLlama},
    {"jamba", &DescribeJamba},
    {"kimi-linear", &DescribeKimiLinear},
    {"laguna", &DescribeLaguna},
    {"lfm2", &DescribeLfm2},
    {"lfm2moe", &DescribeLfm2},
    {"jina-bert-v2", &DescribeJinaBert2},
    {"jina-bert-v3", &DescribeJinaBert3},
    {"llama", &DescribeLlama},
    {"llama-embed", &DescribeLlamaEmbed},
    {"llama4", &DescribeLlama4},
    {"maincoder", &DescribeMaincoder},
    {"mamba", &DescribeMamba},
    {"mamba2", &DescribeMamba2},
    {"mellum", &DescribeMellum},
    {"mimo2", &DescribeMimo2},
    {"minicpm", &DescribeMiniCpm},
    {"minicpm3", &DescribeMiniCpm3},
    {"minimax-m2", &DescribeMiniMaxM2},
    {"mistral3", &DescribeMistral3},
    {"mistral4", &DescribeDeepSeek2},
    {"modern-bert", &DescribeModernBert},
    {"muse-glimmer", &DescribeMuseGlimmer},
    {"nemotron", &DescribeNemotron},
    {"nemotron_h", &DescribeNemotronH},
    {"nemotron_h_moe", &DescribeNemotronH},
    {"nomic-bert", &DescribeNomicBert},
    {"nomic-bert-moe", &DescribeNomicBertMoe},
    {"olmo", &DescribeOlmo},
    {"olmo2", &DescribeOlmo2},
    {"olmoe", &DescribeOlmoe},
    {"orion", &DescribeOrion},
    {"pangu-embedded", &DescribeQwen2},
    {"phi2", &DescribePhi2},
    {"phi3", &DescribePhi3},
    {"phimoe", &DescribePhi3},
    {"plamo2", &DescribePlamo2},
    {"qwen2", &DescribeQwen2},
    {"qwen2moe", &DescribeQwen2Moe},
    {"qwen2vl", &DescribeQwen2Vl},
    {"qwen3", &DescribeQwen3},
    {"qwen35", &DescribeQwen35, /*predicts_tokens=*/true},
    {"qwen35moe", &DescribeQwen35, /*predicts_tokens=*/true},
    {"qwen3moe", &DescribeQwen3},
    {"qwen3next", &DescribeQwen3Next, /*predicts_tokens=*/true},
    {"qwen3vl", &DescribeQwen3Vl},
    {"qwen3vlmoe", &DescribeQwen3Vl},
    {"rwkv6", &DescribeRwkv6},
    {"rwkv6qwen2", &DescribeRwkv6Qwen2},
    {"rwkv7", &DescribeRwkv7},
    {"seed_oss", &DescribeSeedOss},
    {"smollm3", &DescribeSmolLm3},
    {"stablelm", &DescribeStableLm},
    {"starcoder", &DescribeGpt2},
    {"starcoder2", &DescribeStarCoder2},
    {"step35", &DescribeStep35},
    {"xverse", &DescribeLlama},
};
// clang-format on

// What is no language model that writes from left to right, and why.
struct Refusal {
  absl::string_view architecture;
  absl::string_view what;
};
constexpr absl::string_view kDrafter = "guesses for another model's decoding and is none itself";
constexpr absl::string_view kDiffusion =
    "writes by diffusion, not from left to right, and that is not supported";
constexpr absl::string_view kSound = "makes sound, not text";
constexpr Refusal kRefusals[] = {
    {"clip", "reads images for a model of another file, which loads without it"},
    {"dflash", kDrafter},
    {"dream", kDiffusion},
    {"eagle3", kDrafter},
    {"gemma4-assistant", kDrafter},
    {"graniteswitch", "switches adapters while it writes, and that is not supported"},
    {"llada", kDiffusion},
    {"llada-moe", kDiffusion},
    {"pockettts", kSound},
    {"qwen3tts", kSound},
    {"rnd1", kDiffusion},
    {"t5", "has an encoder and a decoder, and that is not supported"},
    {"wavtokenizer-dec", kSound},
};

// An architecture that is not one of kFamilies.
absl::Status UnknownArchitecture(absl::string_view architecture) {
  for (const Refusal& refusal : kRefusals) {
    if (architecture != refusal.architecture) continue;
    return absl::UnimplementedError(
        absl::StrCat("model architecture '", architecture, "' ", refusal.what));
  }
  auto name = [](std::string* out, const Family& f) { absl::StrAppend(out, f.architecture); };
  return absl::UnimplementedError(
      absl::StrCat("model architecture '", absl::CHexEscape(architecture.substr(0, 64)),
                   "' is not supported (known: ", absl::StrJoin(kFamilies, ", ", name), ")"));
}

// What all families have: the vocabulary. Its tokens count, and the rows of the tensors, whatever
// the key says.
absl::Status DescribeVocabulary(const Metadata& metadata, KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(absl::Span<const std::string> tokens,
                   metadata.GetStrings("tokenizer.ggml.tokens"));
  spec->vocab = static_cast<int64_t>(tokens.size());
  keys.Has("vocab_size");
  return absl::OkStatus();
}

// Converters do not say of classifiers what they are for; one of several labels is none of texts
// that go together.
bool IsReranker(const KeyReader& keys, const ModelSpec& spec) {
  const int64_t labels = keys.RowsOf("cls.output.weight");
  return !spec.causal && (labels > 0 ? labels : keys.RowsOf("cls.weight")) == 1;
}

// What becomes of hidden states.
absl::Status DescribePooling(KeyReader& keys, std::optional<PoolingType> asked, ModelSpec* spec) {
  constexpr auto kMost = static_cast<int64_t>(PoolingType::kRank);
  ASSIGN_OR_RETURN(const int64_t stated, keys.IntOr("pooling_type", -1, kMost, -1));
  std::optional<PoolingType> type = asked;
  if (!type && stated >= 0) type = static_cast<PoolingType>(stated);
  if (!type && IsReranker(keys, *spec)) type = PoolingType::kRank;
  if (!type) return absl::OkStatus();
  switch (*type) {
    case PoolingType::kNone:
      spec->pooling.pooling = std::nullopt;
      break;
    case PoolingType::kMean:
      spec->pooling.pooling = Pooling::kMean;
      break;
    case PoolingType::kFirst:
      spec->pooling.pooling = Pooling::kFirst;
      break;
    case PoolingType::kLast:
      spec->pooling.pooling = Pooling::kLast;
      break;
    case PoolingType::kRank:
      spec->pooling.ranks = true;
      if (!spec->pooling.pooling) {
        spec->pooling.pooling = spec->causal ? Pooling::kLast : Pooling::kFirst;
      }
      break;
  }
  return absl::OkStatus();
}

// Whether a token sees those behind it.
absl::Status DescribeUse(KeyReader& keys, ModelSpec* spec) {
  const bool is_encoder = !spec->causal;
  ASSIGN_OR_RETURN(spec->causal, keys.BoolOr("attention.causal", spec->causal));
  if (is_encoder && spec->causal) {
    return absl::UnimplementedError(absl::StrCat("'", keys.Key("attention.causal"),
                                                 "' = true is not supported in this architecture"));
  }
  for (const LayerSpec& layer : spec->layers) {
    if (spec->causal) break;
    const AttentionSpec* attention = layer.attention();
    const bool one_sided = attention != nullptr && attention->window > 0 &&
                           attention->window_kind != WindowKind::kSymmetric;
    const bool alone = attention != nullptr && attention->kv_source < 0 &&
                       !attention->compressed.has_value() && !layer.beside;
    if (alone && !one_sided) continue;
    return absl::UnimplementedError(absl::StrCat(
        "'", keys.Key("attention.causal"), "' = false is not supported in this architecture"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t MixerInputCols(const LayerSpec& layer) {
  if (!layer.has_mixer()) return 0;
  if (const DeltaNetSpec* net = layer.delta_net()) {
    return net->conv_cols() + net->value_cols() + 2 * net->heads;
  }
  if (const KimiDeltaSpec* kimi = layer.kimi_delta()) {
    return kimi->conv_cols() + 2 * kimi->gate_input() + kimi->heads;
  }
  if (layer.rwkv() != nullptr) return 0;
  if (const StateSpaceSpec* space = layer.state_space()) return space->input_cols();
  if (const SelectiveSpec* selective = layer.selective()) return 2 * selective->inner;
  if (const ShortConvSpec* conv = layer.short_conv()) return 3 * conv->channels;
  const AttentionSpec& attention = *layer.attention();
  if (attention.compressed.has_value()) {
    return attention.compressed->q_rank + attention.key_dim +
           2 * (attention.pooled_cols() + attention.index_cols()) +
           attention.compressed->index_heads;
  }
  if (attention.latent.has_value()) {
    const int64_t q_rank = attention.latent->q_rank;
    return (q_rank > 0 ? q_rank : attention.latent_q_cols()) + attention.key_dim +
           attention.gate_cols();
  }
  const int64_t kv_cols =
      attention.kv_source < 0 ? attention.k_cols() + attention.v_cols() : int64_t{0};
  return attention.q_cols() + attention.gate_cols() + kv_cols;
}

int64_t MixerOutputCols(const LayerSpec& layer) {
  if (!layer.has_mixer()) return 0;
  if (const DeltaNetSpec* net = layer.delta_net()) return net->value_cols();
  if (const KimiDeltaSpec* kimi = layer.kimi_delta()) return kimi->inner();
  if (const RwkvSpec* rwkv = layer.rwkv()) return rwkv->inner();
  if (const StateSpaceSpec* space = layer.state_space()) return space->inner();
  if (const SelectiveSpec* selective = layer.selective()) return selective->inner;
  if (const ShortConvSpec* conv = layer.short_conv()) return conv->channels;
  const AttentionSpec& attention = *layer.attention();
  if (attention.compressed.has_value()) {
    return attention.compressed->groups * attention.compressed->o_rank;
  }
  return attention.latent.has_value() ? attention.heads * attention.latent->value_dim
                                      : attention.out_cols();
}

StateSizes StatesOf(const LayerSpec& layer) {
  if (layer.beside.has_value()) return {layer.beside->conv_state(), layer.beside->rule_state()};
  if (const DeltaNetSpec* net = layer.delta_net()) return {net->conv_state(), net->rule_state()};
  if (const KimiDeltaSpec* kimi = layer.kimi_delta()) {
    return {kimi->conv_state(), kimi->rule_state()};
  }
  if (const RwkvSpec* rwkv = layer.rwkv()) return {rwkv->conv_state(), rwkv->rule_state()};
  if (const StateSpaceSpec* space = layer.state_space()) {
    return {space->conv_state(), space->rule_state()};
  }
  if (const SelectiveSpec* selective = layer.selective()) {
    return {selective->conv_state(), selective->rule_state()};
  }
  if (const ShortConvSpec* conv = layer.short_conv()) return {conv->conv_state(), 0};
  const AttentionSpec* attention = layer.attention();
  if (attention != nullptr && attention->compressed && attention->compressed->every > 0) {
    const CompressedSpec& spec = *attention->compressed;
    const int64_t index_dim = spec.index_heads > 0 ? spec.index_dim : 0;
    return {PoolInputs::StateSize(attention->key_dim, spec.overlaps),
            PoolInputs::StateSize(index_dim, spec.overlaps)};
  }
  return {};
}

absl::StatusOr<ModelSpec> DescribeModel(const GgufFile& gguf, std::optional<PoolingType> pooling) {
  ModelSpec spec;
  if (IsAdapter(gguf.metadata())) {
    return absl::InvalidArgumentError(
        "it is an adapter (LoRA) of a model, and none itself: the model's options name it, "
        "{\"lora\":[{\"name\":...,\"path\":...}]}");
  }
  ASSIGN_OR_RETURN(spec.architecture, gguf.metadata().GetString("general.architecture"));
  const Family* family =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& f) { return f.architecture == spec.architecture; });
  if (family == std::end(kFamilies)) return UnknownArchitecture(spec.architecture);
  KeyReader keys(gguf.metadata(), spec.architecture, [&gguf](absl::string_view name) {
    const TensorInfo* info = gguf.FindTensor(name);
    return info == nullptr ? int64_t{0} : info->rows;
  });
  RETURN_IF_ERROR(family->describe(keys, &spec));
  RETURN_IF_ERROR(DescribeUse(keys, &spec));
  RETURN_IF_ERROR(DescribePooling(keys, pooling, &spec));
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.feed_forward.exists() && layer.feed_forward_norm != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", keys.Key("feed_forward_length"), "' must be 1 or more, got 0"));
    }
    const AttentionSpec* const attention = layer.attention();
    if (attention == nullptr) continue;
    if (attention->norms_after_turning && attention->rope >= 0) {
      const int64_t turning = spec.ropes[attention->rope].dim;
      if (turning != attention->key_dim) {
        return absl::UnimplementedError(absl::StrCat(
            "'", keys.Key("rope.dimension_count"), "': heads of ", spec.architecture,
            " are normed after they have turned, and turn whole here: it must be ",
            attention->key_dim, ", got ", turning));
      }
    }
    if (attention->kv_heads > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", keys.Key("attention.head_count_kv"), "' must be 1 or more, got 0"));
  }
  if (family->predicts_tokens) AddMtp(gguf, &spec);
  RETURN_IF_ERROR(DescribeVocabulary(gguf.metadata(), keys, &spec));
  RETURN_IF_ERROR(keys.CheckTheOthers());
  return spec;
}

}  // namespace lm

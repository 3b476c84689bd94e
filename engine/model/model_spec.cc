#include "engine/model/model_spec.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

struct Family {
  absl::string_view architecture;
  absl::Status (*describe)(KeyReader& keys, ModelSpec* spec);
};

constexpr Family kFamilies[] = {
    {"gemma3", &DescribeGemma3}, {"llama", &DescribeLlama},   {"qwen2", &DescribeQwen2},
    {"qwen3", &DescribeQwen3},   {"qwen35", &DescribeQwen35},
};

// What all families have: the vocabulary.
absl::Status DescribeVocabulary(const Metadata& metadata, KeyReader& keys, ModelSpec* spec) {
  ASSIGN_OR_RETURN(absl::Span<const std::string> tokens,
                   metadata.GetStrings("tokenizer.ggml.tokens"));
  spec->vocab = static_cast<int64_t>(tokens.size());
  ASSIGN_OR_RETURN(int64_t declared, keys.IntOr("vocab_size", 1, kMaxDim, spec->vocab));
  if (declared == spec->vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", keys.Key("vocab_size"), "' = ", declared,
                                                 " but the vocabulary has ", spec->vocab,
                                                 " tokens"));
}

}  // namespace

int64_t MixerInputCols(const LayerSpec& layer) {
  if (const DeltaNetSpec* net = layer.delta_net()) {
    return net->conv_cols() + net->value_cols() + 2 * net->heads;
  }
  const AttentionSpec& attention = *layer.attention();
  return attention.q_cols() + attention.gate_cols() + 2 * attention.kv_cols();
}

int64_t MixerOutputCols(const LayerSpec& layer) {
  const DeltaNetSpec* net = layer.delta_net();
  return net != nullptr ? net->value_cols() : layer.attention()->q_cols();
}

absl::StatusOr<ModelSpec> DescribeModel(const GgufFile& gguf) {
  ModelSpec spec;
  ASSIGN_OR_RETURN(spec.architecture, gguf.metadata().GetString("general.architecture"));
  const Family* family =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& f) { return f.architecture == spec.architecture; });
  if (family == std::end(kFamilies)) {
    auto name = [](std::string* out, const Family& f) { absl::StrAppend(out, f.architecture); };
    return absl::UnimplementedError(
        absl::StrCat("model architecture '", absl::CHexEscape(spec.architecture.substr(0, 64)),
                     "' is not supported (known: ", absl::StrJoin(kFamilies, ", ", name), ")"));
  }
  KeyReader keys(gguf.metadata(), spec.architecture);
  RETURN_IF_ERROR(family->describe(keys, &spec));
  RETURN_IF_ERROR(DescribeVocabulary(gguf.metadata(), keys, &spec));
  RETURN_IF_ERROR(keys.CheckTheOthers());
  return spec;
}

}  // namespace lm

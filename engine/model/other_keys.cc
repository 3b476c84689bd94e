#include "engine/model/other_keys.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lm {
namespace {

// Keys that say nothing about the graph of a model whose family does not read them, whatever their
// value.
constexpr absl::string_view kSilent[] = {
    "attention.group_norm_epsilon",  // the norms are RMS norms
    "attention.group_norm_groups",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",  // they are layer norms
    "classifier.output_labels",          // names
    "deepstack_mapping",                 // where layers add an image's features
    "image_token_id",                    // of images, as those of three more tokens
    "image_token_index",
    "max_position_embeddings",               // context_length
    "mrope_sections",                        // rope.dimension_sections
    "normalize_embeddings",                  // lm_embed's option does
    "rope.scaling.finetuned",                // how it was trained
    "rope.scaling.original_context_length",  // of YaRN and LongRoPE, as the next three
    // Converters write what a model's config says; llama.cpp reads it for grok alone, and makes
    // the factor of the scale, as ReadYarn does.
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_log_multiplier",
    "spatial_merge_size",  // of images
    "tensor_data_layout",  // "Meta AI original pth": rows of Q and K in the order of every llama
    "vision_end_token_id",
    "vision_start_token_id",
};

// Keys that ask for nothing where they have one of these two values, which llama.cpp takes for an
// absent key (false is 0, true is 1).
struct Neutral {
  absl::string_view name;
  double value;
  double other = value;
};
constexpr Neutral kNeutral[] = {
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.output_scale", 0, 1},
    {"attention.scale", 0},
    {"attention.value_scale", 0, 1},
    {"attn_logit_softcapping", 0},
    {"embedding_length_out", 0},
    {"embedding_scale", 0, 1},
    {"expert_count", 0},
    {"expert_group_count", 0},
    {"expert_group_used_count", 0},
    {"expert_shared_count", 0},
    {"expert_shared_feed_forward_length", 0},
    {"expert_used_count", 0},
    {"expert_weights_scale", 0, 1},
    {"final_logit_softcapping", 0},
    {"leading_dense_block_count", 0},
    {"logit_scale", 0, 1},
    {"nextn_predict_layers", 0},
    {"residual_scale", 0, 1},
    {"rope.scaling.alpha", 0},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_ext_factor", 0, -1},
    {"router_logit_softcapping", 0},
    {"swin_norm", 0},
    {"use_parallel_residual", 0},
};

// As IsTowerTensor, for keys.
bool IsOfTower(absl::string_view name) {
  return absl::StartsWith(name, "vision.") || absl::StartsWith(name, "audio.") ||
         absl::StartsWith(name, "mm.");
}

std::optional<double> NumberOf(const MetadataValue& value) {
  return std::visit(
      [](const auto& v) -> std::optional<double> {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) {
          return static_cast<double>(v);
        } else {
          return std::nullopt;
        }
      },
      value);
}

// Converters write the sections of any model that has some. In a text they are all the token's, but
// for the fourth.
bool AreOfText(const MetadataValue& value) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::vector<int64_t>> ||
                      std::is_same_v<T, std::vector<uint64_t>>) {
          return v.size() <= 3 || (v.size() == 4 && v[3] == 0);
        } else {
          return false;
        }
      },
      value);
}

bool AsksForNothing(absl::string_view name, const MetadataValue& value) {
  if (name == "rope.dimension_sections") return AreOfText(value);
  if (std::find(std::begin(kSilent), std::end(kSilent), name) != std::end(kSilent)) return true;
  const Neutral* neutral = std::find_if(std::begin(kNeutral), std::end(kNeutral),
                                        [name](const Neutral& n) { return n.name == name; });
  if (neutral == std::end(kNeutral)) return false;
  const std::optional<double> number = NumberOf(value);
  return number == neutral->value || number == neutral->other;
}

// "3", "true", "'yarn'"; "an array of 4 values".
std::string ValueText(const MetadataValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_arithmetic_v<T>) {
          return absl::StrCat(v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return absl::StrCat("'", absl::CHexEscape(v.substr(0, 64)), "'");
        } else {
          return absl::StrCat("an array of ", v.size(), " values");
        }
      },
      value);
}

}  // namespace

bool IsTowerTensor(absl::string_view name) {
  return absl::StartsWith(name, "v.") || absl::StartsWith(name, "a.") ||
         absl::StartsWith(name, "mm.");
}

absl::Status CheckOtherKeys(const Metadata& metadata, absl::string_view architecture,
                            const HashSet<std::string>& read) {
  const std::string prefix = absl::StrCat(architecture, ".");
  const std::pair<const std::string, MetadataValue>* first = nullptr;
  for (const auto& pair : metadata.values()) {
    absl::string_view name = pair.first;
    if (!absl::ConsumePrefix(&name, prefix) || read.contains(pair.first)) continue;
    if (AsksForNothing(name, pair.second) || IsOfTower(name)) continue;
    if (first == nullptr || pair.first < first->first) first = &pair;
  }
  if (first == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "'", absl::CHexEscape(first->first.substr(0, 80)), "' = ", ValueText(first->second),
      " asks for something that is not computed here, so that the answers would be wrong"));
}

}  // namespace lm

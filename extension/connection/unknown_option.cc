#include "extension/connection/unknown_option.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/generation_options.h"
#include "extension/connection/settings.h"

namespace lm {
namespace {

constexpr char kEmbed[] = "lm_embed, lm_similarity, lm_distinct and lm_match";
constexpr char kEscalate[] = "lm_if, lm_classify, lm_extract and lm_calibrate";
constexpr char kDocuments[] = "lm_summarize, lm_summarize_agg, lm_cluster_label and lm_agg";
constexpr char kInstruction[] = "lm_summarize, lm_summarize_agg, lm_cluster_label and lm_calibrate";

// The options that functions have beside generate()'s, and which do.
constexpr std::pair<absl::string_view, absl::string_view> kOfFunctions[] = {
    {"agreement", "lm_calibrate"},
    {"blocking", "lm_match"},
    {"candidates", "lm_match"},
    {"chunk", "lm_run"},
    {"combine", kDocuments},
    {"curve", "lm_calibrate"},
    {"dimensions", kEmbed},
    {"embed_model", "lm_match"},
    {"escalate", kEscalate},
    {"instruction", kInstruction},
    {"lease_ms", "lm_run"},
    {"max_errors", "lm_run"},
    {"method", "lm_rank"},
    {"multi", "lm_classify"},
    {"normalize", "lm_embed and lm_rerank"},
    {"order", "lm_query"},
    {"part_tokens", kDocuments},
    {"pooling", kEmbed},
    {"progress_ms", "lm_run"},
    {"refresh", "lm_run"},
    {"retry", "lm_run"},
    {"sample", "lm_explain and lm_calibrate"},
    {"scores", "lm_classify"},
    {"summarize", "lm_jobs"},
    {"task", kEmbed},
    {"threshold", "lm_classify, lm_distinct and lm_match"},
};

bool IsSetting(absl::string_view name) {
  return std::find(Settings::kKeys.begin(), Settings::kKeys.end(), name) != Settings::kKeys.end();
}

}  // namespace

bool IsUnknownOption(absl::string_view name) { return !IsGenerationOption(name); }

absl::Status UnknownOptionOfCall(absl::string_view name, absl::Span<const std::string> own) {
  if (IsSetting(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name, "' is a setting of the connection, no option of a call: INSERT INTO ",
        "temp.lm_settings VALUES ('", name, "', ...)"));
  }
  for (const auto& [option, functions] : kOfFunctions) {
    if (option != name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("unknown option '", name, "': it is one of ", functions));
  }
  return UnknownOption(name, own);
}

}  // namespace lm

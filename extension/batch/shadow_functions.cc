#include "extension/batch/shadow_functions.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/batch/harmless_tables.h"
#include "extension/batch/noticeable.h"
#include "extension/host/own_function.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// Ours that a shadow may call: the first know that they are called by one, the others change
// nothing.
constexpr absl::string_view kForeseen[] = {
    "generate",      "generate_json",      "lm_try",      "lm_classify", "lm_extract",
    "lm_if",         "lm_score",           "lm_embed",    "lm_rerank",   "lm_filter",
    "lm_similarity", "lm_classify_scores", "lm_summarize"};
// SQLite's that are the same all through a statement, although they are not marked so.
constexpr absl::string_view kConstant[] = {"current_timestamp", "current_date", "current_time"};
constexpr absl::string_view kHarmless[] = {"lm_token_count", "lm_tokenize", "lm_detokenize",
                                           "lm_render",      "lm_version",  "lm_prompt",
                                           "lm_field_order"};

bool IsListed(absl::string_view name, absl::Span<const absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool IsForeseen(absl::string_view name) { return IsListed(name, kForeseen); }

absl::Status ShadowFunctions::Check(absl::string_view call, bool aggregate) {
  const absl::string_view name = call.substr(0, call.rfind('('));
  if (IsForeseen(name) || IsListed(name, kHarmless)) return absl::OkStatus();
  RETURN_IF_ERROR(Read());
  const auto found = functions_.find(std::string(call));
  if (found != functions_.end() && (found->second.deterministic || aggregate) &&
      found->second.own) {
    return absl::OkStatus();
  }
  return Noticeable(
      absl::StrCat("it calls ", name, "(), which is not built in, deterministic and innocuous"));
}

absl::Status ShadowFunctions::Read() {
  constexpr int kFunctionName = 0, kBuiltIn = 1, kNumArgs = 4, kFlags = 5;
  if (std::exchange(read_, true)) return absl::OkStatus();
  // The argument is not looked at.
  ASSIGN_OR_RETURN(Statement list,
                   Readable(Statement::Prepare(
                       db_, absl::StrCat(MarkOf(asker_), "PRAGMA function_list('", asker_, "')"))));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, Readable(list.Step()));
    if (!row) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string name, list.Text(kFunctionName));
    Function& function = functions_[absl::StrCat(name, "(", list.Integer(kNumArgs), ")")];
    const int64_t flags = list.Integer(kFlags);
    // Aggregates are not marked as deterministic, although SQLite's own are.
    function.own = function.own && IsOwnAndInnocuous(name, list.Integer(kBuiltIn) != 0, flags);
    function.deterministic = function.deterministic &&
                             ((flags & SQLITE_DETERMINISTIC) != 0 || IsListed(name, kConstant));
  }
}

}  // namespace lm

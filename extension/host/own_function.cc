#include "extension/host/own_function.h"

#include <algorithm>
#include <iterator>

#include "extension/host/sqlite_api.h"

namespace lm {
namespace {

constexpr absl::string_view kJsonFunctions[] = {
    "json",         "json_array",       "json_array_length",
    "json_extract", "json_group_array", "json_group_object",
    "json_insert",  "json_object",      "json_patch",
    "json_quote",   "json_remove",      "json_replace",
    "json_set",     "json_type",        "json_valid"};

}  // namespace

bool IsOwnAndInnocuous(absl::string_view name, bool built_in, int64_t flags) {
  const bool innocuous = (flags & SQLITE_INNOCUOUS) != 0;
  // The JSON functions became built-in ones with 3.38, and are not marked as innocuous since.
  const bool is_json = std::find(std::begin(kJsonFunctions), std::end(kJsonFunctions), name) !=
                       std::end(kJsonFunctions);
  if (sqlite3_libversion_number() < 3'038'000 && is_json) return innocuous;
  // They and their operators.
  return built_in && (innocuous || name.substr(0, 4) == "json" || name == "->" || name == "->>");
}

}  // namespace lm

#include "engine/gguf/message.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lm {

std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxBytes = 80;
  std::string text = absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxBytes)), "\"");
  if (name.size() > kMaxBytes) absl::StrAppend(&text, "... (", name.size(), " bytes)");
  return text;
}

absl::Status InContext(absl::string_view where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace lm

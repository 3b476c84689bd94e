#include "engine/gguf/message.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"

namespace lm {

std::string Quoted(absl::string_view name) {
  constexpr size_t kMaxBytes = 80;
  std::string text = absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxBytes)), "\"");
  if (name.size() > kMaxBytes) absl::StrAppend(&text, "... (", name.size(), " bytes)");
  return text;
}

std::string Excerpt(absl::string_view text, size_t most_bytes) {
  text = text.substr(0, most_bytes);
  return std::string(text.substr(0, ValidUtf8Prefix(text)));
}

absl::Status InContext(absl::string_view where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace lm

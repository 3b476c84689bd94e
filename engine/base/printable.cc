#include "engine/base/printable.h"

#include "absl/strings/escaping.h"
#include "engine/base/utf8.h"

namespace lm {

std::string Printable(absl::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    for (char c : text.substr(0, valid)) {
      const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      if (control) {
        shown += absl::CHexEscape(absl::string_view(&c, 1));
      } else {
        shown += c;
      }
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    shown += absl::CHexEscape(text.substr(0, 1));
    text.remove_prefix(1);
  }
  return shown;
}

}  // namespace lm

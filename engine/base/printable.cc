#include "engine/base/printable.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

// The bytes of the control character that the text begins with: of ASCII, or of U+0080 to U+009F,
// which terminals obey too. 0: it begins with another one.
size_t ControlAt(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  return byte(0) == 0xc2 && byte(1) < 0xa0 ? 2 : 0;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    for (size_t i = 0; i < valid;) {
      const size_t size = ControlAt(text.substr(i, valid - i));
      if (size > 0) {
        shown += absl::CHexEscape(text.substr(i, size));
      } else {
        shown += text[i];
      }
      i += std::max<size_t>(size, 1);
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    shown += absl::CHexEscape(text.substr(0, 1));
    text.remove_prefix(1);
  }
  return shown;
}

}  // namespace lm

#include "engine/text/detokenizer.h"

#include "absl/strings/string_view.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

// The length of the broken character at the head of `text`: the longest beginning of a character,
// or one byte (the Unicode Standard's "maximal subpart", section 3.9).
size_t BrokenCharacter(absl::string_view text) {
  size_t size = 1;
  for (size_t n = 2; n <= 3 && n <= text.size(); ++n) {
    if (IncompleteUtf8Suffix(text.substr(0, n)) == n) size = n;
  }
  return size;
}

// Moves what can be decided of *pending to *text. `last` says that nothing follows.
void Drain(bool last, std::string* pending, std::string* text) {
  absl::string_view rest = *pending;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    text->append(rest.data(), valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    if (!last && IncompleteUtf8Suffix(rest) == rest.size()) break;
    text->append(kReplacement.data(), kReplacement.size());
    rest.remove_prefix(BrokenCharacter(rest));
  }
  pending->erase(0, pending->size() - rest.size());
}

}  // namespace

std::string Detokenizer::Append(int32_t id) {
  const absl::string_view bytes = tokenizer_->TokenBytes(id);
  pending_.append(bytes.data(), bytes.size());
  std::string text;
  Drain(/*last=*/false, &pending_, &text);
  return text;
}

std::string Detokenizer::Finish() {
  std::string text;
  Drain(/*last=*/true, &pending_, &text);
  return text;
}

}  // namespace lm

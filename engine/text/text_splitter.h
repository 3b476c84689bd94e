// Cuts a text into the pieces that byte-level BPE works on, by regular expressions.
#ifndef LM_ENGINE_TEXT_TEXT_SPLITTER_H_
#define LM_ENGINE_TEXT_TEXT_SPLITTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

// Immutable after Create; thread-safe.
class TextSplitter {
 public:
  // A piece: [begin, end) of the text.
  struct Piece {
    uint32_t begin;
    uint32_t end;
  };

  // Internal where PCRE2 refuses a pattern.
  static absl::StatusOr<std::unique_ptr<TextSplitter>> Create(
      absl::Span<const char* const> patterns);
  ~TextSplitter();

  // Fills *pieces with consecutive pieces that cover the text: what a pattern matches is a piece,
  // and so is what lies between two matches. Linear time, constant stack.
  // REQUIRES: text is valid UTF-8, shorter than 4 GiB.
  absl::Status Split(absl::string_view text, std::vector<Piece>* pieces) const;

 private:
  struct Pattern;
  TextSplitter();
  std::vector<Pattern> patterns_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_SPLITTER_H_

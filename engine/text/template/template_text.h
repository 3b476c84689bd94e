// A string of a chat template that knows of every byte whether the template or the input said it.
//
//   TemplateText text("<|im_start|>", TextKind::kMarkup);
//   text.Append(row, TextKind::kInput);
//   std::vector<TextPiece> pieces = text.Pieces();
//
// Every operation on strings is made of Append, so no operation can lose the origin.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TEXT_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "engine/text/template/template_memory.h"
#include "engine/text/text_piece.h"

namespace lm {

// A value type.
class TemplateText {
 public:
  TemplateText() = default;
  TemplateText(absl::string_view bytes, TextKind kind) { Append(bytes, kind); }

  void Append(absl::string_view bytes, TextKind kind);
  // Appends [begin, end) of `other`. REQUIRES: begin <= end <= other.size(), &other != this.
  void Append(const TemplateText& other, size_t begin, size_t end);
  void Append(const TemplateText& other) { Append(other, 0, other.size()); }

  absl::string_view bytes() const { return absl::string_view(bytes_.data(), bytes_.size()); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // REQUIRES: byte < size().
  TextKind KindAt(size_t byte) const { return runs_[RunAt(byte)].kind; }
  // kInput if any byte is the input's.
  TextKind WholeKind() const;
  TemplateText Part(size_t begin, size_t end) const;
  // Neighbours differ in kind; no piece is empty.
  std::vector<TextPiece> Pieces() const;

 private:
  // The bytes from the run before's end to this one's.
  struct Run {
    size_t end;
    TextKind kind;
  };
  size_t RunAt(size_t byte) const;

  std::basic_string<char, std::char_traits<char>, CountedAllocator<char>> bytes_;
  // Ascending; neighbours differ in kind.
  absl::InlinedVector<Run, 2, CountedAllocator<Run>> runs_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_TEXT_H_

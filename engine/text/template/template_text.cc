#include "engine/text/template/template_text.h"

#include <algorithm>

namespace lm {

void TemplateText::Append(absl::string_view bytes, TextKind kind) {
  if (bytes.empty()) return;
  bytes_.append(bytes.data(), bytes.size());
  if (!runs_.empty() && runs_.back().kind == kind) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), kind});
  }
}

void TemplateText::Append(const TemplateText& other, size_t begin, size_t end) {
  if (begin == end) return;
  const absl::string_view bytes = other.bytes();
  for (size_t run = other.RunAt(begin); begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end);
    Append(bytes.substr(begin, stop - begin), other.runs_[run].kind);
    begin = stop;
  }
}

TextKind TemplateText::WholeKind() const {
  for (const Run& run : runs_) {
    if (run.kind == TextKind::kInput) return TextKind::kInput;
  }
  return TextKind::kMarkup;
}

TemplateText TemplateText::Part(size_t begin, size_t end) const {
  TemplateText part;
  part.Append(*this, begin, end);
  return part;
}

std::vector<TextPiece> TemplateText::Pieces() const {
  std::vector<TextPiece> pieces;
  pieces.reserve(runs_.size());
  size_t begin = 0;
  for (const Run& run : runs_) {
    pieces.push_back({std::string(bytes().substr(begin, run.end - begin)), run.kind});
    begin = run.end;
  }
  return pieces;
}

size_t TemplateText::RunAt(size_t byte) const {
  return std::upper_bound(runs_.begin(), runs_.end(), byte,
                          [](size_t at, const Run& run) { return at < run.end; }) -
         runs_.begin();
}

}  // namespace lm

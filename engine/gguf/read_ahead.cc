#include "engine/gguf/read_ahead.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace lm {

ReadAhead::ReadAhead(const ModelFiles& files) {
  for (const auto& file : files) {
    const uint64_t pieces = (file->Size() + kPieceBytes - 1) / kPieceBytes;
    files_.push_back({file, std::vector<bool>(pieces, false)});
  }
}

void ReadAhead::Reading(int file, uint64_t offset) {
  // Who finds another asking need not wait for it.
  if (!mutex_.TryLock()) return;
  const absl::Cleanup unlock = [this] { mutex_.Unlock(); };
  auto& [source, asked] = files_[file];
  const uint64_t first = offset / kPieceBytes;
  const uint64_t end = std::min<uint64_t>(first + kPiecesAhead, asked.size());
  for (uint64_t piece = first; piece < end; ++piece) {
    if (asked[piece]) continue;
    asked[piece] = true;
    source->WillRead(piece * kPieceBytes, kPieceBytes);
  }
}

}  // namespace lm

#include "engine/gguf/read_ahead.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace lm {

ReadAhead::ReadAhead(const std::vector<const RandomAccessFile*>& files) {
  for (const RandomAccessFile* file : files) files_.push_back({file, {}});
}

void ReadAhead::Reading(int file, uint64_t offset) {
  // Who finds another asking need not wait for it.
  if (!mutex_.TryLock()) return;
  const absl::Cleanup unlock = [this] { mutex_.Unlock(); };
  auto& [source, asked] = files_[file];
  const uint64_t first = offset / kPieceBytes;
  const uint64_t end = (source->Size() + kPieceBytes - 1) / kPieceBytes;
  for (uint64_t piece = first; piece < std::min(first + kPiecesAhead, end); ++piece) {
    if (asked.insert(piece).second) source->WillRead(piece * kPieceBytes, kPieceBytes);
  }
}

}  // namespace lm

#include "engine/gguf/content_digest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/checkpoint.h"
#include "engine/base/digest.h"
#include "engine/base/first_error.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/gguf/read_ahead.h"

namespace lm {

absl::StatusOr<std::string> DigestFiles(const ModelFiles& files, int num_threads) {
  static constexpr uint64_t kPieceBytes = 4 << 20;
  static constexpr uint64_t kCachedBytes = 64 << 10;  // read and looked at in the L2 cache
  struct Piece {
    int file;
    uint64_t begin, end;
    Digest digest;
  };
  std::vector<Piece> pieces;
  for (int file = 0; file < static_cast<int>(files.size()); ++file) {
    const uint64_t size = files[file]->Size();
    for (uint64_t begin = 0; begin < size; begin += kPieceBytes) {
      pieces.push_back({file, begin, std::min(begin + kPieceBytes, size), {}});
    }
  }
  ReadAhead ahead(files);
  auto look_at = [&](Piece& piece) -> absl::Status {
    const RandomAccessFile& file = *files[piece.file];
    std::string bytes(kCachedBytes, '\0');
    Digester digester(piece.begin);
    ahead.Reading(piece.file, piece.begin);
    for (uint64_t at = piece.begin; at < piece.end; at += kCachedBytes) {
      const auto part = absl::MakeSpan(bytes.data(), std::min(kCachedBytes, piece.end - at));
      RETURN_IF_ERROR(file.Read(at, part));
      digester.Add({part.data(), part.size()});
    }
    piece.digest = digester.Finish();
    return absl::OkStatus();
  };
  FirstError error;
  std::atomic<bool> interrupted{false};  // only this thread, which works too, can tell
  ThreadPool(num_threads).ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    if (Interrupted()) interrupted = true;
    if (interrupted || error.Precedes(i)) return;
    if (absl::Status status = look_at(pieces[i]); !status.ok()) error.Add(i, std::move(status));
  });
  RETURN_IF_ERROR(Checkpoint());
  RETURN_IF_ERROR(error.status());
  std::string digests;
  for (const Piece& piece : pieces) digests += piece.digest.Hex();
  return DigestOf(digests).Hex();
}

absl::StatusOr<std::string> ContentDigest::Get() const {
  constexpr std::chrono::milliseconds kPatience{20};  // until it is asked whether anybody waits
  if (std::optional<std::string> digest = known()) return *std::move(digest);
  while (!making_.try_lock_for(kPatience)) RETURN_IF_ERROR(Checkpoint());
  const std::lock_guard<std::timed_mutex> lock(making_, std::adopt_lock);
  if (std::optional<std::string> digest = known()) return *std::move(digest);
  absl::StatusOr<std::string> digest = DigestFiles(files_, num_threads_);
  for (size_t i = 0; digest.ok() && i < files_.size(); ++i) {
    if (absl::Status status = files_[i]->CheckUnchanged(); !status.ok()) digest = status;
  }
  if (absl::IsCancelled(digest.status())) return digest;
  if (!digest.ok()) return absl::DataLossError(digest.status().message());
  absl::MutexLock known_lock(&mutex_);
  digest_ = *digest;
  return digest;
}

std::optional<std::string> ContentDigest::known() const {
  absl::MutexLock lock(&mutex_);
  return digest_;
}

}  // namespace lm

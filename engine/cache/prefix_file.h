// A file with what a model has computed of the beginning of a prompt: its tokens, and the contents
// of KV blocks and of a recurrent state.
//
//   a head of fixed size, a description in JSON with the size and digest of each piece, the pieces
//
// A file appears under its name when it is whole, readable by its user only (it has the prompt's
// tokens), and is never changed. What is read is held against all it should be: nothing of a file
// is believed because it is there.
#ifndef LM_ENGINE_CACHE_PREFIX_FILE_H_
#define LM_ENGINE_CACHE_PREFIX_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/digest.h"

namespace lm {

struct PrefixDescription {
  std::string model;          // all that its numbers depend on beside the tokens
  std::string owner;          // whose it is
  std::string adapters = {};  // that it was computed with; empty: none
  // The blocks are those of the tokens [begin, tokens.size()); the ones before are there so that
  // they can be compared.
  int64_t begin = 0;
  std::vector<int32_t> tokens = {};
};

// What lies in one piece in a file: a block or a state.
struct PrefixPiece {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  Digest digest = {};

  friend bool operator==(const PrefixPiece&, const PrefixPiece&) = default;
};

// A description as a file has it.
struct PrefixHead {
  PrefixDescription description;
  std::vector<PrefixPiece> pieces = {};
  uint64_t bytes = 0;  // of the file
};

// Replaces what is at `path`. Unavailable, naming it, where the disk takes no more; then nothing is
// left of what was written.
absl::Status WritePrefixFile(const std::string& path, const PrefixDescription& description,
                             absl::Span<const absl::Span<const char>> pieces);

// FailedPrecondition for a file that is another user's, no plain file or no stored prefix by its
// first bytes; DataLoss where it is one that is damaged or cut, and may be removed; both name it
// and say how. Cancelled where the statement was interrupted.
absl::StatusOr<PrefixHead> ReadPrefixHead(const std::string& path);
// One of the file's pieces, as its head was: the bytes in `out` are those, or there is an error as
// above. REQUIRES: out.size() == piece.bytes.
absl::Status ReadPrefixPiece(const std::string& path, const PrefixPiece& piece,
                             absl::Span<char> out);
// The file's time tells what is used least: it was used now.
void TouchPrefixFile(const std::string& path);

// "<32 digits>.prefix"
std::string PrefixFileName(const Digest& digest);
// Paths of all in a folder that has such a name: whatever has another is somebody else's.
std::vector<std::string> ListPrefixFiles(const std::string& folder);

// A file as it counts against what a folder may hold.
struct PrefixFileUse {
  std::string path;
  int64_t bytes = 0;
  absl::Time used;
};
// Those that begin like a stored prefix.
std::vector<PrefixFileUse> ListPrefixUse(const std::string& folder);
// Removes what writers that are no more have left in a folder.
void RemoveLeftovers(const std::string& folder);

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_FILE_H_

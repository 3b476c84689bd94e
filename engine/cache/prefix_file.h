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
  std::string owner;          // PrefixKey's
  std::string adapters = {};  // PrefixKey's; empty: none
  // The file has the blocks of the tokens [begin, tokens.size()); the tokens before are there to be
  // compared with a prompt.
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
// Reads a piece of the file, which its head has described: the bytes in `out` have the piece's
// digest, or there is an error as above. REQUIRES: out.size() == piece.bytes.
absl::Status ReadPrefixPiece(const std::string& path, const PrefixPiece& piece,
                             absl::Span<char> out);
// A file's time tells what is used least: these were used now. Each goes on from those before it,
// and is used a little earlier: it is of no use without them, and so is the first to go.
void TouchPrefixFiles(const std::vector<std::string>& paths);

// "<32 digits>.prefix"
std::string PrefixFileName(const Digest& digest);
// Paths of the files in a folder that have such a name. Files with another name are not the
// store's.
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

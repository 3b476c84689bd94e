// A file with what a model has computed of the beginning of a prompt: its tokens, and the contents
// of KV blocks.
//
//   a head of fixed size, a description in JSON, the blocks; each with a digest
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
#include "absl/types/span.h"
#include "engine/base/digest.h"

namespace lm {

struct PrefixDescription {
  std::string model;  // all that its numbers depend on beside the tokens
  std::string owner;  // whose it is
  // The blocks are those of the tokens [begin, tokens.size()); the ones before are there so that
  // they can be compared.
  int64_t begin = 0;
  std::vector<int32_t> tokens = {};
};

// A description as a file has it.
struct PrefixHead {
  PrefixDescription description;
  uint64_t data_begin = 0;  // in the file
  uint64_t data_bytes = 0;
  Digest data_digest;
};

// Replaces what is at `path`. Unavailable, naming it, where the disk takes no more; then nothing is
// left of what was written.
absl::Status WritePrefixFile(const std::string& path, const PrefixDescription& description,
                             absl::Span<const char> data);

// FailedPrecondition for a file that is another user's or no plain file; DataLoss where it is
// damaged or cut; both name it and say how.
absl::StatusOr<PrefixHead> ReadPrefixHead(const std::string& path);
// The blocks. As above; also where the file is another now.
absl::StatusOr<std::vector<char>> ReadPrefixData(const std::string& path, const PrefixHead& head);

// Removes what writers that are no more have left in a folder.
void RemoveLeftovers(const std::string& folder);

}  // namespace lm

#endif  // LM_ENGINE_CACHE_PREFIX_FILE_H_

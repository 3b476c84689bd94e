// Reads the key-value part of a GGUF file.
#ifndef LM_ENGINE_GGUF_METADATA_READER_H_
#define LM_ENGINE_GGUF_METADATA_READER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/gguf/byte_cursor.h"
#include "engine/gguf/metadata.h"

namespace lm {

// What the decoded values may take in memory: the vocabulary (arrays under "tokenizer.") and
// everything else. The largest known vocabularies take 30 MB.
inline constexpr uint64_t kMaxVocabularyBytes = 128 << 20;
inline constexpr uint64_t kMaxMetadataBytes = 16 << 20;

// Reads `count` pairs. Nothing is allocated for a count or a length before that many bytes are
// known to be in the file. An error names the key, or the number of the pair where the key itself
// is damaged.
absl::StatusOr<Metadata> ReadMetadata(uint64_t count, ByteCursor* cursor);

}  // namespace lm

#endif  // LM_ENGINE_GGUF_METADATA_READER_H_

// Cuts a long text into chunks that a model can take, at ends of paragraphs and sentences.
//
//   for (TextChunk chunk; chunk.end < text.size();) {
//     ASSIGN_OR_RETURN(chunk, NextChunk(TokenizerSizes(tokenizer), text, chunk, {.tokens = 500}));
//     Use(chunk.Of(text));
//   }
//
// Every byte is in a chunk. White space stays with what it follows.
#ifndef LM_ENGINE_TEXT_TEXT_CHUNKS_H_
#define LM_ENGINE_TEXT_TEXT_CHUNKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/token_sizes.h"

namespace lm {

struct TextChunk {
  size_t begin = 0;    // byte
  size_t end = 0;      // byte; [begin, end) is whole characters
  int32_t tokens = 0;  // of the chunk alone, as TokenSizes has them

  absl::string_view Of(absl::string_view text) const { return text.substr(begin, end - begin); }
};

struct ChunkLimits {
  int32_t tokens = 1;   // most of a chunk; > 0
  int32_t overlap = 0;  // about how many of them repeat the end of the chunk before; < tokens
};

// The chunk behind `last` (TextChunk() for the first): it begins where that ends, or before, where
// they are to overlap, at a sentence or word (or inside of one that is longer than that); and it
// ends behind it.
//
// It has at most limits.tokens tokens, but at least one character, whatever that takes. What is
// left is one chunk where it fits; else the chunk ends with a paragraph if that fills half of it,
// or with a sentence or a line if that fills a quarter, or with a word, or in the middle of one
// that is longer than a chunk.
// REQUIRES: text is valid UTF-8; last.end < text.size().
absl::StatusOr<TextChunk> NextChunk(const TokenSizes& sizes, absl::string_view text,
                                    const TextChunk& last, const ChunkLimits& limits);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEXT_CHUNKS_H_

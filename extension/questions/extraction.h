// What lm_extract asks: the schema that its argument stands for, and the words for it.
#ifndef LM_EXTENSION_QUESTIONS_EXTRACTION_H_
#define LM_EXTENSION_QUESTIONS_EXTRACTION_H_

#include <string>

#include "absl/status/statusor.h"

namespace lm {

// The schema that `text` is, or is short for: names, or names with what they mean. What is neither
// is left to whoever compiles it. InvalidArgument, with what to write, for what may be either, and
// for a meaning that may be a type.
absl::StatusOr<std::string> ExtractionSchema(const std::string& text);

// The system prompt. REQUIRES: the schema compiles.
std::string ExtractionPrompt(const std::string& schema);

// What of that the caller has written, for RowPrompt::asked: the fields' names and what they mean.
std::string ExtractionWords(const std::string& schema);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_EXTRACTION_H_

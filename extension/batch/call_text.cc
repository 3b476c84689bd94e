#include "extension/batch/call_text.h"

#include "absl/hash/hash.h"

namespace lm {

CallText::CallText(const RowPrompt& row)
    : prompt(**row.prompt),
      system(row.system->value_or("")),
      question(row.question),
      chooses(row.chooses),
      begun(row.begun),
      embed(row.embed),
      options(row.options),
      hash(absl::HashOf(prompt, system, question, chooses, begun, embed.has_value(),
                        &options->generator(), options->generation.max_tokens,
                        options->generation.seed, options->generation.constraint)) {}

bool CallText::operator==(const CallText& other) const {
  return hash == other.hash && prompt == other.prompt && system == other.system &&
         question == other.question && chooses == other.chooses && begun == other.begun &&
         embed == other.embed &&
         (options == other.options || (options->generation == other.options->generation &&
                                       &options->generator() == &other.options->generator()));
}

}  // namespace lm

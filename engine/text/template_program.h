// Finds out what a Jinja chat template makes of a conversation, without knowing the conversation.
//
// A template is run on stand-ins for the texts: it may put them anywhere in its output but not look
// into them. So what comes out is right for every text; a template that does anything else (trims a
// message, searches it, calls functions) is refused. Today's subset of Jinja: if / elif / else, for
// over messages, set; strings, integers, comparison, and / or / not, + and ~, indexing, x if c else
// y, `is defined / none / string`, whitespace control as Hugging Face sets it (trim_blocks,
// lstrip_blocks). Expressions in branches that are not taken are not even parsed.
#ifndef LM_ENGINE_TEXT_TEMPLATE_PROGRAM_H_
#define LM_ENGINE_TEXT_TEMPLATE_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lm {

// A part of the output: text of the template's own, or the place of something else.
struct TemplateSegment {
  enum class Kind { kText, kSystem, kUser, kBos, kEos };
  Kind kind;
  std::string text;  // kText only
  bool operator==(const TemplateSegment& other) const {
    return kind == other.kind && text == other.text;
  }
};

// The output for [system message that is not empty,] user message, with the assistant's turn begun,
// and neither tools nor other options given. No two texts are next to each other. Unimplemented,
// saying what it is about, for anything outside the subset.
absl::StatusOr<std::vector<TemplateSegment>> RunTemplate(absl::string_view source,
                                                         bool with_system);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_PROGRAM_H_

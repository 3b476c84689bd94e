#include "extension/batch/call_text.h"

#include "absl/hash/hash.h"

namespace lm {
namespace {

using Options = std::shared_ptr<const CallOptions>;

bool SameOptions(const Options& a, const Options& b) {
  return a == b || (a->generation == b->generation && &a->generator() == &b->generator());
}

bool SameEscalation(const Escalation* a, const Escalation* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->below == b->below && a->confidence == b->confidence &&
         SameOptions(a->options, b->options);
}

bool SameParts(const ReadInParts* a, const ReadInParts* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

CallText::CallText(const RowPrompt& row)
    : prompt(**row.prompt),
      system(row.options->SystemOf(*row.system)),
      question(row.question),
      chooses(row.chooses),
      begun(row.begun),
      embed(row.embed),
      weighs(row.weighs),
      escalation(row.escalation),
      parts(row.parts),
      options(row.options),
      hash(absl::HashOf(prompt, system, question, chooses, begun, embed.has_value(), weighs,
                        escalation != nullptr ? escalation->below : -1.0, parts != nullptr,
                        &options->generator(), options->generation.max_tokens,
                        options->generation.seed, options->generation.constraint)) {}

bool CallText::operator==(const CallText& other) const {
  return hash == other.hash && prompt == other.prompt && system == other.system &&
         question == other.question && chooses == other.chooses && begun == other.begun &&
         embed == other.embed && weighs == other.weighs &&
         SameEscalation(escalation.get(), other.escalation.get()) &&
         SameParts(parts.get(), other.parts.get()) && SameOptions(options, other.options);
}

}  // namespace lm

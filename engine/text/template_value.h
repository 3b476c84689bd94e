// The values of a chat template's expressions.
#ifndef LM_ENGINE_TEXT_TEMPLATE_VALUE_H_
#define LM_ENGINE_TEXT_TEMPLATE_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/template_program.h"

namespace lm {

struct TemplateValue {
  enum class Kind { kUndefined, kNone, kBool, kInteger, kString, kMessages, kMessage, kLoop };
  Kind kind = Kind::kUndefined;
  int64_t integer = 0;                // kBool, kInteger; kMessage: which; kLoop: index0
  int64_t begin = 0;                  // kMessages: [begin, end) of the conversation
  int64_t end = 0;                    // ... kLoop: the number of rounds
  std::vector<TemplateSegment> text;  // kString
};

TemplateValue TextValue(std::string text);
TemplateValue SegmentValue(TemplateSegment::Kind kind);
TemplateValue BoolValue(bool value);
TemplateValue IntegerValue(int64_t value);

// The value of a string without stand-ins, or nullptr.
const std::string* KnownText(const TemplateValue& value);

// Whether a value counts as true; Unimplemented for the texts that are not known.
absl::StatusOr<bool> Truth(const TemplateValue& value);

// Appends, joining neighbouring texts. Unimplemented where *to grows beyond what a chat template
// could mean.
absl::Status AppendSegments(const std::vector<TemplateSegment>& from,
                            std::vector<TemplateSegment>* to);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_VALUE_H_

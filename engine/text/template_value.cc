#include "engine/text/template_value.h"

#include <utility>

#include "absl/status/status.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;

constexpr size_t kMaxTextBytes = 1 << 18;
constexpr size_t kMaxSegments = 256;

absl::Status Unknown(absl::string_view what) { return absl::UnimplementedError(what); }

}  // namespace

TemplateValue TextValue(std::string text) {
  TemplateValue value;
  value.kind = Kind::kString;
  if (!text.empty()) value.text.push_back({TemplateSegment::Kind::kText, std::move(text)});
  return value;
}

TemplateValue SegmentValue(TemplateSegment::Kind kind) {
  TemplateValue value;
  value.kind = Kind::kString;
  value.text.push_back({kind, ""});
  return value;
}

TemplateValue BoolValue(bool boolean) {
  TemplateValue value;
  value.kind = Kind::kBool;
  value.integer = boolean;
  return value;
}

TemplateValue IntegerValue(int64_t value) {
  TemplateValue result;
  result.kind = Kind::kInteger;
  result.integer = value;
  return result;
}

const std::string* KnownText(const TemplateValue& value) {
  static const std::string* const kEmpty = new std::string;
  if (value.kind != Kind::kString) return nullptr;
  if (value.text.empty()) return kEmpty;
  const TemplateSegment& first = value.text[0];
  return value.text.size() == 1 && first.kind == TemplateSegment::Kind::kText ? &first.text
                                                                              : nullptr;
}

absl::StatusOr<bool> Truth(const TemplateValue& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return value.integer != 0;
    case Kind::kMessages:
      return value.begin < value.end;
    case Kind::kMessage:
    case Kind::kLoop:
      return true;
    case Kind::kString:
      break;
  }
  if (value.text.empty()) return false;
  // Nothing but the user's text can be empty: see RunTemplate.
  for (const TemplateSegment& segment : value.text) {
    if (segment.kind != TemplateSegment::Kind::kUser) return true;
  }
  return Unknown("a condition on the user's text");
}

absl::Status AppendSegments(const std::vector<TemplateSegment>& from,
                            std::vector<TemplateSegment>* to) {
  size_t bytes = 0;
  for (const TemplateSegment& segment : *to) bytes += segment.text.size();
  for (const TemplateSegment& segment : from) {
    bytes += segment.text.size();
    if (bytes > kMaxTextBytes || to->size() >= kMaxSegments) return Unknown("a text of this size");
    if (segment.kind == TemplateSegment::Kind::kText && !to->empty() &&
        to->back().kind == TemplateSegment::Kind::kText) {
      to->back().text += segment.text;
    } else {
      to->push_back(segment);
    }
  }
  return absl::OkStatus();
}

}  // namespace lm

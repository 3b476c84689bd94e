// PromptForm: a prompt with places for fields, which each row fills with its own.
//
//   ASSIGN_OR_RETURN(PromptForm form, PromptForm::Parse("Review:\n{{*}}\nIn short, {{name}} is"));
//   ASSIGN_OR_RETURN(PromptFields fields, ReadPromptFields(R"({"name":"Moth","price":12})"));
//   form.Fill(fields, {"price"});    // "Review:\nprice: 12\nIn short, Moth is"
//
// {{name}} stands for a field, {{*}} for all that the form does not name: a line "name: value" for
// each, without those that are null. \{{ is {{ itself. What a field's text holds is never a place.
#ifndef LM_ENGINE_TEXT_CHAT_PROMPT_FORM_H_
#define LM_ENGINE_TEXT_CHAT_PROMPT_FORM_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lm {

struct PromptField {
  std::string name;
  std::optional<std::string> value;  // nullopt: null
};
using PromptFields = std::vector<PromptField>;

// The members of a JSON object, in its order: strings as they are, other values as JSON writes
// them. InvalidArgument where it is none, or a name is empty or there twice.
absl::StatusOr<PromptFields> ReadPromptFields(absl::string_view json);

// The line that stands for a field of {{*}}; REQUIRES: it is not null.
std::string LineOf(const PromptField& field);

// A value type.
class PromptForm {
 public:
  // InvalidArgument, with the place, for {{ without }} and for {{}}.
  static absl::StatusOr<PromptForm> Parse(absl::string_view text);

  // Whether the form names the field, so that {{*}} has no line for it.
  bool Names(absl::string_view field) const;
  // Whether there is a {{*}}.
  bool has_others() const;

  // The lines of {{*}} come in the order of `first`, then in that of the fields. A name in `first`
  // that is no field's, or one that the form names, is passed over; a named field that is null is
  // an empty text, and one that is not there InvalidArgument.
  absl::StatusOr<std::string> Fill(const PromptFields& fields,
                                   absl::Span<const std::string> first = {}) const;

 private:
  enum class Kind { kText, kField, kOthers };
  struct Piece {
    Kind kind;
    std::string text;  // or the field's name
  };

  std::string Others(const PromptFields& fields, absl::Span<const std::string> first) const;

  std::vector<Piece> pieces_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_PROMPT_FORM_H_

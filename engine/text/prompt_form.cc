#include "engine/text/prompt_form.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kOpen = "{{";
constexpr absl::string_view kClose = "}}";
constexpr absl::string_view kOthersMark = "*";

const PromptField* FindField(const PromptFields& fields, absl::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [name](const PromptField& field) { return field.name == name; });
  return found != fields.end() ? &*found : nullptr;
}

}  // namespace

absl::StatusOr<PromptFields> ReadPromptFields(absl::string_view json) {
  const std::optional<Json> object = Json::Parse(json);
  if (!object.has_value() || !object->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields must be a JSON object, name -> value, got ", json.substr(0, 40),
                     json.size() > 40 ? "..." : ""));
  }
  PromptFields fields;
  for (const auto& [name, value] : object->members()) {
    if (name.empty()) return absl::InvalidArgumentError("a field's name is empty");
    if (FindField(fields, name) != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("field '", name, "' is there twice"));
    }
    fields.push_back({.name = name, .value = std::nullopt});
    if (!value.is_null()) fields.back().value = value.is_string() ? value.string() : value.Dump();
  }
  return fields;
}

std::string LineOf(const PromptField& field) {
  return absl::StrCat(field.name, ": ", *field.value);
}

absl::StatusOr<PromptForm> PromptForm::Parse(absl::string_view text) {
  PromptForm form;
  std::string plain;
  for (size_t at = 0;;) {
    const size_t open = text.find(kOpen, at);
    const bool escaped = open != text.npos && open > at && text[open - 1] == '\\';
    absl::StrAppend(&plain, text.substr(at, open == text.npos ? open : open - at - escaped));
    if (open == text.npos) break;
    at = open + kOpen.size();
    if (escaped) {
      absl::StrAppend(&plain, kOpen);
      continue;
    }
    const size_t close = text.find(kClose, at);
    if (close == text.npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("template: {{ at byte ", open, " has no }} behind it; \\{{ is two braces"));
    }
    const absl::string_view name = absl::StripAsciiWhitespace(text.substr(at, close - at));
    if (name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("template: {{}} at byte ", open, " names no field"));
    }
    if (!plain.empty()) form.pieces_.push_back({Kind::kText, std::exchange(plain, "")});
    form.pieces_.push_back({name == kOthersMark ? Kind::kOthers : Kind::kField, std::string(name)});
    at = close + kClose.size();
  }
  if (!plain.empty()) form.pieces_.push_back({Kind::kText, std::move(plain)});
  return form;
}

bool PromptForm::Names(absl::string_view field) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [field](const Piece& piece) {
    return piece.kind == Kind::kField && piece.text == field;
  });
}

bool PromptForm::has_others() const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [](const Piece& piece) { return piece.kind == Kind::kOthers; });
}

absl::StatusOr<std::string> PromptForm::Fill(const PromptFields& fields,
                                             absl::Span<const std::string> first) const {
  std::string prompt;
  for (const Piece& piece : pieces_) {
    switch (piece.kind) {
      case Kind::kText:
        prompt += piece.text;
        break;
      case Kind::kOthers:
        prompt += Others(fields, first);
        break;
      case Kind::kField: {
        const PromptField* const field = FindField(fields, piece.text);
        if (field == nullptr) {
          return absl::InvalidArgumentError(absl::StrCat(
              "the template's field '", piece.text, "' is none of the row's: ",
              absl::StrJoin(fields, ", ", [](std::string* out, const PromptField& one) {
                absl::StrAppend(out, one.name);
              })));
        }
        prompt += field->value.value_or("");
        break;
      }
    }
  }
  return prompt;
}

std::string PromptForm::Others(const PromptFields& fields,
                               absl::Span<const std::string> first) const {
  std::vector<const PromptField*> order;
  auto add = [&](const PromptField* field) {
    if (field == nullptr || !field->value.has_value() || Names(field->name)) return;
    if (std::find(order.begin(), order.end(), field) == order.end()) order.push_back(field);
  };
  for (const std::string& name : first) add(FindField(fields, name));
  for (const PromptField& field : fields) add(&field);
  return absl::StrJoin(order, "\n", [](std::string* out, const PromptField* field) {
    absl::StrAppend(out, LineOf(*field));
  });
}

}  // namespace lm

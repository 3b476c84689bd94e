#include "engine/text/chat/prompt_form.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kOpen = "{{";
constexpr absl::string_view kClose = "}}";
constexpr absl::string_view kOthersMark = "*";

// Whether a loop over fields asks, at that one, whether anybody waits.
bool IsCheckpoint(size_t field) { return field % 1024 == 0; }

// How many bytes of `text` are a number of JSON at its beginning.
size_t NumberBytes(absl::string_view text) {
  size_t at = absl::StartsWith(text, "-");
  auto digits = [&] {
    const size_t first = at;
    while (at < text.size() && absl::ascii_isdigit(text[at])) ++at;
    return at > first;
  };
  auto is = [&](absl::string_view any) {
    return at < text.size() && any.find(text[at]) != any.npos;
  };
  const bool zero = is("0");
  const size_t first = at;
  if (!digits() || (zero && at > first + 1)) return 0;
  if (is(".") && (++at, !digits())) return 0;
  if (!is("eE")) return at;
  ++at;
  if (is("+-")) ++at;
  return digits() ? at : 0;
}

// `json` with `other` of each number in the place of it.
std::string WithNumbers(absl::string_view json,
                        absl::FunctionRef<std::string(absl::string_view number)> other) {
  std::string text;
  bool in_string = false;
  for (size_t at = 0; at < json.size();) {
    const bool number = !in_string && (absl::ascii_isdigit(json[at]) || json[at] == '-');
    if (number) {
      const absl::string_view run =
          json.substr(at, json.find_first_not_of("0123456789+-.eE", at) - at);
      // What is none is left to whoever reads the JSON.
      text += NumberBytes(run) == run.size() ? other(run) : std::string(run);
      at += run.size();
      continue;
    }
    if (json[at] == '"') in_string = !in_string;
    if (json[at] == '\\' && in_string && at + 1 < json.size()) text += json[at++];
    text += json[at++];
  }
  return text;
}

}  // namespace

absl::StatusOr<PromptFields> ReadPromptFields(absl::string_view json) {
  // Numbers stay as they are written, also those beyond a double: what is parsed has their places.
  std::vector<absl::string_view> numbers;
  const std::optional<Json> object =
      Json::Parse(WithNumbers(json, [&numbers](absl::string_view number) {
        numbers.push_back(number);
        return absl::StrCat(numbers.size() - 1);
      }));
  auto written = [&numbers](absl::string_view place) {
    size_t number = 0;
    return absl::SimpleAtoi(place, &number) ? std::string(numbers[number]) : "";
  };
  if (!object.has_value() || !object->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields must be a JSON object, name -> value, got ", json.substr(0, 40),
                     json.size() > 40 ? "..." : ""));
  }
  PromptFields fields;
  HashSet<absl::string_view> names;
  for (const auto& [name, value] : object->members()) {
    if (IsCheckpoint(fields.size())) RETURN_IF_ERROR(Checkpoint());
    if (name.empty()) return absl::InvalidArgumentError("a field's name is empty");
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("field '", name, "' is there twice"));
    }
    fields.push_back({.name = name, .value = std::nullopt});
    if (value.is_null()) continue;
    fields.back().value = value.is_string() ? value.string() : WithNumbers(value.Dump(), written);
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
  HashMap<absl::string_view, const PromptField*> by_name;
  for (const PromptField& field : fields) {
    if (IsCheckpoint(by_name.size())) RETURN_IF_ERROR(Checkpoint());
    by_name.emplace(field.name, &field);
  }
  std::string prompt;
  for (const Piece& piece : pieces_) {
    RETURN_IF_ERROR(Checkpoint());
    switch (piece.kind) {
      case Kind::kText:
        prompt += piece.text;
        break;
      case Kind::kOthers:
        prompt += Others(fields, first);
        break;
      case Kind::kField: {
        const auto field = by_name.find(piece.text);
        if (field == by_name.end()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "the template's field '", piece.text, "' is none of the row's: ",
              absl::StrJoin(fields, ", ", [](std::string* out, const PromptField& one) {
                absl::StrAppend(out, one.name);
              })));
        }
        prompt += field->second->value.value_or("");
        break;
      }
    }
  }
  RETURN_IF_ERROR(Checkpoint());
  return prompt;
}

// Interrupted, it leaves fields out.
std::string PromptForm::Others(const PromptFields& fields,
                               absl::Span<const std::string> first) const {
  HashMap<absl::string_view, const PromptField*> others;
  for (const PromptField& field : fields) {
    if (IsCheckpoint(others.size()) && Interrupted()) return "";
    if (field.value.has_value()) others.emplace(field.name, &field);
  }
  for (const Piece& piece : pieces_) {
    if (piece.kind == Kind::kField) others.erase(piece.text);
  }
  std::vector<const PromptField*> order;
  auto take = [&](absl::string_view name) {
    if (IsCheckpoint(order.size()) && Interrupted()) return;
    const auto found = others.find(name);
    if (found == others.end()) return;
    order.push_back(found->second);
    others.erase(found);
  };
  for (const std::string& name : first) take(name);
  for (const PromptField& field : fields) take(field.name);
  return absl::StrJoin(order, "\n", [](std::string* out, const PromptField* field) {
    absl::StrAppend(out, LineOf(*field));
  });
}

}  // namespace lm

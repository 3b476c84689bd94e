// lm_classify(text, labels [, instruction [, options]])   TEXT: one of the labels
//
//   SELECT lm_classify('The battery lasts two days.', '["praise","complaint","question"]');
//   SELECT lm_classify(body, '{"bug":"something does not work","wish":"something is missing"}',
//                      'Sort the letter to the maintainers.') AS kind, count(*)
//     FROM letters GROUP BY kind;
//
// `labels` is a JSON array of strings, or an object from each label to what it means. The answer is
// exactly one of them: the model can say nothing else. The model is told
//   {instruction} Answer with one of: {labels}.          without one: Classify the text as one of
//   ...
// and the descriptions, a line each, in the system prompt, which all rows share; the text is its
// user's part. Labels that differ in their first token cost no decode step.
//
// With {"vote": 5} it is what most of five answers say, at a temperature of 1 unless the options
// name another; a tie is the row's failure (on_error).
//
// A NULL text gives NULL. Labels that are none, or of another type, are errors that name them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "extension/batch/look_ahead.h"
#include "extension/connection/own_options.h"
#include "extension/functions/constrained_options.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

constexpr absl::string_view kWanted =
    "labels must be a JSON array of strings, or an object from labels to descriptions";

struct Label {
  std::string name;
  std::string description;  // may be empty
};

absl::Status Mistake(absl::string_view what) { return absl::InvalidArgumentError(what); }

class LabelReader : public JsonEvents {
 public:
  absl::Status status() const { return status_; }
  std::vector<Label> TakeLabels() { return std::move(labels_); }

  bool Null() override { return in_object_ || Refuse("null"); }
  bool Bool(bool value) override { return Refuse(value ? "true" : "false"); }
  bool Integer(int64_t value) override { return Refuse(absl::StrCat(value)); }
  bool Unsigned(uint64_t value) override { return Refuse(absl::StrCat(value)); }
  bool Real(double, const std::string& text) override { return Refuse(text); }
  bool String(std::string value) override {
    if (!begun_) return Refuse("a single string");
    if (!in_object_) return Add(std::move(value));
    labels_.back().description = std::move(value);
    return true;
  }
  bool BeginArray() override { return begun_ ? Refuse("an array") : (begun_ = true); }
  bool BeginObject() override {
    return begun_ ? Refuse("an object") : (begun_ = in_object_ = true);
  }
  bool Key(std::string name) override { return Add(std::move(name)); }
  bool EndArray() override { return true; }
  bool EndObject() override { return true; }
  void SyntaxError(size_t position, absl::string_view) override {
    status_ = Mistake(absl::StrCat(kWanted, ": a syntax error at byte ", position - 1));
  }

 private:
  bool Add(std::string name) {
    if (!names_.insert(name).second) {
      status_ = Mistake(absl::StrCat("label '", Printable(name), "' is there twice"));
      return false;
    }
    labels_.push_back({std::move(name), ""});
    return true;
  }
  bool Refuse(absl::string_view got) {
    if (!begun_) {
      status_ = Mistake(absl::StrCat(kWanted, ", got ", got));
    } else if (in_object_) {
      status_ = Mistake(absl::StrCat("the description of label '", Printable(labels_.back().name),
                                     "' must be a string or null, got ", got));
    } else {
      status_ = Mistake(absl::StrCat("labels[", labels_.size(), "] must be a string, got ", got));
    }
    return false;
  }

  bool begun_ = false;
  bool in_object_ = false;
  std::vector<Label> labels_;
  HashSet<std::string> names_;
  absl::Status status_;
};

// ["a", "b"] or {"a": "what a means", "b": null}, in that order. InvalidArgument for anything else,
// naming the label: one that is not text, that is empty or there twice; for none at all.
absl::StatusOr<std::vector<Label>> ParseLabels(absl::string_view text) {
  LabelReader reader;
  ReadJson(text, &reader);
  RETURN_IF_ERROR(reader.status());
  std::vector<Label> labels = reader.TakeLabels();
  if (labels.empty()) return Mistake("labels must not be empty");
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i].name.empty()) {
      return Mistake(absl::StrCat("label ", i + 1, " of ", labels.size(), " is empty"));
    }
  }
  return labels;
}

// As the option `choices` has them: ["a","b"].
std::string ChoicesOf(const std::vector<Label>& labels) {
  Json names = Json::MakeArray();
  for (const Label& label : labels) names.Append(label.name);
  return names.Dump();
}

// "a, b, c".
std::string NamesOf(const std::vector<Label>& labels) {
  return absl::StrJoin(
      labels, ", ", [](std::string* out, const Label& label) { absl::StrAppend(out, label.name); });
}

// A line for each label that has a description: "\n- a: what a means".
std::string DescriptionsOf(const std::vector<Label>& labels) {
  std::string lines;
  for (const Label& label : labels) {
    if (!label.description.empty()) {
      absl::StrAppend(&lines, "\n- ", label.name, ": ", label.description);
    }
  }
  return lines;
}

absl::Status Classify(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string json, NeededText(call, 1, "labels"));
  ASSIGN_OR_RETURN(const std::vector<Label> labels, ParseLabels(json));
  ASSIGN_OR_RETURN(const std::optional<std::string> instruction, call.Text(2, "instruction"));
  if (instruction.has_value()) RETURN_IF_ERROR(CheckNotOptions(*instruction, "instruction"));
  ASSIGN_OR_RETURN(
      std::shared_ptr<const CallOptions> options,
      ConstrainedOptions(call, 3, {AnswerConstraint::Kind::kChoices, ChoicesOf(labels)}));
  std::string system = instruction.has_value() && !instruction->empty()
                           ? absl::StrCat(*instruction, " Answer with one of: ")
                           : "Classify the text as one of ";
  absl::StrAppend(&system, NamesOf(labels), ".", DescriptionsOf(labels));
  return AnswerRow(
      call,
      {.prompt = call.Text(0, "text"), .system = std::move(system), .options = std::move(options)});
}

}  // namespace

int RegisterClassify(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Classify>(connection, {"lm_classify", 2, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm

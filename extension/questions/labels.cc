#include "extension/questions/labels.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kWanted =
    "labels must be a JSON array of strings, or an object from labels to descriptions";

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

// "a, b, c".
std::string ListedLabels(const std::vector<Label>& labels) {
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

}  // namespace

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
  RETURN_IF_ERROR(Checkpoint());
  return labels;
}

std::string ChoicesOf(const std::vector<Label>& labels) {
  Json names = Json::MakeArray();
  for (const Label& label : labels) names.Append(label.name);
  return names.Dump();
}

std::vector<std::string> NamesOf(const std::vector<Label>& labels) {
  std::vector<std::string> names;
  for (const Label& label : labels) names.push_back(label.name);
  return names;
}

std::string ClassifyPrompt(const std::optional<std::string>& instruction,
                           const std::vector<Label>& labels) {
  const std::string asked = instruction.has_value() && !instruction->empty()
                                ? absl::StrCat(*instruction, " Answer with one of: ")
                                : "Classify the text as one of ";
  return absl::StrCat(asked, ListedLabels(labels), ".", DescriptionsOf(labels));
}

std::string ClassifyWords(const std::optional<std::string>& instruction,
                          const std::vector<Label>& labels) {
  return absl::StrCat(instruction.value_or(""), "\n", ListedLabels(labels), DescriptionsOf(labels));
}

std::string LabelQuestion(const std::optional<std::string>& instruction, const Label& label) {
  std::string question = label.description;
  if (!absl::EndsWith(question, "?")) {
    question = absl::StrCat("Does the label \"", label.name, "\" apply",
                            question.empty() ? "" : ", which means: ", question, "?");
  }
  const bool instructed = instruction.has_value() && !instruction->empty();
  return absl::StrCat(instructed ? *instruction : "", instructed ? " " : "", question,
                      " Answer yes or no.");
}

}  // namespace lm

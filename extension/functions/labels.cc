#include "extension/functions/labels.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/hash_map.h"
#include "engine/base/json.h"
#include "engine/base/read_json.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

using nlohmann::json;

constexpr absl::string_view kWanted =
    "labels must be a JSON array of strings, or an object from labels to descriptions";

absl::Status Mistake(absl::string_view what) { return absl::InvalidArgumentError(what); }

// The parser's events; each returns whether to go on.
class LabelReader : public nlohmann::json_sax<json> {
 public:
  absl::Status status() const { return status_; }
  std::vector<Label> TakeLabels() { return std::move(labels_); }

  bool null() override { return in_object_ || Refuse("null"); }
  bool boolean(bool value) override { return Refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Refuse(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Refuse(absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& text) override { return Refuse(text); }
  bool binary(binary_t&) override { return Refuse("binary data"); }
  bool string(string_t& value) override {
    if (!begun_) return Refuse("a single string");
    if (!in_object_) return Add(std::move(value));
    labels_.back().description = std::move(value);
    return true;
  }
  bool start_array(std::size_t) override { return begun_ ? Refuse("an array") : (begun_ = true); }
  bool start_object(std::size_t) override {
    return begun_ ? Refuse("an object") : (begun_ = in_object_ = true);
  }
  bool key(string_t& name) override { return Add(std::move(name)); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    status_ = Mistake(absl::StrCat(kWanted, ": a syntax error at byte ", position - 1));
    return false;
  }

 private:
  bool Add(std::string name) {
    if (!names_.insert(name).second) {
      status_ =
          Mistake(absl::StrCat("label '", absl::Utf8SafeCHexEscape(name), "' is there twice"));
      return false;
    }
    labels_.push_back({std::move(name), ""});
    return true;
  }
  bool Refuse(absl::string_view got) {
    if (!begun_) {
      status_ = Mistake(absl::StrCat(kWanted, ", got ", got));
    } else if (in_object_) {
      status_ = Mistake(absl::StrCat("the description of label '",
                                     absl::Utf8SafeCHexEscape(labels_.back().name),
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
  return labels;
}

std::string ChoicesOf(const std::vector<Label>& labels) {
  Json names = Json::MakeArray();
  for (const Label& label : labels) names.Append(label.name);
  return names.Dump();
}

std::string NamesOf(const std::vector<Label>& labels) {
  return absl::StrJoin(
      labels, ", ", [](std::string* out, const Label& label) { absl::StrAppend(out, label.name); });
}

std::string DescriptionsOf(const std::vector<Label>& labels) {
  std::string lines;
  for (const Label& label : labels) {
    if (!label.description.empty()) {
      absl::StrAppend(&lines, "\n- ", label.name, ": ", label.description);
    }
  }
  return lines;
}

}  // namespace lm

#include "extension/cli/arguments.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lm::cli {
namespace {

// Insertions, deletions and replacements from one to the other.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = Distance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

absl::StatusOr<Arguments> Arguments::Parse(const std::vector<Option>& options,
                                           const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (word == "--") {
      arguments.rest_.insert(arguments.rest_.end(), words.begin() + i + 1, words.end());
      break;
    }
    if (!absl::StartsWith(word, "--")) {
      arguments.rest_.emplace_back(word);
      continue;
    }
    word.remove_prefix(2);
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    const auto found = std::find_if(options.begin(), options.end(),
                                    [name](const Option& option) { return option.name == name; });
    if (found == options.end()) {
      std::vector<std::string> names;
      for (const Option& option : options) names.push_back(option.name);
      const std::string nearest = Nearest(name, names);
      return absl::InvalidArgumentError(
          absl::StrCat("there is no option --", name,
                       nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?")));
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      if (found->value == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
      }
      value = std::string(word.substr(equals + 1));
    } else if (found->value != nullptr) {
      if (++i == words.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value: --", name, " ", found->value));
      }
      value = words[i];
    }
    arguments.values_[std::string(name)] = std::move(value);
  }
  return arguments;
}

std::string Arguments::Get(absl::string_view name, absl::string_view otherwise) const {
  const auto found = values_.find(name);
  return found != values_.end() ? found->second : std::string(otherwise);
}

absl::StatusOr<std::string> Arguments::Required(absl::string_view name) const {
  if (!Has(name)) return absl::InvalidArgumentError(absl::StrCat("--", name, " is missing"));
  return Get(name);
}

absl::StatusOr<int64_t> Arguments::Integer(absl::string_view name, int64_t otherwise, int64_t least,
                                           int64_t most) const {
  if (!Has(name)) return otherwise;
  int64_t value;
  if (!absl::SimpleAtoi(Get(name), &value) || value < least || value > most) {
    return absl::InvalidArgumentError(absl::StrCat("--", name, " must be a whole number from ",
                                                   least, " to ", most, ", got '", Get(name), "'"));
  }
  return value;
}

}  // namespace lm::cli

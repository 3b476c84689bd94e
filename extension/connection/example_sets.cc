#include "extension/connection/example_sets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lm {

void ExampleSets::Put(NamedExample example) {
  const auto place =
      std::lower_bound(rows_.begin(), rows_.end(), example.rowid,
                       [](const NamedExample& row, int64_t rowid) { return row.rowid < rowid; });
  if (place != rows_.end() && place->rowid == example.rowid) {
    *place = std::move(example);
  } else {
    rows_.insert(place, std::move(example));
  }
  Gather();
}

void ExampleSets::Remove(int64_t rowid) {
  std::erase_if(rows_, [rowid](const NamedExample& row) { return row.rowid == rowid; });
  Gather();
}

void ExampleSets::Gather() {
  std::map<std::string, std::vector<Example>> lists;
  for (const NamedExample& row : rows_) lists[row.name].push_back(row.example);
  sets_.clear();
  for (auto& [name, list] : lists) sets_.emplace(name, Examples(std::move(list)));
}

absl::Status ExampleSets::Resolve(GenerationOptions* options) const {
  const std::string& name = options->examples.set();
  if (name.empty()) return absl::OkStatus();
  const auto set = sets_.find(name);
  if (set == sets_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "no examples '", name, "' in temp.lm_examples",
        sets_.empty()
            ? ", which is empty"
            : absl::StrCat("; it has ",
                           absl::StrJoin(sets_, ", ", [](std::string* out, const auto& s) {
                             absl::StrAppend(out, "'", s.first, "'");
                           }))));
  }
  options->examples = set->second;
  return absl::OkStatus();
}

}  // namespace lm

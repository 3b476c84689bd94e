#include "extension/connection/example_sets.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lm {

void ExampleSets::Put(NamedExample example) {
  gathered_ = false;
  rows_.insert_or_assign(example.rowid, std::move(example));
}

void ExampleSets::Remove(int64_t rowid) {
  gathered_ = false;
  rows_.erase(rowid);
}

void ExampleSets::Gather() {
  std::map<std::string, std::vector<Example>> lists;
  for (const auto& [rowid, row] : rows_) lists[row.name].push_back(row.example);
  sets_.clear();
  for (auto& [name, list] : lists) sets_.emplace(name, Examples(std::move(list)));
  gathered_ = true;
}

absl::Status ExampleSets::Resolve(GenerationOptions* options) {
  const std::string& name = options->examples.set();
  if (name.empty()) return absl::OkStatus();
  if (!gathered_) Gather();
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

#include "extension/connection/example_sets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lm {

void ExampleSets::Put(NamedExample example) {
  Remove(example.rowid);
  rows_.emplace(example.rowid, std::move(example));
}

void ExampleSets::Remove(int64_t rowid) {
  gathered_ = false;
  if (const std::shared_ptr<Changes> changes = changes_.lock()) {
    changes->push_back({rowid, {}});
    changes->back().before = rows_.extract(rowid);
  } else {
    rows_.erase(rowid);
  }
}

std::shared_ptr<const ExampleSets::Saved> ExampleSets::Save() {
  std::shared_ptr<Changes> changes = changes_.lock();
  if (changes == nullptr) changes_ = changes = std::make_shared<Changes>();
  const size_t before = changes->size();
  return std::make_shared<Saved>(Saved{std::move(changes), before});
}

void ExampleSets::Restore(const Saved& saved) {
  gathered_ = false;
  for (Changes& changes = *saved.changes; changes.size() > saved.before; changes.pop_back()) {
    Change& last = changes.back();
    rows_.erase(last.rowid);
    if (last.before) rows_.insert(std::move(last.before));
  }
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

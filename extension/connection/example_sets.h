// What temp.lm_examples holds: questions with their answers, in sets that calls name.
#ifndef LM_EXTENSION_CONNECTION_EXAMPLE_SETS_H_
#define LM_EXTENSION_CONNECTION_EXAMPLE_SETS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/generation_options.h"

namespace lm {

struct NamedExample {
  int64_t rowid = 0;
  std::string name;  // of its set
  Example example;
};

class ExampleSets {
 public:
  // Adds one, or replaces the one with its rowid. A set has its examples in the order of rowids.
  void Put(NamedExample example);
  void Remove(int64_t rowid);
  int64_t NextRowid() const { return rows_.empty() ? 1 : rows_.rbegin()->first + 1; }
  const std::map<int64_t, NamedExample>& rows() const { return rows_; }  // by rowid

  // Where a transaction may go back to. Rows may be written one by one, each in a transaction of
  // its own: saving copies nothing, and changes are noted while there is a Saved.
  struct Saved {
    std::shared_ptr<const void> is_there;
    size_t changes;
  };
  std::shared_ptr<const Saved> Save();
  void Restore(const Saved& saved);

  // Where the options name a set, gives them its examples. NotFound, with the names of all sets,
  // where there is none of that name.
  absl::Status Resolve(GenerationOptions* options);

 private:
  using Rows = std::map<int64_t, NamedExample>;
  struct Change {
    int64_t rowid;
    Rows::node_type before;  // empty: there was none
  };

  void Gather();

  Rows rows_;
  std::vector<Change> changes_;  // since what was saved first
  const std::shared_ptr<const void> is_saved_ = std::make_shared<char>();  // each Saved shares it
  bool gathered_ = true;  // since the last change; rows are mostly written many at a time
  std::map<std::string, Examples, std::less<>> sets_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_EXAMPLE_SETS_H_

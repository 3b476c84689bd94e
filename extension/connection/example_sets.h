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
  using Rows = std::map<int64_t, NamedExample>;  // by rowid
  // Adds one, or replaces the one with its rowid. A set has its examples in the order of rowids.
  void Put(NamedExample example);
  void Remove(int64_t rowid);
  int64_t NextRowid() const { return rows_.empty() ? 1 : rows_.rbegin()->first + 1; }
  const Rows& rows() const { return rows_; }

  struct Change {
    int64_t rowid;
    Rows::node_type before;  // empty: there was none
  };
  // What has changed since what was saved first; it goes with the last Saved.
  using Changes = std::vector<Change>;
  // Where a transaction may go back to. Rows may be written one by one, each in a transaction of
  // its own: saving copies nothing, and changes are noted while there is a Saved.
  struct Saved {
    std::shared_ptr<Changes> changes;
    size_t before;  // of them
  };
  std::shared_ptr<const Saved> Save();
  void Restore(const Saved& saved);

  // Where the options name a set, gives them its examples. NotFound, with the names of all sets,
  // where there is none of that name.
  absl::Status Resolve(GenerationOptions* options);

 private:
  void Gather();

  Rows rows_;
  std::weak_ptr<Changes> changes_;
  bool gathered_ = true;  // since the last change; rows are mostly written many at a time
  std::map<std::string, Examples, std::less<>> sets_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_EXAMPLE_SETS_H_

#include "engine/text/merge_table.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lm {

absl::StatusOr<MergeTable> MergeTable::Read(const Vocabulary& vocabulary, const TokenIndex& index) {
  if (vocabulary.merges.size() > UINT32_MAX) {
    return absl::InvalidArgumentError("tokenizer.ggml.merges: more than 2^32 merges");
  }
  MergeTable table;
  table.merges_.Reserve(vocabulary.merges.size());
  std::string merged;
  size_t num_missing = 0;
  absl::Status missing;  // the first
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const absl::string_view merge = vocabulary.merges[rank];
    auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges[", rank, "] is ", QuoteName(merge), ": ", why));
    };
    const size_t space = merge.find(' ', 1);
    if (space == absl::string_view::npos || space + 1 == merge.size()) {
      return refuse("wanted two tokens with a space between them");
    }
    const absl::string_view left = merge.substr(0, space);
    const absl::string_view right = merge.substr(space + 1);
    merged.assign(left.data(), left.size());
    merged.append(right.data(), right.size());
    const absl::string_view names[] = {left, right, merged};
    int32_t ids[3];
    bool plain = true;
    for (int i = 0; i < 3; ++i) {
      ids[i] = index.Find(names[i]);
      if (ids[i] < 0) {
        ++num_missing;
        missing.Update(refuse(absl::StrCat("there is no token ", QuoteName(names[i]))));
        plain = false;
        break;
      }
      plain = plain && index.IsPlain(ids[i]);
    }
    if (!plain) continue;
    // Of merges of the same pair the first counts.
    table.merges_.Insert(Key(ids[0], ids[1]), Merge{static_cast<uint32_t>(rank), ids[2]});
  }
  // Of vocabularies that were cut some merges are left over; where most are, they are another's.
  if (2 * num_missing > vocabulary.merges.size()) return missing;
  return table;
}

}  // namespace lm

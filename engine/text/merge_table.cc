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
    for (absl::string_view name : {left, right, absl::string_view(merged)}) {
      if (index.Find(name) >= 0) continue;
      ++num_missing;
      missing.Update(refuse(absl::StrCat("there is no token ", QuoteName(name))));
      break;
    }
    const int32_t left_id = index.FindPlain(left);
    const int32_t right_id = index.FindPlain(right);
    const int32_t id = index.FindPlain(merged);
    if (left_id < 0 || right_id < 0 || id < 0) continue;
    // Of merges of the same pair the first counts.
    table.merges_.Insert(Key(left_id, right_id), Merge{static_cast<uint32_t>(rank), id});
  }
  // Of vocabularies that were cut some merges are left over; where most are, they are another's.
  if (2 * num_missing > vocabulary.merges.size()) return missing;
  return table;
}

}  // namespace lm

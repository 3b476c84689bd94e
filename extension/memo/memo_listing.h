// MemoListing: what lm_memo shows of a memo, a page at a time, so that no reader waits for all of
// it.
//
//   MemoListing listing(file, owner, /*texts=*/true);
//   for (;;) {
//     ASSIGN_OR_RETURN(const std::vector<MemoEntryInfo> page, listing.NextPage());
//     if (page.empty()) break;
//     ...
//   }
//
// First what is in the file, in the order it came, and then what memory alone still has of it
// (others may have deleted it there), with ids below 0. What comes while it is listed is left out.
#ifndef LM_EXTENSION_MEMO_MEMO_LISTING_H_
#define LM_EXTENSION_MEMO_MEMO_LISTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/runtime/memo.h"
#include "extension/memo/memo_file.h"

namespace lm {

// Not thread-safe.
class MemoListing {
 public:
  // Without a file, what is in memory of `owner`, with ids as Memo::Forget takes them. `texts`:
  // with prompts and answers.
  MemoListing(std::shared_ptr<MemoFile> file, std::string owner, bool texts)
      : file_(std::move(file)), owner_(std::move(owner)), texts_(texts) {}

  // The next entries; none behind the last one. Cancelled where the thread is interrupted.
  absl::StatusOr<std::vector<MemoEntryInfo>> NextPage();

 private:
  absl::Status Begin();
  MemoEntryInfo InfoOf(MemoFileRow row);
  std::vector<MemoEntryInfo> PageOfMemory();

  const std::shared_ptr<MemoFile> file_;  // may be null
  const std::string owner_;
  const bool texts_;
  bool began_ = false;
  MemoRange in_file_;
  MemoRange in_memory_;
  HashSet<int64_t> seen_;  // those in memory that the file has, too
};

}  // namespace lm

#endif  // LM_EXTENSION_MEMO_MEMO_LISTING_H_

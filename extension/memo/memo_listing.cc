#include "extension/memo/memo_listing.h"

#include <limits>
#include <optional>
#include <utility>

#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status MemoListing::Begin() {
  // In this order: what is in memory by now is in the file by then, if it can be written.
  in_memory_.last = ProcessMemo().last_id();
  if (file_ != nullptr) {
    ASSIGN_OR_RETURN(const int64_t last, file_->LastId());
    in_file_ = {.after = std::numeric_limits<int64_t>::min(), .last = last};
  } else {
    in_file_ = {.after = 0, .last = 0};
  }
  began_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MemoEntryInfo>> MemoListing::NextPage() {
  if (!began_) RETURN_IF_ERROR(Begin());
  std::vector<MemoEntryInfo> page;
  while (page.empty() && !in_file_.done()) {
    ASSIGN_OR_RETURN(std::vector<MemoFileRow> rows, file_->Rows(&in_file_));
    for (MemoFileRow& row : rows) page.push_back(InfoOf(std::move(row)));
  }
  while (page.empty() && !in_memory_.done()) {
    RETURN_IF_ERROR(Checkpoint());
    page = PageOfMemory();
  }
  return page;
}

// A row that is not ours has nothing but its id.
MemoEntryInfo MemoListing::InfoOf(MemoFileRow row) {
  MemoEntryInfo info;
  info.id = row.id;
  if (!row.entry.has_value()) return info;
  info.bytes = BytesOf(*row.entry);
  info.created = row.created;
  info.used = row.used;
  auto& [key, answer] = *row.entry;
  key.owner = owner_;
  const Memo::Known known = ProcessMemo().Find(key);
  info.hits = known.hits;
  seen_.insert(known.id);
  info.model = key.model;
  info.options = key.options;
  info.tokens = int64_t{answer.tokens_in} + answer.tokens_out;
  if (texts_) {
    info.prompt = std::move(key.prompt);
    info.answer = std::move(answer.text);
  }
  return info;
}

std::vector<MemoEntryInfo> MemoListing::PageOfMemory() {
  std::vector<MemoEntryInfo> page = ProcessMemo().Entries(owner_, &in_memory_, texts_);
  if (file_ == nullptr) return page;
  std::erase_if(page, [&](const MemoEntryInfo& info) { return seen_.contains(info.id); });
  for (MemoEntryInfo& info : page) info.id = -info.id;
  return page;
}

}  // namespace lm

#include "engine/runtime/memo_shelf.h"

#include <utility>

namespace lm {

void MemoShelf::Put(Items item) noexcept {
  newest_.bytes += item.front().bytes;
  newest_.by_use.splice(newest_.by_use.begin(), item);
}

void MemoShelf::Use(Items::iterator item, std::shared_ptr<MemoScan> scan) noexcept {
  Items& by_use = PartOf(*item).by_use;
  item->scan = std::move(scan);
  by_use.splice(by_use.begin(), by_use, item);
}

void MemoShelf::Remove(Items::iterator item) noexcept {
  Part& part = PartOf(*item);
  part.bytes -= item->bytes;
  part.by_use.erase(item);
}

const MemoShelf::Item* MemoShelf::NextToGo() noexcept {
  while (newest_.bytes > newest_.max_bytes) {
    Item& leaving = newest_.by_use.back();
    if (settled_.bytes + leaving.bytes > settled_.max_bytes) {
      const Item& unused = settled_.by_use.back();
      return unused.scan != nullptr && unused.scan == leaving.scan ? &leaving : &unused;
    }
    leaving.settled = true;
    newest_.bytes -= leaving.bytes;
    settled_.bytes += leaving.bytes;
    settled_.by_use.splice(settled_.by_use.begin(), newest_.by_use, --newest_.by_use.end());
  }
  return nullptr;
}

}  // namespace lm

// MemoShelf: which of the remembered go, where there is no room for all.
//
//   shelf.Put(std::move(item));
//   while (const MemoShelf::Item* item = shelf.NextToGo()) Drop(*item->key);  // calls Remove()
//
// The longest unused would do for those who come back soon. But rows are asked for in scans: a
// statement asks for all of a table, and the next one for the same rows in the same order. Where
// they are more than there is room for, the longest unused is always the one that is wanted next,
// and nothing is found again. So:
//
//   newest    1/8 of the bytes: whatever came or was used there last, the longest unused leaves
//   settled   7/8 of the bytes: what has left the newest
//
// What leaves the newest settles where there is room, and where the longest unused of the settled
// is another scan's: that one goes instead. Where it is of the same scan, all the others came after
// that had begun, and what leaves the newest goes itself: a scan's beginning is kept, and not
// pushed out by its own end. An item is of the scan that brought it, or that used it last.
//
// So of rows that are scanned twice as many are found again as there is room for; of those that are
// scanned more often, about as many as can settle. Nothing stays for ever: a scan that fits is
// found again whole, whatever others have left. Two scans at the same time that have no room beside
// each other push each other's out, as if the longest unused always went.
#ifndef LM_ENGINE_RUNTIME_MEMO_SHELF_H_
#define LM_ENGINE_RUNTIME_MEMO_SHELF_H_

#include <cstdint>
#include <list>
#include <memory>

#include "engine/runtime/memo_scan.h"

namespace lm {

struct MemoKey;

// Not thread-safe. Every method takes the same time however many items there are.
class MemoShelf {
 public:
  struct Item {
    const MemoKey* key;
    int64_t bytes;
    std::shared_ptr<MemoScan> scan;  // null: it is its own
    bool settled = false;
  };
  using Items = std::list<Item>;

  explicit MemoShelf(int64_t max_bytes)
      : newest_{.max_bytes = max_bytes / 8}, settled_{.max_bytes = max_bytes - newest_.max_bytes} {}

  // Whether there is room for so many bytes where nothing else is.
  bool Fits(int64_t bytes) const { return bytes <= settled_.max_bytes; }
  // Takes the one item of the list, which Fits(); iterators at it stay valid.
  void Put(Items item) noexcept;
  // Somebody uses it, in this scan.
  void Use(Items::iterator item, std::shared_ptr<MemoScan> scan) noexcept;
  void Remove(Items::iterator item) noexcept;

  // What is to be removed so that the others have room; null: nothing more.
  const Item* NextToGo() noexcept;

  int64_t bytes() const { return newest_.bytes + settled_.bytes; }
  int64_t max_bytes() const { return newest_.max_bytes + settled_.max_bytes; }

 private:
  struct Part {
    const int64_t max_bytes;
    int64_t bytes = 0;
    Items by_use = {};  // the last one used is in front
  };
  Part& PartOf(const Item& item) { return item.settled ? settled_ : newest_; }

  Part newest_;
  Part settled_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MEMO_SHELF_H_

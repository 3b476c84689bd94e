// FieldOrder: in which order the fields of many rows' prompts share most of their beginnings.
//
//   FieldOrder order;
//   for (const PromptFields& row : rows) order.Add(row);
//   order.Best().names;     // {"shop", "product", "review"}: from the most repeated on
//
// One order for all rows. With fields f1, f2, ... in it, and the rows sorted, what has to be read
// is a field's text once for each different beginning f1..fi, and no more:
//   cost = sum over i of (sum over the different (f1..fi) of the length of fi)
// The sum for fi depends on the set {f1..fi} alone, not on its order, so the least is found by
// going over all sets (up to kMostSets times rows), else greedily: first what parts the rows no
// further, then what saves most. Lengths are those of the fields' lines, in bytes. The method is
// that of arXiv 2403.05821, which lets each row have an order of its own; here a row's prompt must
// not depend on other rows.
#ifndef LM_ENGINE_TEXT_CHAT_FIELD_ORDER_H_
#define LM_ENGINE_TEXT_CHAT_FIELD_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/chat/prompt_form.h"

namespace lm {

// Not thread-safe.
class FieldOrder {
 public:
  // Further rows are passed over, and further fields stay where they are.
  static constexpr size_t kMostRows = 200'000;
  static constexpr size_t kMostFields = 64;
  static constexpr size_t kMostSets = size_t{1} << 24;  // times rows

  void Add(const PromptFields& row);
  bool empty() const { return num_rows_ == 0; }

  struct Plan {
    std::vector<std::string> names;
    int64_t bytes = 0;        // of all lines
    int64_t given_bytes = 0;  // to be read, of those, in the order in which the fields came
    int64_t best_bytes = 0;   // in that of `names`
  };
  // Of equally good orders the one nearest to that in which the fields came. Of no use where the
  // thread's scope was interrupted (checkpoint.h).
  Plan Best() const;

 private:
  struct Column {
    std::string name;
    std::vector<uint64_t> values;  // a digest for each row; 0 where it has none
    std::vector<uint32_t> bytes;
  };
  using Order = std::vector<size_t>;  // of columns_

  // What a row's values in some columns come to: each adds its own number.
  void AddTo(size_t column, std::vector<uint64_t>* beginnings) const;
  // The bytes of `column` over different beginnings, and how many of these there are.
  struct Cost {
    int64_t bytes = 0;
    size_t beginnings = 0;
  };
  Cost CostOf(size_t column, const std::vector<uint64_t>& beginnings) const;
  int64_t CostOf(const Order& order) const;
  Order Exactly() const;
  Order Greedily() const;

  std::vector<Column> columns_;
  size_t num_rows_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_CHAT_FIELD_ORDER_H_

#include "engine/text/chat/field_order.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/base/checkpoint.h"
#include "engine/base/digest.h"

namespace lm {
namespace {

// Numbers, each once. One is taken for an empty place.
class NumberSet {
 public:
  explicit NumberSet(size_t most) {
    size_t places = 16;
    while (places < 2 * most) places *= 2;
    places_.resize(places);
  }

  void Clear() { std::fill(places_.begin(), places_.end(), 0); }

  // False where it is there.
  bool Insert(uint64_t number) {
    number |= number == 0;
    const size_t mask = places_.size() - 1;
    for (size_t at = number & mask;; at = (at + 1) & mask) {
      if (places_[at] == number) return false;
      if (places_[at] != 0) continue;
      places_[at] = number;
      return true;
    }
  }

 private:
  std::vector<uint64_t> places_;
};

}  // namespace

void FieldOrder::Add(const PromptFields& row) {
  if (num_rows_ == kMostRows) return;
  for (const PromptField& field : row) {
    if (!field.value.has_value()) continue;
    auto column = std::find_if(columns_.begin(), columns_.end(),
                               [&field](const Column& c) { return c.name == field.name; });
    if (column == columns_.end()) {
      if (columns_.size() == kMostFields) continue;
      column = columns_.insert(columns_.end(), Column{field.name, {}, {}});
    }
    column->values.resize(num_rows_ + 1);
    column->bytes.resize(num_rows_ + 1);
    const std::string line = LineOf(field);
    const auto index = static_cast<uint64_t>(column - columns_.begin());
    column->values[num_rows_] = DigestOf(line, index).low;
    column->bytes[num_rows_] = static_cast<uint32_t>(line.size() + 1);
  }
  ++num_rows_;
}

void FieldOrder::AddTo(size_t column, std::vector<uint64_t>* beginnings) const {
  const std::vector<uint64_t>& values = columns_[column].values;
  for (size_t row = 0; row < values.size(); ++row) (*beginnings)[row] += values[row];
}

FieldOrder::Cost FieldOrder::CostOf(size_t column, const std::vector<uint64_t>& beginnings) const {
  const std::vector<uint32_t>& bytes = columns_[column].bytes;
  NumberSet seen(num_rows_);
  Cost cost;
  for (size_t row = 0; row < num_rows_; ++row) {
    if (!seen.Insert(beginnings[row])) continue;
    ++cost.beginnings;
    if (row < bytes.size()) cost.bytes += bytes[row];
  }
  return cost;
}

int64_t FieldOrder::CostOf(const Order& order) const {
  std::vector<uint64_t> beginnings(num_rows_);
  int64_t bytes = 0;
  for (const size_t column : order) {
    AddTo(column, &beginnings);
    bytes += CostOf(column, beginnings).bytes;
  }
  return bytes;
}

// cost[set * columns + c]: of column c as the last of a set. left[set]: the least that the columns
// outside a set cost behind it. Interrupted, it leaves costs out.
FieldOrder::Order FieldOrder::Exactly() const {
  const size_t num = columns_.size(), num_sets = size_t{1} << num;
  std::vector<int64_t> cost(num_sets * num);
  NumberSet seen(num_rows_);
  std::vector<uint64_t> beginnings(num_rows_);
  for (size_t set = 1; set < num_sets && !Interrupted(); ++set) {
    std::fill(beginnings.begin(), beginnings.end(), 0);
    for (size_t c = 0; c < num; ++c) {
      if (set >> c & 1) AddTo(c, &beginnings);
    }
    seen.Clear();
    for (size_t row = 0; row < num_rows_; ++row) {
      if (!seen.Insert(beginnings[row])) continue;
      for (size_t c = 0; c < num; ++c) {
        if ((set >> c & 1) && row < columns_[c].bytes.size()) {
          cost[set * num + c] += columns_[c].bytes[row];
        }
      }
    }
  }
  std::vector<int64_t> left(num_sets, std::numeric_limits<int64_t>::max());
  std::vector<size_t> next(num_sets);
  left[num_sets - 1] = 0;
  for (size_t set = num_sets - 1; set-- > 0;) {
    for (size_t c = 0; c < num; ++c) {
      const size_t with = set | size_t{1} << c;
      if (with == set) continue;
      const int64_t all = cost[with * num + c] + left[with];
      if (all >= left[set]) continue;  // of equals the first
      left[set] = all;
      next[set] = c;
    }
  }
  Order order;
  for (size_t set = 0; order.size() < num; set |= size_t{1} << order.back()) {
    order.push_back(next[set]);
  }
  return order;
}

FieldOrder::Order FieldOrder::Greedily() const {
  Order order, others(columns_.size());
  std::iota(others.begin(), others.end(), 0);
  std::vector<uint64_t> beginnings(num_rows_);
  size_t num_beginnings = 1;
  while (!others.empty()) {
    size_t best = 0, best_beginnings = 0;
    int64_t most = -1;
    bool free = false;
    for (size_t i = 0; i < others.size() && !free && !Interrupted(); ++i) {
      std::vector<uint64_t> with = beginnings;
      AddTo(others[i], &with);
      const Cost cost = CostOf(others[i], with);
      const std::vector<uint32_t>& bytes = columns_[others[i]].bytes;
      const int64_t saved = std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) - cost.bytes;
      free = cost.beginnings == num_beginnings && saved > 0;
      if (!free && saved <= most) continue;
      best = i;
      most = saved;
      best_beginnings = cost.beginnings;
    }
    AddTo(others[best], &beginnings);
    num_beginnings = best_beginnings;
    order.push_back(others[best]);
    others.erase(others.begin() + static_cast<Order::difference_type>(best));
  }
  return order;
}

FieldOrder::Plan FieldOrder::Best() const {
  Plan plan;
  const size_t num = columns_.size();
  for (const Column& column : columns_) {
    plan.bytes += std::accumulate(column.bytes.begin(), column.bytes.end(), int64_t{0});
  }
  Order given(num);
  std::iota(given.begin(), given.end(), 0);
  const bool few = num < 20 && (std::max<size_t>(num_rows_, 1) << num) <= kMostSets;
  Order best = few ? Exactly() : Greedily();
  if (Interrupted()) return plan;
  plan.given_bytes = CostOf(given);
  plan.best_bytes = CostOf(best);
  if (plan.best_bytes >= plan.given_bytes) {  // greed may err
    best = given;
    plan.best_bytes = plan.given_bytes;
  }
  for (const size_t column : best) plan.names.push_back(columns_[column].name);
  return plan;
}

}  // namespace lm

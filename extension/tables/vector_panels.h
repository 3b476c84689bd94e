// Many vectors, and which of them may be like another one: what is not is nearly all, and found out
// in floats, several at a time.
//
//   VectorPanels panels(dimensions);
//   panels.Add(vector);
//   ...
//   RETURN_IF_ERROR(panels.FindLike(asked, 0.9, &found));    // found[i]: what asked[i] may be like
#ifndef LM_EXTENSION_TABLES_VECTOR_PANELS_H_
#define LM_EXTENSION_TABLES_VECTOR_PANELS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lm {

// All vectors have as many values, and the length 1, or are all zeros.
class VectorPanels {
 public:
  // Worth being asked about together: each panel is read once for all of them.
  static constexpr size_t kTogether = 16;

  explicit VectorPanels(size_t dimensions) : dimensions_(dimensions) {}

  size_t size() const { return size_; }
  void Add(absl::Span<const float> vector);

  // For each of `vectors`, ascending, the numbers of the vectors here (the first added is 0),
  // without those whose cosine with it is surely below `least`; nearly all that are left reach
  // `least`. Cancelled where the statement is interrupted.
  absl::Status FindLike(absl::Span<const absl::Span<const float>> vectors, double least,
                        std::vector<std::vector<size_t>>* found) const;

 private:
  const size_t dimensions_;
  size_t size_ = 0;
  // Of eight vectors each, the last one's missing ones zeros: their first values, their second...
  std::vector<std::vector<float>> panels_;
};

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_VECTOR_PANELS_H_

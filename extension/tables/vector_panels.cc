#include "extension/tables/vector_panels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

typedef float FourFloats __attribute__((vector_size(16)));

constexpr size_t kPanel = 8;      // vectors
constexpr size_t kWithPanel = 4;  // vectors that are multiplied with them at a time

FourFloats LoadFour(const float* from) {
  FourFloats four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}

// products[r] = rows[r] (n) . panel (n, 8), each a sum from the first value to the last.
void MultiplyPanel(const float* const (&rows)[kWithPanel], const float* panel, size_t n,
                   float (*products)[kPanel]) {
  FourFloats a0 = {}, a1 = {}, b0 = {}, b1 = {}, c0 = {}, c1 = {}, d0 = {}, d1 = {};
  const auto [a, b, c, d] = rows;
  for (size_t i = 0; i < n; ++i) {
    const FourFloats left = LoadFour(panel + i * kPanel);
    const FourFloats right = LoadFour(panel + i * kPanel + kPanel / 2);
    a0 += a[i] * left;
    a1 += a[i] * right;
    b0 += b[i] * left;
    b1 += b[i] * right;
    c0 += c[i] * left;
    c1 += c[i] * right;
    d0 += d[i] * left;
    d1 += d[i] * right;
  }
  const FourFloats sums[] = {a0, a1, b0, b1, c0, c1, d0, d1};
  std::memcpy(products, sums, sizeof(sums));
}

bool AnyReaches(const float (&products)[kPanel], float least) {
  const auto reaches = (LoadFour(products) >= least) | (LoadFour(products + kPanel / 2) >= least);
  uint64_t lanes[2];
  std::memcpy(lanes, &reaches, sizeof(lanes));
  return (lanes[0] | lanes[1]) != 0;
}

}  // namespace

void VectorPanels::Add(absl::Span<const float> vector) {
  const size_t lane = size_ % kPanel;
  if (lane == 0) panels_.emplace_back(dimensions_ * kPanel);
  for (size_t i = 0; i < dimensions_; ++i) panels_.back()[i * kPanel + lane] = vector[i];
  ++size_;
}

absl::Status VectorPanels::FindLike(absl::Span<const absl::Span<const float>> vectors, double least,
                                    std::vector<std::vector<size_t>>* found) const {
  // A sum of n products in floats is off by n 2^-24 at most, for the products' absolute values sum
  // up to 1. A length that is rounded, and this number, are off by less than another.
  const double off = static_cast<double>(dimensions_ + 8) / (1 << 23);
  const auto reached = static_cast<float>(least - off);
  found->assign(vectors.size(), {});
  for (size_t p = 0; p < panels_.size(); ++p) {
    if (Interrupted()) break;
    const size_t here = std::min(kPanel, size_ - p * kPanel);
    for (size_t first = 0; first < vectors.size(); first += kWithPanel) {
      const size_t rows_here = std::min(kWithPanel, vectors.size() - first);
      const float* rows[kWithPanel];
      for (size_t r = 0; r < kWithPanel; ++r) {
        rows[r] = vectors[first + std::min(r, rows_here - 1)].data();
      }
      float products[kWithPanel][kPanel];
      MultiplyPanel(rows, panels_[p].data(), dimensions_, products);
      for (size_t r = 0; r < rows_here; ++r) {
        if (!AnyReaches(products[r], reached)) continue;
        for (size_t lane = 0; lane < here; ++lane) {
          if (products[r][lane] >= reached) (*found)[first + r].push_back(p * kPanel + lane);
        }
      }
    }
  }
  return Checkpoint();
}

}  // namespace lm

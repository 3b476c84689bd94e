// How onednn_bench shows what it has measured.
#ifndef LM_TESTS_BENCHMARKS_COMPARISON_H_
#define LM_TESTS_BENCHMARKS_COMPARISON_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace lm {

// One product by both.
struct Comparison {
  std::string product, shape;
  int64_t rows;
  double ops;
  double theirs = 0, ours = 0;  // seconds; theirs 0: oneDNN has no such product but its reference
  std::string implementation = {};
};

// Both times and speeds, and who is more than 10% faster.
void PrintLine(const Comparison& r, FILE* file);

// A markdown table to stdout: one row for each product and shape, one column for each M; results
// come in that order.
void PrintTable(const std::vector<Comparison>& results);

}  // namespace lm

#endif  // LM_TESTS_BENCHMARKS_COMPARISON_H_

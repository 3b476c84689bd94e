#include "tests/benchmarks/comparison.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace lm {
namespace {

const char* Winner(const Comparison& result) {
  if (result.theirs == 0 || result.theirs > 1.1 * result.ours) return "ours";
  return result.ours > 1.1 * result.theirs ? "oneDNN" : "even";
}

}  // namespace

void PrintLine(const Comparison& r, FILE* file) {
  std::string theirs = "      none                     ";
  if (r.theirs > 0) {
    theirs = absl::StrFormat("%10.1f us %8.1f Gop/s", r.theirs * 1e6, r.ops / r.theirs / 1e9);
  }
  absl::FPrintF(file, "%-16s %-9s M=%-4d oneDNN %s  ours %10.1f us %8.1f Gop/s  %-6s  %s\n",
                r.product, r.shape, r.rows, theirs, r.ours * 1e6, r.ops / r.ours / 1e9, Winner(r),
                r.implementation);
  std::fflush(file);
}

void PrintTable(const std::vector<Comparison>& results) {
  if (results.empty()) return;
  std::vector<int64_t> columns;
  for (const Comparison& r : results) {
    if (std::find(columns.begin(), columns.end(), r.rows) == columns.end()) {
      columns.push_back(r.rows);
    }
  }
  std::string head = "| oneDNN : ours, Gop/s |", rule = "|---|";
  for (int64_t rows : columns) {
    absl::StrAppend(&head, " M=", rows, " |");
    rule += "---|";
  }
  std::printf("\n%s oneDNN's implementation |\n%s---|\n", head.c_str(), rule.c_str());
  for (size_t begin = 0, end; begin < results.size(); begin = end) {
    const Comparison& first = results[begin];
    std::string line = absl::StrCat("| ", first.product, ", ", first.shape, " |");
    std::vector<std::string> implementations;
    for (end = begin; end < results.size() && results[end].product == first.product &&
                      results[end].shape == first.shape;
         ++end) {
      const Comparison& r = results[end];
      auto figure = [&](double seconds, absl::string_view name) {
        std::string text =
            seconds > 0 ? absl::StrFormat("%.0f", r.ops / seconds / 1e9) : std::string("none");
        return Winner(r) == name ? absl::StrCat("**", text, "**") : text;
      };
      absl::StrAppend(&line, " ", figure(r.theirs, "oneDNN"), " : ", figure(r.ours, "ours"), " |");
      if (std::find(implementations.begin(), implementations.end(), r.implementation) ==
          implementations.end()) {
        implementations.push_back(r.implementation);
      }
    }
    std::printf("%s %s |\n", line.c_str(), absl::StrJoin(implementations, ", ").c_str());
  }
}

}  // namespace lm

// What a model makes of texts: how well it foresees them, and what its matrices are multiplied by.
#ifndef LM_ENGINE_CONVERT_TEXT_RUNS_H_
#define LM_ENGINE_CONVERT_TEXT_RUNS_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/convert/observing_backend.h"

namespace lm {

// Both load the model, a file or a directory, on the CPU with so many threads. Texts longer than
// 512 tokens are read in pieces of that, each by itself. Cancelled once `cancel` is set.
// InvalidArgument where no text has two tokens.

// exp of the mean of -log p(token | those before it in its piece). InvalidArgument for a model that
// writes no text.
absl::StatusOr<double> MeasurePerplexity(const std::string& model,
                                         const std::vector<std::string>& texts, int num_threads,
                                         const std::atomic<bool>& cancel);

// For the errors that quantised weights make: a column's are multiplied by so much.
absl::StatusOr<Importance> MeasureImportance(const std::string& model,
                                             const std::vector<std::string>& texts, int num_threads,
                                             const std::atomic<bool>& cancel);

}  // namespace lm

#endif  // LM_ENGINE_CONVERT_TEXT_RUNS_H_

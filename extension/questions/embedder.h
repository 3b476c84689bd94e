// Embedder: texts to vectors, as lm_embed's options have it.
//
//   ASSIGN_OR_RETURN(OwnOptions own, OwnOptions::Take(json, {"pooling", "task", "dimensions"}));
//   ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
//   ASSIGN_OR_RETURN(Embedder embedder, Embedder::Create(own, std::move(options)));
//   queue.Push(embedder.Row(text));
//   ...
//   ASSIGN_OR_RETURN(std::vector<float> vector, embedder.Vector(queue.front().generation));
#ifndef LM_EXTENSION_QUESTIONS_EMBEDDER_H_
#define LM_EXTENSION_QUESTIONS_EMBEDDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "extension/batch/row_prompt.h"
#include "extension/connection/own_options.h"

namespace lm {

// A value type.
class Embedder {
 public:
  // Of a function's own options it reads those of pooling, task, dimensions and normalize that the
  // function has taken. InvalidArgument, naming the option, for what is none of this model's.
  static absl::StatusOr<Embedder> Create(const OwnOptions& own, CallOptions options);

  // A NULL text is answered by NULL.
  RowPrompt Row(absl::StatusOr<std::optional<std::string>> text) const;

  // REQUIRES: the answer to such a row, and no failure.
  absl::StatusOr<std::vector<float>> Vector(const Generation& answer) const;

  OnError on_error() const { return options_->generation.on_error; }

 private:
  std::shared_ptr<const CallOptions> options_;
  std::optional<Pooling> pooling_;
  std::string prefix_;      // before each text, for its task
  int64_t dimensions_ = 0;  // 0: all
  bool normalize_ = true;
};

// Divides by the Euclidean length. A vector of zeros has none, and stays.
void Normalize(std::vector<float>* vector);

double SquaredLength(absl::Span<const float> a);

// Of two vectors with their SquaredLength; 0 where one of them is all zeros. REQUIRES: they have as
// many values.
double Cosine(absl::Span<const float> a, double squared_a, absl::Span<const float> b,
              double squared_b);

// A vector as lm_embed gives it. InvalidArgument that begins with `what` for a BLOB that is none.
absl::StatusOr<std::vector<float>> VectorOf(absl::string_view blob, absl::string_view what);

}  // namespace lm

#endif  // LM_EXTENSION_QUESTIONS_EMBEDDER_H_

// lm_similarity(a, b [, options])   REAL: how alike two texts are, from -1 to 1
//
//   SELECT lm_similarity('rain all day', 'it pours');
//   SELECT id FROM notes ORDER BY lm_similarity(vector, 'it pours') DESC LIMIT 10;
//
// The cosine of their embeddings: 1 where they are the same. A text that comes again, as a constant
// does with each row, is embedded once (lm_memo). Either of them may be a vector that
// lm_embed has made of a text before, with the same model and options. `model`, `pooling`,
// `task` and `dimensions` are what they are for lm_embed. Of two vectors, without options, no model
// is needed.
//
// NULL where one of them is NULL. A text that cannot be embedded is a failure of its row
// (on_error). Vectors of different lengths are an error, which names both.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/embedder.h"

namespace lm {
namespace {

constexpr std::array<const char*, 2> kSides = {"a", "b"};

// REQUIRES: that argument is a BLOB.
absl::StatusOr<std::vector<float>> VectorIn(const Call& call, int side) {
  const auto* bytes = static_cast<const char*>(sqlite3_value_blob(call.value(side)));
  const size_t size = sqlite3_value_bytes(call.value(side));
  return VectorOf({bytes, bytes != nullptr ? size : 0}, kSides[side]);
}

double CosineOf(absl::Span<const float> a, absl::Span<const float> b) {
  return Cosine(a, SquaredLength(a), b, SquaredLength(b));
}

// Whether it is said by the vectors alone, which ask no model.
bool SaidByVectors(const Call& call) {
  for (int side = 0; side < 2; ++side) {
    if (sqlite3_value_type(call.value(side)) != SQLITE_BLOB) return false;
  }
  const absl::StatusOr<std::vector<float>> a = VectorIn(call, 0), b = VectorIn(call, 1);
  if (!a.ok() || !b.ok() || a->size() != b->size()) return false;
  sqlite3_result_double(call.context(), CosineOf(*a, *b));
  return true;
}

absl::Status Similarity(Call& call) {
  if (call.IsNull(0) || call.IsNull(1)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(2, "options"));
  if (!json.has_value() && SaidByVectors(call)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::TakeOfCall(json, {"pooling", "task", "dimensions"}));
  RETURN_IF_ERROR(CheckNoneOfAnswers(own.rest()));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
  const OnError on_error = options.generation.on_error;
  ASSIGN_OR_RETURN(const Embedder embedder, Embedder::Create(own, std::move(options)));
  std::array<std::vector<float>, 2> vectors;
  bool known = true;
  for (int side = 0; side < 2; ++side) {
    if (sqlite3_value_type(call.value(side)) == SQLITE_BLOB) {
      absl::StatusOr<std::vector<float>> vector = VectorIn(call, side);
      if (!vector.ok()) {
        return ResultAnswer(call.context(), {.generation = {.status = vector.status()}}, on_error);
      }
      vectors[side] = *std::move(vector);
      continue;
    }
    // Both are foreseen where neither is known yet.
    ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending,
                     AwaitRow(call, embedder.Row(call.Text(side, kSides[side]))));
    known = known && pending.has_value();
    if (!pending.has_value()) continue;
    if (!pending->answer().generation.status.ok()) {
      return ResultAnswer(call.context(), pending->answer(), pending->on_error());
    }
    ASSIGN_OR_RETURN(vectors[side], embedder.Vector(pending->answer().generation));
  }
  if (!known) return absl::OkStatus();
  const bool only_counts = call.connection().only_counts();
  if (vectors[0].size() != vectors[1].size() && !only_counts) {
    return absl::InvalidArgumentError(
        absl::StrCat("a and b must be vectors of one model, of the same length: a has ",
                     vectors[0].size(), " dimensions, b ", vectors[1].size()));
  }
  sqlite3_result_double(call.context(), only_counts ? 0 : CosineOf(vectors[0], vectors[1]));
  return absl::OkStatus();
}

}  // namespace

int RegisterSimilarity(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Similarity>(connection,
                                     {"lm_similarity", 2, 3, kDirectOnly | kReturnsJson});
}

}  // namespace lm

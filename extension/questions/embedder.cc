#include "extension/questions/embedder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/model/task_prefixes.h"

namespace lm {
namespace {

absl::StatusOr<std::optional<Pooling>> ReadPooling(const OwnOptions& own) {
  constexpr std::pair<absl::string_view, Pooling> kPoolings[] = {
      {"mean", Pooling::kMean}, {"last", Pooling::kLast}, {"cls", Pooling::kFirst}};
  ASSIGN_OR_RETURN(const std::optional<std::string> name, own.Text("pooling"));
  if (!name.has_value()) return std::optional<Pooling>();
  for (const auto& [known, pooling] : kPoolings) {
    if (*name == known) return std::optional<Pooling>(pooling);
  }
  return absl::InvalidArgumentError(absl::StrCat("pooling must be 'mean', 'last' or 'cls', got '",
                                                 Printable(name->substr(0, 64)), "'"));
}

absl::Status CheckDimensions(int64_t dimensions, int64_t most) {
  if (dimensions <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dimensions must be 1 to ", most, " for this model, got ", dimensions));
}

typedef float FloatsOfDot __attribute__((vector_size(16)));
typedef double ProductsOfDot __attribute__((vector_size(32)));
typedef double TwoSums __attribute__((vector_size(16)));

// Adds the products of four values to four sums.
inline void AddProducts(const float* a, const float* b, TwoSums* first, TwoSums* second) {
  FloatsOfDot x, y;
  std::memcpy(&x, a, sizeof(x));
  std::memcpy(&y, b, sizeof(y));
  const ProductsOfDot products =
      __builtin_convertvector(x, ProductsOfDot) * __builtin_convertvector(y, ProductsOfDot);
  *first += __builtin_shufflevector(products, products, 0, 1);
  *second += __builtin_shufflevector(products, products, 2, 3);
}

// In eight sums of their own, which do not wait for each other.
double Dot(absl::Span<const float> a, absl::Span<const float> b) {
  constexpr size_t kSums = 8;
  const size_t n = std::min(a.size(), b.size());
  TwoSums s01 = {}, s23 = {}, s45 = {}, s67 = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    AddProducts(a.data() + i, b.data() + i, &s01, &s23);
    AddProducts(a.data() + i + kSums / 2, b.data() + i + kSums / 2, &s45, &s67);
  }
  double sums[kSums] = {s01[0], s01[1], s23[0], s23[1], s45[0], s45[1], s67[0], s67[1]};
  for (size_t j = 0; i + j < n; ++j) sums[j] += double{a[i + j]} * b[i + j];
  return std::accumulate(sums, sums + kSums, 0.0);
}

}  // namespace

absl::StatusOr<Embedder> Embedder::Create(const OwnOptions& own, CallOptions options) {
  constexpr int64_t kMost = int64_t{1} << 24;
  Embedder embedder;
  ASSIGN_OR_RETURN(embedder.pooling_, ReadPooling(own));
  ASSIGN_OR_RETURN(const std::optional<std::string> task, own.Text("task"));
  ASSIGN_OR_RETURN(embedder.dimensions_, own.Integer("dimensions", 0, 1, kMost));
  ASSIGN_OR_RETURN(embedder.normalize_, own.Bool("normalize", true));
  const ModelInfo& info = options.generator().info();
  // What a model on the network gives is known when it comes.
  if (info.hidden_size > 0) {
    RETURN_IF_ERROR(CheckDimensions(embedder.dimensions_, info.hidden_size));
  }
  if (task.has_value()) {
    ASSIGN_OR_RETURN(const absl::string_view prefix, TaskPrefix(info, *task));
    embedder.prefix_ = std::string(prefix);
  }
  embedder.options_ = std::make_shared<const CallOptions>(std::move(options));
  return embedder;
}

RowPrompt Embedder::Row(absl::StatusOr<std::optional<std::string>> text) const {
  RowPrompt row{
      .prompt = std::move(text), .options = options_, .embed = EmbedTask{.pooling = pooling_}};
  if (!prefix_.empty()) row.system = prefix_;
  return row;
}

absl::StatusOr<std::vector<float>> Embedder::Vector(const Generation& answer) const {
  std::vector<float> vector = answer.embedding;
  // How long a model on the network makes them is not known where none is asked.
  if (vector.empty() && options_->session().only_counts()) vector.resize(dimensions_);
  RETURN_IF_ERROR(CheckDimensions(dimensions_, static_cast<int64_t>(vector.size())));
  if (dimensions_ > 0) vector.resize(dimensions_);
  if (normalize_) Normalize(&vector);
  return vector;
}

void Normalize(std::vector<float>* vector) {
  const double length = std::sqrt(Dot(*vector, *vector));
  if (length == 0) return;
  for (float& value : *vector) value = static_cast<float>(value / length);
}

double SquaredLength(absl::Span<const float> a) { return Dot(a, a); }

double Cosine(absl::Span<const float> a, double squared_a, absl::Span<const float> b,
              double squared_b) {
  // The root of a square is exact: the cosine of equal vectors is 1.
  const double lengths = std::sqrt(squared_a * squared_b);
  return lengths > 0 ? std::clamp(Dot(a, b) / lengths, -1.0, 1.0) : 0;
}

absl::StatusOr<std::vector<float>> VectorOf(absl::string_view blob, absl::string_view what) {
  std::vector<float> vector(blob.size() / sizeof(float));
  if (!vector.empty()) std::memcpy(vector.data(), blob.data(), vector.size() * sizeof(float));
  const bool whole = !vector.empty() && blob.size() % sizeof(float) == 0;
  // Squares of floats do not overflow in doubles.
  if (whole && std::isfinite(SquaredLength(vector))) return vector;
  return absl::InvalidArgumentError(absl::StrCat(
      what, " must be a text, or a vector of float32 as lm_embed gives it, got a BLOB of ",
      blob.size(), " bytes", whole ? ", of numbers that are not all finite" : ""));
}

}  // namespace lm

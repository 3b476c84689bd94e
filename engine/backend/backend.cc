#include "engine/backend/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/backend/check_arguments.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Leaves of the rows, which ascend, those `count` of the greatest scores; the lower where two are
// equal. What is not a number is the least: the order must be one.
void KeepGreatest(const float* scores, int64_t count, std::vector<int32_t>* rows) {
  auto score = [scores](int32_t r) { return std::isnan(scores[r]) ? -INFINITY : scores[r]; };
  std::nth_element(rows->begin(), rows->begin() + count, rows->end(),
                   [&score](int32_t a, int32_t b) {
                     return score(a) != score(b) ? score(a) > score(b) : a < b;
                   });
  rows->resize(count);
  std::sort(rows->begin(), rows->end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightMatrix>> Backend::LoadMatrix(DType dtype, int64_t rows,
                                                                  int64_t cols,
                                                                  const Buffer& blocks) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  const int64_t row_bytes = RowBytes(dtype, cols);
  if (blocks.bytes() != static_cast<size_t>(rows * row_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("LoadMatrix: a ", Traits(dtype).name, " (", rows,
                                                   ", ", cols, ") has ", rows * row_bytes,
                                                   " bytes, got ", blocks.bytes()));
  }
  return LoadMatrix(dtype, rows, cols, [&](int64_t first, int64_t count, char* to) {
    std::memcpy(to, blocks.chars().data() + first * row_bytes, count * row_bytes);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> Backend::AdoptMatrix(DType, int64_t, int64_t,
                                                                   Buffer) {
  return absl::UnimplementedError(absl::StrCat(name(), " lays out each matrix itself"));
}

absl::Status Backend::BeginStep(const StepTables* tables) {
  RETURN_IF_ERROR(IndexStep(tables, &index_));
  if (tables->num_picked > 0 && !queues_steps()) {
    index_.tables = nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat(name(), ": a step that begins before the one before has ended"));
  }
  absl::Status placed = PlaceStep();
  if (!placed.ok()) index_.tables = nullptr;  // it has not begun
  return placed;
}

absl::Status Backend::MatMulColumns(const WeightMatrix& w, Tensor x,
                                    absl::Span<const uint64_t> wanted, Tensor out) {
  RETURN_IF_ERROR(CheckMatMulColumns(w, x, wanted, out));
  return MatMul(w, x, /*bias=*/{}, out);
}

absl::Status Backend::Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                              ProductResult result, Tensor out) {
  RETURN_IF_ERROR(CheckProject(w, input, bias, out));
  Tensor x = input.x;
  if (input.kind != ProductInput::Kind::kPlain) {
    ASSIGN_OR_RETURN(x, Intermediate(input.rows(), input.cols(), &input_));
  }
  if (input.kind == ProductInput::Kind::kNormed) {
    RETURN_IF_ERROR(Normalize(input.x, input.norm, x));
  } else if (input.kind == ProductInput::Kind::kActivated) {
    RETURN_IF_ERROR(GatedActivation(input.activation, input.x, {}, x));
  } else if (input.kind == ProductInput::Kind::kGated) {
    RETURN_IF_ERROR(GatedActivation(input.activation, input.x.Cols(0, x.cols),
                                    input.x.Cols(x.cols, x.cols), x));
  }
  if (result == ProductResult::kReplaces) return MatMul(w, x, bias, out);
  ASSIGN_OR_RETURN(const Tensor product, Intermediate(out.rows, out.cols, &result_));
  RETURN_IF_ERROR(MatMul(w, x, bias, product));
  return Add(out, product, /*scale=*/1);
}

absl::Status Backend::ProjectAll(absl::Span<const MatrixProduct> products, ProductResult result) {
  for (const MatrixProduct& product : products) {
    RETURN_IF_ERROR(Project(*product.w, product.input, product.bias, result, product.out));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MatrixGroup>> Backend::GroupMatrices(
    std::vector<GroupedMatrix> members) {
  RETURN_IF_ERROR(CheckGroupMatrices(members));
  return std::make_unique<MatrixGroup>(std::move(members));
}

absl::Status Backend::Route(Tensor logits, const Router& router, ExpertRoutes* routes) {
  RETURN_IF_ERROR(CheckRoute(logits, router));
  const size_t bytes = ExpertRoutes::BytesFor(logits.rows, logits.cols, router.chosen);
  if (bytes > routes->memory.bytes()) {
    ASSIGN_OR_RETURN(routes->memory, Allocate(std::max(bytes, 2 * routes->memory.bytes())));
  }
  routes->Place(logits.rows, logits.cols, router.chosen);
  RouteRows(logits.row<float>(0), logits.row_bytes / static_cast<int64_t>(sizeof(float)), router,
            routes);
  return absl::OkStatus();
}

absl::Status Backend::ProjectExperts(absl::Span<const ExpertProduct> products,
                                     const ExpertRoutes& routes, ProductResult result) {
  RETURN_IF_ERROR(CheckProjectExperts(products, routes));
  std::vector<MatrixProduct> all;
  for (int32_t e = 0; e < routes.experts; ++e) {
    const int64_t begin = routes.begin[e], count = routes.begin[e + 1] - begin;
    if (count == 0) continue;
    for (const ExpertProduct& product : products) {
      const GroupedMatrix& member = product.group->members()[e];
      ProductInput input = product.input;
      input.x = input.x.Rows(begin, count);
      all.push_back({member.w, input, member.bias, product.out.Rows(begin, count)});
    }
  }
  return ProjectAll(all, result);
}

absl::Status Backend::MoveWeights(ExpertRoutes* routes, Tensor out) {
  RETURN_IF_ERROR(CheckMoveWeights(*routes, out));
  for (int64_t i = 0; i < routes->num_slots(); ++i) {
    *out.row<float>(routes->slots[i]) = std::exchange(routes->weights[i], 1.0f);
  }
  return absl::OkStatus();
}

absl::Status Backend::ChooseRows(Tensor scores, const RowLayer& layer, Tensor chosen) {
  RETURN_IF_ERROR(CheckChooseRows(step_index(), scores, layer, chosen));
  if (rehearses_) return absl::OkStatus();
  // Of a device some rows at a time: those of a long context are hundreds of megabytes.
  constexpr int64_t kMostBrought = 1 << 20;
  const int64_t stride = scores.row_bytes / static_cast<int64_t>(sizeof(float));
  std::vector<float> brought;
  int64_t begin = 0, end = 0;
  auto row_of = [&](int64_t t) -> absl::StatusOr<const float*> {
    if (uses_host_memory()) return scores.row<float>(t);
    if (t >= end) {
      begin = t;
      end = std::min(scores.rows, t + std::max<int64_t>(kMostBrought / stride, 1));
      brought.resize((end - begin - 1) * stride + scores.cols);
      RETURN_IF_ERROR(
          Download(scores.row<float>(t), brought.data(), brought.size() * sizeof(float)));
    }
    return brought.data() + (t - begin) * stride;
  };
  std::vector<int32_t> rows(chosen.rows * chosen.cols, -1), order;
  for (const StepSequence& sequence : step().sequences) {
    for (int64_t i = 0; i < sequence.num_tokens && !cancelled(); ++i) {
      const int64_t t = sequence.first_row + i;
      order.resize(layer.SeenAt(sequence.first_position + i));
      std::iota(order.begin(), order.end(), 0);
      if (static_cast<int64_t>(order.size()) > chosen.cols) {
        ASSIGN_OR_RETURN(const float* row, row_of(t));
        KeepGreatest(row, chosen.cols, &order);
      }
      std::copy(order.begin(), order.end(), rows.begin() + t * chosen.cols);
    }
  }
  return Upload(rows.data(), chosen.data, rows.size() * sizeof(int32_t));
}

absl::Status Backend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                             std::vector<absl::StatusOr<int32_t>>* tokens,
                             std::vector<float>* margins) {
  std::vector<float> brought;
  tokens->clear();
  if (margins != nullptr) margins->clear();
  for (const SamplingRow& row : rows) {
    const Tensor one = logits.Rows(row.row, 1);
    const float* values = static_cast<const float*>(one.data);
    if (!uses_host_memory()) {
      brought.resize(one.cols);
      RETURN_IF_ERROR(Download(one.data, brought.data(), one.cols * sizeof(float)));
      values = brought.data();
    }
    const absl::Span<const float> all(values, static_cast<size_t>(one.cols));
    tokens->push_back(SampleToken(all, row, &draws_));
    if (margins == nullptr) continue;
    margins->push_back(tokens->back().ok() ? MarginOf(all, *tokens->back()) : 0);
  }
  return absl::OkStatus();
}

absl::Status Backend::BeginSample(Tensor /*logits*/, absl::Span<const SamplingRow> /*rows*/) {
  return absl::UnimplementedError(absl::StrCat(name(), " does not queue steps"));
}

absl::Status Backend::EndSample(std::vector<absl::StatusOr<int32_t>>* /*tokens*/,
                                std::vector<float>* /*margins*/, std::vector<bool>* /*late*/) {
  return absl::UnimplementedError(absl::StrCat(name(), " does not queue steps"));
}

// A matrix in the buffer, which at least doubles where it must grow.
absl::StatusOr<Tensor> Backend::Intermediate(int64_t rows, int64_t cols, Buffer* buffer) {
  const size_t bytes = rows * cols * sizeof(float);
  if (bytes > buffer->bytes()) {
    const size_t grown = std::max(bytes, 2 * buffer->bytes());
    *buffer = Buffer();
    ASSIGN_OR_RETURN(*buffer, Allocate(grown));
  }
  return Tensor(buffer->data(), DType::kF32, rows, cols);
}

}  // namespace lm

#include "engine/backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/backend/check_arguments.h"
#include "engine/backend/softplus.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

namespace lm {
namespace {

float Activate(Activation activation, float x) {
  constexpr float kTwiceRootOf2OverPi = 1.5957691216057308f;
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kGeluTanh:
      return x / (1.0f + std::exp(-kTwiceRootOf2OverPi * (x + 0.044715f * x * x * x)));
    case Activation::kSigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case Activation::kIdentity:
      break;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kRelu2:
      return x < 0 ? 0 : x * x;
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kExp:
      return std::exp(x > 88 ? 88 : x);
    case Activation::kSwigluOai:
      x = x > 7 ? 7 : x;
      return x / (1.0f + std::exp(-1.702f * x));
  }
  return x;
}

// What an activated gate is multiplied by.
float Factor(Activation activation, float up) {
  if (activation != Activation::kSwigluOai) return up;
  return (up > 7 ? 7.0f : up < -7 ? -7.0f : up) + 1.0f;
}

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

absl::StatusOr<Buffer> ReferenceBackend::Allocate(size_t bytes) {
  return Buffer::AllocateHost(bytes);
}

absl::Status ReferenceBackend::Upload(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Download(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> ReferenceBackend::LoadMatrix(DType dtype,
                                                                           int64_t rows,
                                                                           int64_t cols,
                                                                           RowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  ASSIGN_OR_RETURN(Buffer blocks, Buffer::AllocateHost(rows * RowBytes(dtype, cols)));
  RETURN_IF_ERROR(read(0, rows, blocks.chars().data()));
  return std::make_unique<ReferenceMatrix>(dtype, rows, cols, std::move(blocks));
}

absl::Status ReferenceBackend::Copy(const void* from, void* to, size_t bytes) {
  return Upload(from, to, bytes);
}

absl::Status ReferenceBackend::Zero(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Embed(const WeightMatrix& w, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckEmbed(step_index(), w, out));
  const auto& matrix = static_cast<const ReferenceMatrix&>(w);
  for (int64_t t = 0; t < out.rows; ++t) {
    float* row = out.row<float>(t);
    DequantizeRow(w.dtype(), matrix.row(step().tokens[t]), w.cols(), row);
    for (int64_t i = 0; i < out.cols; ++i) row[i] *= scale;
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Normalize(Tensor x, const Norm& norm, Tensor out) {
  RETURN_IF_ERROR(CheckNormalize(x, norm, out));
  const int64_t n = norm.group_size(), m = norm.weight.cols;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t group = 0; group < x.cols; group += n) {
      const float* in = x.row<float>(t) + group;
      float* result = out.row<float>(t) + group;
      const float* weight = norm.weight.row<float>(0) + group % m;
      const float* bias = norm.bias.empty() ? nullptr : norm.bias.row<float>(0) + group % m;
      double mean = 0, sum = 0;
      if (norm.kind == NormKind::kLayer) {
        for (int64_t i = 0; i < n; ++i) mean += in[i];
        mean /= static_cast<double>(n);
      }
      for (int64_t i = 0; i < n; ++i) sum += (in[i] - mean) * (in[i] - mean);
      const bool scaled = norm.kind != NormKind::kNone;
      const float scale = scaled ? 1.0f / std::sqrt(static_cast<float>(sum / n) + norm.eps) : 1.0f;
      for (int64_t i = 0; i < n; ++i) {
        result[i] = (in[i] - static_cast<float>(mean)) * scale * weight[i];
        if (bias != nullptr) result[i] += bias[i];
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                               Tensor out) {
  if (!up.empty()) RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, up));
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, out));
  for (int64_t t = 0; t < gate.rows; ++t) {
    for (int64_t i = 0; i < gate.cols; ++i) {
      const float active = Activate(activation, gate.row<float>(t)[i]);
      out.row<float>(t)[i] = up.empty() ? active : active * Factor(activation, up.row<float>(t)[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Add(Tensor x, Tensor y, float scale) {
  RETURN_IF_ERROR(CheckSameShape("Add", x, y));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) x.row<float>(t)[i] += scale * y.row<float>(t)[i];
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::ScaleAndCap(Tensor x, float scale, float cap) {
  RETURN_IF_ERROR(CheckSameShape("ScaleAndCap", x, x));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) {
      float& value = x.row<float>(t)[i];
      value = cap > 0 ? cap * std::tanh(scale * value / cap) : scale * value;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::ScaleGroups(Tensor x, Tensor factors, Activation activation) {
  RETURN_IF_ERROR(CheckScaleRows(x, factors));
  const int64_t n = x.cols / factors.cols;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) {
      x.row<float>(t)[i] *= Activate(activation, factors.row<float>(t)[i / n]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Clamp(Tensor x, float low, float high) {
  RETURN_IF_ERROR(CheckSameShape("Clamp", x, x));
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < x.cols; ++i) {
      float& value = x.row<float>(t)[i];
      value = value < low ? low : value > high ? high : value;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::Dot(Tensor x, Tensor y, Tensor out) {
  RETURN_IF_ERROR(CheckDot(x, y, out));
  const int64_t n = x.cols / out.cols;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t g = 0; g < out.cols; ++g) {
      double sum = 0;
      for (int64_t i = g * n; i < (g + 1) * n; ++i) {
        sum += double{x.row<float>(t)[i]} * y.row<float>(t)[i];
      }
      out.row<float>(t)[g] = static_cast<float>(sum);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::MixStreams(Tensor x, Tensor weights, int32_t streams,
                                          ProductResult result, Tensor out) {
  RETURN_IF_ERROR(CheckMixStreams(x, weights, streams, out));
  const int64_t n = x.cols / streams;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t i = 0; i < out.cols; ++i) {
      float sum = 0;
      for (int64_t s = 0; s < streams; ++s) {
        sum = std::fma(weights.row<float>(t)[i / n * streams + s], x.row<float>(t)[s * n + i % n],
                       sum);
      }
      float& value = out.row<float>(t)[i];
      value = result == ProductResult::kIsAdded ? value + sum : sum;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::BalanceStreams(Tensor x, int32_t streams, int32_t iterations,
                                              float eps, Tensor out) {
  RETURN_IF_ERROR(CheckBalanceStreams(x, streams, iterations, out));
  const int64_t n = streams;
  std::vector<double> m(n * n);
  // Divides n groups of n values by their sums + eps: value i of group g at [g * step + i * by].
  auto divide = [&m, n](int64_t step, int64_t by, double eps) {
    for (int64_t g = 0; g < n; ++g) {
      double sum = eps;
      for (int64_t i = 0; i < n; ++i) sum += m[g * step + i * by];
      for (int64_t i = 0; i < n; ++i) m[g * step + i * by] /= sum;
    }
  };
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* in = x.row<float>(t);
    for (int64_t s = 0; s < n; ++s) {
      const float max = *std::max_element(in + s * n, in + (s + 1) * n);
      for (int64_t j = 0; j < n; ++j) m[s * n + j] = std::exp(double{in[s * n + j]} - max);
    }
    divide(n, 1, 0);
    for (double& value : m) value += eps;
    for (int32_t i = 0; i < iterations; ++i) {
      if (i > 0) divide(n, 1, eps);
      divide(1, n, eps);
    }
    for (int64_t i = 0; i < n * n; ++i) {
      out.row<float>(t)[i % n * n + i / n] = static_cast<float>(m[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckGatherSlots(x, routes, out));
  for (int64_t slot = 0; slot < out.rows; ++slot) {
    std::memcpy(out.row<float>(slot), x.row<float>(routes.rows[slot]), x.cols * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckCombineSlots(y, routes, out));
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t i = 0; i < out.cols; ++i) {
      float sum = 0;
      for (int64_t j = t * routes.chosen; j < (t + 1) * routes.chosen; ++j) {
        sum = std::fma(routes.weights[j], y.row<float>(routes.slots[j])[i], sum);
      }
      out.row<float>(t)[i] = sum;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceBackend::GatherRows(Tensor x, int32_t list, Tensor out) {
  RETURN_IF_ERROR(CheckGatherRows(step_index(), x, list, out));
  const std::vector<int32_t>& rows = step().row_lists[list];
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row<float>(i), x.row<float>(rows[i]), x.cols * sizeof(float));
  }
  return absl::OkStatus();
}

}  // namespace lm

#include "engine/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "engine/backend/check_arguments.h"
#include "engine/base/first_error.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(Isa isa, int threads) {
  return std::make_unique<CpuBackend>(isa, threads > 0 ? threads : DefaultThreads());
}

absl::StatusOr<Buffer> CpuBackend::Allocate(size_t bytes) { return Buffer::AllocateHost(bytes); }

absl::Status CpuBackend::Upload(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status CpuBackend::Download(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> CpuBackend::LoadMatrix(DType dtype, int64_t rows,
                                                                     int64_t cols, RowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  return PanelMatrix::Pack(dtype, rows, cols, read, &pool_, &arena_, &workers_);
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> CpuBackend::LoadLastingMatrix(
    DType dtype, int64_t rows, int64_t cols, LastingRowReader read) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  return PanelMatrix::Open(dtype, rows, cols, std::move(read), deferred_);
}

absl::StatusOr<bool> CpuBackend::LayOutMore(absl::Duration time) {
  constexpr int64_t kBytesAtOnce = 2 << 20;  // milliseconds, where memory is slow to come
  const MonotonicTime end = MonotonicTime::Now() + time;
  while (PanelMatrix* matrix = deferred_->first()) {
    RETURN_IF_ERROR(matrix->PackMore(kBytesAtOnce, &pool_, &arena_, &workers_));
    if (MonotonicTime::Now() >= end) break;
  }
  return deferred_->first() != nullptr;
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> CpuBackend::AdoptMatrix(DType dtype, int64_t rows,
                                                                      int64_t cols, Buffer packed) {
  RETURN_IF_ERROR(CheckLoadMatrix(dtype, rows, cols));
  return PanelMatrix::Adopt(dtype, rows, cols, std::move(packed));
}

void CpuBackend::ForRows(int64_t rows, int64_t cols,
                         absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (rows * cols < kValuesWorthSharing) return body(0, rows);
  int64_t pieces = std::min<int64_t>(rows, kPiecesAThread * pool_.num_threads());
  pool_.ParallelFor(pieces, [&](int64_t i) { body(rows * i / pieces, rows * (i + 1) / pieces); });
}

void CpuBackend::ForItems(int64_t count, absl::FunctionRef<void(int64_t, int)> body) {
  std::atomic<int64_t> next{0};
  int64_t workers = std::min<int64_t>(count, pool_.num_threads());
  pool_.ParallelFor(workers, [&](int64_t worker) {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      if (cancelled()) return;
      body(item, static_cast<int>(worker));
    }
  });
}

absl::Status CpuBackend::Copy(const void* from, void* to, size_t bytes) {
  return Upload(from, to, bytes);
}

absl::Status CpuBackend::Zero(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
  return absl::OkStatus();
}

absl::Status CpuBackend::Embed(const WeightMatrix& w, float scale, Tensor out) {
  RETURN_IF_ERROR(CheckEmbed(step_index(), w, out));
  const auto& matrix = static_cast<const PanelMatrix&>(w);
  FirstError error;
  ForRows(out.rows, out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = out.row<float>(t);
      if (absl::Status status = matrix.ReadRow(step().tokens[t], row); !status.ok()) {
        return error.Add(t, std::move(status));
      }
      if (scale == 1) continue;
      for (int64_t i = 0; i < out.cols; ++i) row[i] *= scale;
    }
  });
  return error.status();
}

void CpuBackend::NormRow(const Norm& norm, const float* x, int64_t cols, float* out) const {
  const int64_t n = norm.group_size();
  for (int64_t group = 0; group < cols; group += n) {
    const int64_t at = group % norm.weight.cols;
    const float* weight = norm.weight.row<float>(0) + at;
    switch (norm.kind) {
      case NormKind::kRms:
        kernels_.rms_norm(x + group, weight, n, norm.eps, out + group);
        break;
      case NormKind::kLayer:
        kernels_.layer_norm(x + group, weight, n, norm.eps, out + group);
        break;
      case NormKind::kNone:
        kernels_.gated_activation(Activation::kIdentity, x + group, weight, n, out + group);
        break;
    }
    if (!norm.bias.empty()) {
      kernels_.add_scaled(out + group, norm.bias.row<float>(0) + at, 1, n);
    }
  }
}

absl::Status CpuBackend::Normalize(Tensor x, const Norm& norm, Tensor out) {
  RETURN_IF_ERROR(CheckNormalize(x, norm, out));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      NormRow(norm, x.row<float>(t), x.cols, out.row<float>(t));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                         Tensor out) {
  if (!up.empty()) RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, up));
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, out));
  ForRows(gate.rows, gate.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* factors = up.empty() ? nullptr : up.row<float>(t);
      kernels_.gated_activation(activation, gate.row<float>(t), factors, gate.cols,
                                out.row<float>(t));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Add(Tensor x, Tensor y, float scale) {
  RETURN_IF_ERROR(CheckSameShape("Add", x, y));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.add_scaled(x.row<float>(t), y.row<float>(t), scale, x.cols);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::ScaleAndCap(Tensor x, float scale, float cap) {
  RETURN_IF_ERROR(CheckSameShape("ScaleAndCap", x, x));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (cap > 0) {
        kernels_.softcap(x.row<float>(t), static_cast<int>(x.cols), scale, cap);
      } else {
        kernels_.scale(x.row<float>(t), scale, x.cols);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::ScaleGroups(Tensor x, Tensor factors, Activation activation) {
  RETURN_IF_ERROR(CheckScaleRows(x, factors));
  const int64_t n = x.cols / factors.cols;
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < factors.cols; ++g) {
        float factor;
        kernels_.gated_activation(activation, factors.row<float>(t) + g, nullptr, 1, &factor);
        kernels_.scale(x.row<float>(t) + g * n, factor, n);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Clamp(Tensor x, float low, float high) {
  RETURN_IF_ERROR(CheckSameShape("Clamp", x, x));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) kernels_.clamp(x.row<float>(t), low, high, x.cols);
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Dot(Tensor x, Tensor y, Tensor out) {
  RETURN_IF_ERROR(CheckDot(x, y, out));
  const int64_t n = x.cols / out.cols;
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < out.cols; ++g) {
        out.row<float>(t)[g] = kernels_.dot(x.row<float>(t) + g * n, y.row<float>(t) + g * n, n);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::MixStreams(Tensor x, Tensor weights, int32_t streams, ProductResult result,
                                    Tensor out) {
  RETURN_IF_ERROR(CheckMixStreams(x, weights, streams, out));
  const int64_t n = x.cols / streams, mixed = weights.cols / streams;
  ForRows(x.rows, out.cols * streams, [&](int64_t begin, int64_t end) {
    std::vector<const float*> rows(streams);
    std::vector<float> sum(n);
    for (int64_t t = begin; t < end; ++t) {
      for (int32_t s = 0; s < streams; ++s) rows[s] = x.row<float>(t) + s * n;
      for (int64_t j = 0; j < mixed; ++j) {
        float* to = out.row<float>(t) + j * n;
        kernels_.weighted_sum(rows.data(), weights.row<float>(t) + j * streams, streams, n,
                              result == ProductResult::kIsAdded ? sum.data() : to);
        if (result == ProductResult::kIsAdded) kernels_.add_scaled(to, sum.data(), 1, n);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckGatherSlots(x, routes, out));
  ForRows(out.rows, out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      std::memcpy(out.row<float>(slot), x.row<float>(routes.rows[slot]), x.cols * sizeof(float));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckCombineSlots(y, routes, out));
  const int32_t chosen = routes.chosen;
  ForRows(out.rows, out.cols * chosen, [&](int64_t begin, int64_t end) {
    std::vector<const float*> rows(chosen);
    for (int64_t t = begin; t < end; ++t) {
      for (int32_t j = 0; j < chosen; ++j) {
        rows[j] = y.row<float>(routes.slots[t * chosen + j]);
      }
      kernels_.weighted_sum(rows.data(), &routes.weights[t * chosen], chosen, out.cols,
                            out.row<float>(t));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::GatherRows(Tensor x, int32_t list, Tensor out) {
  RETURN_IF_ERROR(CheckGatherRows(step_index(), x, list, out));
  const std::vector<int32_t>& rows = step().row_lists[list];
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out.row<float>(i), x.row<float>(rows[i]), x.cols * sizeof(float));
  }
  return absl::OkStatus();
}

// Rows are shared out.
absl::Status CpuBackend::Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                                std::vector<absl::StatusOr<int32_t>>* tokens,
                                std::vector<float>* margins) {
  tokens->assign(rows.size(), 0);  // which nobody takes of a step that is cancelled
  if (margins != nullptr) margins->assign(rows.size(), 0);
  draws_.resize(pool_.num_threads());
  ForItems(static_cast<int64_t>(rows.size()), [&](int64_t i, int worker) {
    const absl::Span<const float> all(logits.row<float>(rows[i].row), logits.cols);
    absl::StatusOr<int32_t>& token = (*tokens)[i];
    token = SampleToken(all, rows[i], &draws_[worker]);
    if (margins != nullptr && token.ok()) (*margins)[i] = MarginOf(all, *token);
  });
  return absl::OkStatus();
}

}  // namespace lm

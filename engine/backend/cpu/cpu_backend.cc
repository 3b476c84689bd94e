#include "engine/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/backend/check_arguments.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(Isa isa, int threads) {
  return std::make_unique<CpuBackend>(isa, threads > 0 ? threads : AvailableCpus());
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
  return PanelMatrix::Pack(dtype, rows, cols, read, &pool_);
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
  ForRows(out.rows, out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = out.row<float>(t);
      matrix.ReadRow(step().tokens[t], row);
      if (scale == 1) continue;
      for (int64_t i = 0; i < out.cols; ++i) row[i] *= scale;
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::RmsNorm(Tensor x, Tensor weight, float eps, Tensor out) {
  RETURN_IF_ERROR(CheckRmsNorm(x, weight, out));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t group = 0; group < x.cols; group += weight.cols) {
        kernels_.rms_norm(x.row<float>(t) + group, weight.row<float>(0), weight.cols, eps,
                          out.row<float>(t) + group);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::GatedActivation(Activation activation, Tensor gate, Tensor up,
                                         Tensor out) {
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, up));
  RETURN_IF_ERROR(CheckSameShape("GatedActivation", gate, out));
  ForRows(gate.rows, gate.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.gated_activation(activation, gate.row<float>(t), up.row<float>(t), gate.cols,
                                out.row<float>(t));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuBackend::Add(Tensor x, Tensor y) {
  RETURN_IF_ERROR(CheckSameShape("Add", x, y));
  ForRows(x.rows, x.cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* to = x.row<float>(t);
      const float* from = y.row<float>(t);
      for (int64_t i = 0; i < x.cols; ++i) to[i] += from[i];
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

}  // namespace lm

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CpuBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  if (x.rows == 0) return absl::OkStatus();
  const auto& matrix = static_cast<const PanelMatrix&>(w);
  if (Traits(w.dtype()).quantised) return MatMulQuantized(matrix, x, bias, out);
  return MatMulFloat(matrix, x, bias, out);
}

}  // namespace lm

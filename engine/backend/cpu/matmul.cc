// Products: what is common to those of block weights (matmul_quantized.cc) and of floats
// (matmul_float.cc).
#include <algorithm>

#include "engine/backend/check_arguments.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::Status CpuBackend::MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) {
  RETURN_IF_ERROR(CheckMatMul(w, x, bias, out));
  return Multiply({.w = static_cast<const PanelMatrix&>(w),
                   .input = ProductInput::Plain(x),
                   .bias = bias,
                   .result = ProductResult::kReplaces,
                   .out = out});
}

absl::Status CpuBackend::MatMulColumns(const WeightMatrix& w, Tensor x,
                                       absl::Span<const uint64_t> wanted, Tensor out) {
  RETURN_IF_ERROR(CheckMatMulColumns(w, x, wanted, out));
  return Multiply({.w = static_cast<const PanelMatrix&>(w),
                   .input = ProductInput::Plain(x),
                   .bias = {},
                   .result = ProductResult::kReplaces,
                   .out = out,
                   .wanted = wanted});
}

absl::Status CpuBackend::Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                                 ProductResult result, Tensor out) {
  RETURN_IF_ERROR(CheckProject(w, input, bias, out));
  return Multiply({.w = static_cast<const PanelMatrix&>(w),
                   .input = input,
                   .bias = bias,
                   .result = result,
                   .out = out});
}

absl::Status CpuBackend::ProjectAll(absl::Span<const MatrixProduct> products,
                                    ProductResult result) {
  std::vector<ProductArguments> quantised;
  for (const MatrixProduct& product : products) {
    RETURN_IF_ERROR(CheckProject(*product.w, product.input, product.bias, product.out));
    const ProductArguments args = {.w = static_cast<const PanelMatrix&>(*product.w),
                                   .input = product.input,
                                   .bias = product.bias,
                                   .result = result,
                                   .out = product.out};
    if (args.out.rows > 0 && Traits(args.w.dtype()).quantised) {
      quantised.push_back(args);
    } else {
      RETURN_IF_ERROR(Multiply(args));
    }
  }
  return quantised.empty() ? absl::OkStatus() : MultiplyQuantized(quantised);
}

absl::Status CpuBackend::Multiply(const ProductArguments& args) {
  if (args.out.rows == 0) return absl::OkStatus();
  return Traits(args.w.dtype()).quantised ? MultiplyQuantized({&args, 1}) : MultiplyFloat(args);
}

CpuBackend::ProductArguments CpuBackend::ProductArguments::Rows(int64_t begin,
                                                                int64_t count) const {
  ProductArguments part = *this;
  part.input.x = input.x.Rows(begin, count);
  part.out = out.Rows(begin, count);
  return part;
}

absl::Status CpuBackend::ForInputRows(const ProductInput& input, const Tiles& tiles,
                                      absl::FunctionRef<void(int64_t, const float*)> body) {
  const int64_t rows = input.rows(), cols = input.cols();
  char* memory = nullptr;
  if (input.kind != ProductInput::Kind::kPlain) {
    ASSIGN_OR_RETURN(memory, rows_.Get(pool_.num_threads() * cols * sizeof(float)));
  }
  auto run = [&](int64_t begin, int64_t end, int worker) {
    float* made = memory == nullptr ? nullptr : reinterpret_cast<float*>(memory) + worker * cols;
    for (int64_t t = begin; t < end; ++t) {
      const float* x = input.x.row<float>(t);
      switch (input.kind) {
        case ProductInput::Kind::kPlain:
          body(t, x);
          continue;
        case ProductInput::Kind::kNormed:
          NormRow(input.norm, x, cols, made);
          break;
        case ProductInput::Kind::kActivated:
          kernels_.gated_activation(input.activation, x, nullptr, cols, made);
          break;
        case ProductInput::Kind::kGated:
          kernels_.gated_activation(input.activation, x, x + cols, cols, made);
          break;
      }
      body(t, made);
    }
  };
  if (rows * input.x.cols < kValuesWorthSharing) {
    run(0, rows, 0);
    return absl::OkStatus();
  }
  const int64_t pieces = std::min<int64_t>(tiles.count, kPiecesAThread * pool_.num_threads());
  ForItems(pieces, [&](int64_t i, int worker) {
    run(tiles.begin(tiles.count * i / pieces), tiles.begin(tiles.count * (i + 1) / pieces), worker);
  });
  return absl::OkStatus();
}

}  // namespace lm

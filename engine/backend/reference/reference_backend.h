// The oracle: each op of backend.h as plain loops on one thread, in the order its formula says. To
// be read, and to compare with; nothing here is fast.
#ifndef LM_ENGINE_BACKEND_REFERENCE_REFERENCE_BACKEND_H_
#define LM_ENGINE_BACKEND_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>
#include <utility>

#include "engine/backend/backend.h"

namespace lm {

// The blocks as the file has them.
class ReferenceMatrix : public WeightMatrix {
 public:
  ReferenceMatrix(DType dtype, int64_t rows, int64_t cols, Buffer blocks)
      : WeightMatrix(dtype, rows, cols), blocks_(std::move(blocks)) {}

  size_t bytes() const override { return blocks_.bytes(); }
  const char* row(int64_t i) const {
    return blocks_.chars().data() + i * RowBytes(dtype(), cols());
  }

 private:
  Buffer blocks_;
};

class ReferenceBackend : public Backend {
 public:
  absl::string_view name() const override { return "reference"; }

  NumericContract numeric_contract() const override { return NumericContract::kExactBlocks; }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  absl::Status Upload(const void* from, void* to, size_t bytes) override;
  absl::Status Download(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;

  absl::Status Embed(const WeightMatrix& w, float scale, Tensor out) override;
  absl::Status Normalize(Tensor x, const Norm& norm, Tensor out) override;
  absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) override;
  absl::Status RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                              const KvLayer& layer) override;
  absl::Status Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                         Tensor out) override;
  absl::Status RotateTails(Tensor x, int64_t head_dim, const Rope& rope) override;
  absl::Status PoolRows(const PoolInputs& inputs, const StateLayer& layer, Tensor out) override;
  absl::Status StoreRows(Tensor x, const RowLayer& layer) override;
  absl::Status ScoreRows(Tensor q, Tensor weights, const RowLayer& layer, Tensor out) override;
  absl::Status AttendRows(Tensor q, const RowAttention& attention, Tensor out) override;
  absl::Status CausalConv(Tensor x, Tensor weight, Tensor bias, Activation activation,
                          const StateLayer& layer, Tensor out) override;
  absl::Status DeltaRule(const DeltaRuleInputs& inputs, const StateLayer& layer,
                         Tensor out) override;
  absl::Status GatedActivation(Activation activation, Tensor gate, Tensor up, Tensor out) override;
  absl::Status Add(Tensor x, Tensor y, float scale) override;
  absl::Status ScaleAndCap(Tensor x, float scale, float cap) override;
  absl::Status Clamp(Tensor x, float low, float high) override;
  absl::Status ScaleGroups(Tensor x, Tensor factors, Activation activation) override;
  absl::Status Dot(Tensor x, Tensor y, Tensor out) override;
  absl::Status MixStreams(Tensor x, Tensor weights, int32_t streams, ProductResult result,
                          Tensor out) override;
  absl::Status BalanceStreams(Tensor x, int32_t streams, int32_t iterations, float eps,
                              Tensor out) override;
  absl::Status GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) override;
  absl::Status CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) override;
  absl::Status GatherRows(Tensor x, int32_t list, Tensor out) override;
  absl::Status Copy(const void* from, void* to, size_t bytes) override;
  absl::Status Zero(void* data, size_t bytes) override;
};

std::unique_ptr<Backend> CreateReferenceBackend();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_REFERENCE_REFERENCE_BACKEND_H_

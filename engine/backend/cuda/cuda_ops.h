// CudaBackend: backend.h's ops on one GPU. What its numbers are is said in cuda_backend.h; the
// kernels are in kernels.h, their arithmetic in the .cuh beside it.
#ifndef LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_
#define LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_

#include <memory>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cuda_device.h"
#include "engine/backend/cuda/kernels.h"
#include "engine/backend/cuda/placed_attention.h"
#include "engine/backend/cuda/placed_step.h"
#include "engine/backend/cuda/weight_upload.h"

namespace lm {

// Packed (packed_weights.cuh), but for F32.
class CudaMatrix : public WeightMatrix {
 public:
  CudaMatrix(DType dtype, int64_t rows, int64_t cols, const cuda::PackedShape& shape, Buffer memory)
      : WeightMatrix(dtype, rows, cols), shape_(shape), memory_(std::move(memory)) {}

  size_t bytes() const override { return memory_.bytes(); }
  char* data() const { return memory_.chars().data(); }
  cuda::PackedWeights weights() const {
    return {data(), shape_, rows(), cols(), static_cast<const float*>(row_scales().data)};
  }

 private:
  const cuda::PackedShape shape_;
  const Buffer memory_;
};

// With a table of its members on the device.
class CudaMatrixGroup : public MatrixGroup {
 public:
  CudaMatrixGroup(std::vector<GroupedMatrix> members, Buffer table)
      : MatrixGroup(std::move(members)), table_(std::move(table)) {}

  const cuda::ExpertMatrix* table() const {
    return static_cast<const cuda::ExpertMatrix*>(table_.data());
  }

 private:
  const Buffer table_;
};

class CudaBackend : public Backend {
 public:
  // FailedPrecondition, saying why, where GPU number `device` is not to be had. `recorder`: as
  // CudaDevice::Open has it.
  // REQUIRES: `api` outlives the backend, its buffers and its matrices.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(
      const CudaApi& api, int device, std::shared_ptr<LaunchRecorder> recorder = nullptr);

  CudaDevice& device() { return *device_; }

  absl::string_view name() const override { return device_->name(); }

  NumericContract numeric_contract() const override { return NumericContract::kRowInvariant; }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  absl::StatusOr<int64_t> FreeBytes() override;
  void set_rehearsal(const StepBounds* bounds) override;
  absl::Status Upload(const void* from, void* to, size_t bytes) override;
  absl::Status Download(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;

  absl::StatusOr<std::unique_ptr<MatrixGroup>> GroupMatrices(
      std::vector<GroupedMatrix> members) override;

  absl::Status Embed(const WeightMatrix& w, float scale, Tensor out) override;
  absl::Status Normalize(Tensor x, const Norm& norm, Tensor out) override;
  absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) override;
  absl::Status Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                       ProductResult result, Tensor out) override;
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
  absl::Status Route(Tensor logits, const Router& router, ExpertRoutes* routes) override;
  absl::Status ProjectExperts(absl::Span<const ExpertProduct> products, const ExpertRoutes& routes,
                              ProductResult result) override;
  absl::Status MoveWeights(ExpertRoutes* routes, Tensor out) override;
  absl::Status GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) override;
  absl::Status CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) override;
  absl::Status GatherRows(Tensor x, int32_t list, Tensor out) override;
  absl::Status Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                      std::vector<absl::StatusOr<int32_t>>* tokens,
                      std::vector<float>* margins) override;
  bool queues_steps() const override { return device_->queues_steps(); }
  absl::Status BeginSample(Tensor logits, absl::Span<const SamplingRow> rows) override;
  absl::Status EndSample(std::vector<absl::StatusOr<int32_t>>* tokens, std::vector<float>* margins,
                         std::vector<bool>* late) override;
  absl::Status Start() override { return device_->Flush(); }
  absl::Status Copy(const void* from, void* to, size_t bytes) override;
  absl::Status Zero(void* data, size_t bytes) override;

 protected:
  absl::Status PlaceStep() override;

 private:
  explicit CudaBackend(std::unique_ptr<CudaDevice> device) : device_(std::move(device)) {}

  // F32 weights take plain inputs only, and replace.
  absl::Status Multiply(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                        ProductResult result, Tensor out);
  // With packed weights, of experts or not; `op` is for errors.
  absl::Status MultiplyPacked(DType dtype, const cuda::PackedWeights& w,
                              const cuda::InputRows& input, const float* bias, bool adds,
                              cuda::Matrix out, const cuda::ExpertProducts* experts,
                              const char* op);
  // Of all experts.
  absl::Status MultiplyExperts(const ExpertProduct& product, const ExpertRoutes& routes,
                               ProductResult result);
  absl::StatusOr<Tensor> PlainInput(const ProductInput& input);
  // The input as it is before it is packed.
  static cuda::InputRows ToInputRows(const ProductInput& input);

  // With the step's block tables. REQUIRES: the layer has memory.
  cuda::RowCache ToRowCache(const RowLayer& layer) const;

  std::unique_ptr<CudaDevice> device_;         // first: the rest lies in its memory
  WeightUpload weight_upload_{device_.get()};  // until the first step
  CudaScratch input_scratch_;                  // of a product, packed
  CudaScratch given_experts_;                  // of Route
  CudaScratch plain_input_;                    // of experts of F32
  CudaScratch picks_;                          // of Sample
  // What is picked by BeginSample, until the next one.
  struct Picked {
    Tensor logits = {};
    std::vector<SamplingRow> rows = {};
    std::vector<int32_t> places = {};  // of the rows among those that the device picks of, or -1
    std::vector<char> packed = {};     // what those are picked by
    CudaScratch memory = {};           // cuda::PickedToken of each of them
    Buffer brought = {};               // the same, page-locked
  };
  Picked picked_;
  PlacedStep placed_;
  PlacedAttention attention_;
};

inline cuda::Matrix ToMatrix(Tensor tensor) {
  return {static_cast<float*>(tensor.data), tensor.rows, tensor.cols,
          tensor.row_bytes / static_cast<int64_t>(sizeof(float))};
}

inline cuda::NormRow ToNormRow(const Norm& norm) {
  return {norm.kind == NormKind::kLayer,
          norm.kind != NormKind::kNone,
          norm.weight.row<float>(0),
          norm.bias.empty() ? nullptr : norm.bias.row<float>(0),
          norm.weight.cols,
          norm.group_size(),
          norm.eps};
}

// Integers of 16 bits are for CPUs: tensor cores have no products of them.
inline absl::Status CheckCacheType(absl::string_view op, const KvLayer& layer) {
  if (layer.dtype != DType::kI16) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": a GPU's KV layer must be F16, F32 or I8, got I16"));
}
inline cuda::KvCacheLayer ToCacheLayer(const KvLayer& layer) {
  return {layer.keys,    layer.values,    layer.dtype,       layer.kv_heads,
          layer.key_dim, layer.value_dim, layer.block_stride};
}

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CUDA_CUDA_OPS_H_

// ObservingBackend: another backend's work, and of each matrix what it is multiplied by.
//
// Which tensors a matrix is made of is seen when it is loaded: of what is read meanwhile, Note has
// the name (GgufFile::set_observer).
#ifndef LM_ENGINE_CONVERT_OBSERVING_BACKEND_H_
#define LM_ENGINE_CONVERT_OBSERVING_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/backend/backend.h"
#include "engine/base/hash_map.h"

namespace lm {

// Of each tensor, the mean of the squares of what its columns are multiplied by.
using Importance = HashMap<std::string, std::vector<float>>;

class ObservingBackend final : public Backend {
 public:
  // REQUIRES: `inner` has the host's memory.
  explicit ObservingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  // A tensor of that name is being read. Thread-safe.
  void Note(const std::string& tensor);

  // Of all products so far.
  Importance Observed() const;

  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;
  // What the base class makes of other products ends here too.
  absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) override;

  absl::string_view name() const override { return inner_->name(); }
  bool uses_host_memory() const override { return inner_->uses_host_memory(); }
  NumericContract numeric_contract() const override { return inner_->numeric_contract(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  absl::Status Upload(const void* from, void* to, size_t bytes) override {
    return inner_->Upload(from, to, bytes);
  }
  absl::Status Download(const void* from, void* to, size_t bytes) override {
    return inner_->Download(from, to, bytes);
  }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  absl::Status Embed(const WeightMatrix& w, float scale, Tensor out) override {
    return inner_->Embed(w, scale, out);
  }
  absl::Status Normalize(Tensor x, const Norm& norm, Tensor out) override {
    return inner_->Normalize(x, norm, out);
  }
  absl::Status RopeAndStoreKv(Tensor q, Tensor k, Tensor v, const Rope& rope,
                              const KvLayer& layer) override {
    return inner_->RopeAndStoreKv(q, k, v, rope, layer);
  }
  absl::Status Attention(Tensor q, const KvLayer& layer, const AttentionOptions& options,
                         Tensor out) override {
    return inner_->Attention(q, layer, options, out);
  }
  absl::Status RotateTails(Tensor x, int64_t head_dim, const Rope& rope) override {
    return inner_->RotateTails(x, head_dim, rope);
  }
  absl::Status PoolRows(const PoolInputs& inputs, const StateLayer& layer, Tensor out) override {
    return inner_->PoolRows(inputs, layer, out);
  }
  absl::Status StoreRows(Tensor x, const RowLayer& layer) override {
    return inner_->StoreRows(x, layer);
  }
  absl::Status ScoreRows(Tensor q, Tensor weights, const RowLayer& layer, Tensor out) override {
    return inner_->ScoreRows(q, weights, layer, out);
  }
  absl::Status AttendRows(Tensor q, const RowAttention& attention, Tensor out) override {
    return inner_->AttendRows(q, attention, out);
  }
  absl::Status CausalConv(Tensor x, Tensor weight, Tensor bias, Activation activation,
                          const StateLayer& layer, Tensor out) override {
    return inner_->CausalConv(x, weight, bias, activation, layer, out);
  }
  absl::Status DeltaRule(const DeltaRuleInputs& inputs, const StateLayer& layer,
                         Tensor out) override {
    return inner_->DeltaRule(inputs, layer, out);
  }
  absl::Status GatedActivation(Activation activation, Tensor gate, Tensor up, Tensor out) override {
    return inner_->GatedActivation(activation, gate, up, out);
  }
  absl::Status Add(Tensor x, Tensor y, float scale) override { return inner_->Add(x, y, scale); }
  absl::Status ScaleAndCap(Tensor x, float scale, float cap) override {
    return inner_->ScaleAndCap(x, scale, cap);
  }
  absl::Status Clamp(Tensor x, float low, float high) override {
    return inner_->Clamp(x, low, high);
  }
  absl::Status ScaleGroups(Tensor x, Tensor factors, Activation activation) override {
    return inner_->ScaleGroups(x, factors, activation);
  }
  absl::Status Dot(Tensor x, Tensor y, Tensor out) override { return inner_->Dot(x, y, out); }
  absl::Status MixStreams(Tensor x, Tensor weights, int32_t streams, ProductResult result,
                          Tensor out) override {
    return inner_->MixStreams(x, weights, streams, result, out);
  }
  absl::Status BalanceStreams(Tensor x, int32_t streams, int32_t iterations, float eps,
                              Tensor out) override {
    return inner_->BalanceStreams(x, streams, iterations, eps, out);
  }
  absl::Status GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) override {
    return inner_->GatherSlots(x, routes, out);
  }
  absl::Status CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) override {
    return inner_->CombineSlots(y, routes, out);
  }
  absl::Status GatherRows(Tensor x, int32_t list, Tensor out) override {
    return inner_->GatherRows(x, list, out);
  }
  absl::Status Copy(const void* from, void* to, size_t bytes) override {
    return inner_->Copy(from, to, bytes);
  }
  absl::Status Zero(void* data, size_t bytes) override { return inner_->Zero(data, bytes); }

 protected:
  absl::Status PlaceStep() override { return inner_->BeginStep(&step()); }

 private:
  struct Sums {
    HashSet<std::string> tensors;
    std::vector<double> squares;  // of each column
    int64_t rows = 0;
  };

  const std::unique_ptr<Backend> inner_;
  HashMap<const WeightMatrix*, Sums> sums_;
  mutable absl::Mutex mutex_;
  bool loading_ ABSL_GUARDED_BY(mutex_) = false;
  HashSet<std::string> noted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lm

#endif  // LM_ENGINE_CONVERT_OBSERVING_BACKEND_H_

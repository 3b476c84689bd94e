// TensorParallelBackend: several devices of a kind that compute each layer together ("tensor
// parallelism": Shoeybi et al. 2019, arXiv 1909.08053).
//
//   device: 'cuda:0+cuda:1'
//
// Each member has the rows of a matrix that are its own (small ones whole), and some of the KV
// heads. A product's columns are made by those who have the rows, the heads of attention by those
// who have theirs, and then all of it is given to all (collectives.h); everything else each member
// does for itself. So every sum is made whole, by one member, in the order that it has there: the
// results have the bits of one device. (Sums in parts, added over the devices, would want half as
// many exchanges, and have other bits.)
//
// What the ops are given is each member's own at the same place of an allocation (member_memory.h).
#ifndef LM_ENGINE_BACKEND_TENSOR_PARALLEL_TENSOR_PARALLEL_BACKEND_H_
#define LM_ENGINE_BACKEND_TENSOR_PARALLEL_TENSOR_PARALLEL_BACKEND_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/collectives.h"
#include "engine/backend/tensor_parallel/member_memory.h"
#include "engine/backend/tensor_parallel/split_matrix.h"

namespace lm {

class TensorParallelBackend final : public Backend {
 public:
  // Matrices of fewer than least_split_bytes each member has whole: to exchange results takes
  // longer than to read them. REQUIRES: two members or more, of one kind, whose memory the
  // collectives can reach.
  TensorParallelBackend(std::vector<std::unique_ptr<Backend>> members,
                        std::unique_ptr<Collectives> collectives, int64_t least_split_bytes);

  absl::string_view name() const override { return name_; }
  int32_t num_devices() const override { return static_cast<int32_t>(members_.size()); }
  NumericContract numeric_contract() const override { return members_[0]->numeric_contract(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  absl::StatusOr<Buffer> AllocateKv(size_t bytes, int32_t kv_heads) override;
  // Of the member that has the least.
  absl::StatusOr<int64_t> FreeBytes() override;
  void set_rehearsal(const StepBounds* bounds) override;
  void set_cancel(const std::atomic<bool>* cancel) override;
  absl::Status Upload(const void* from, void* to, size_t bytes) override;
  // REQUIRES (both): not of keys and values.
  absl::Status Download(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override;
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;
  absl::StatusOr<std::unique_ptr<MatrixGroup>> GroupMatrices(
      std::vector<GroupedMatrix> members) override;

  absl::Status Embed(const WeightMatrix& w, float scale, Tensor out) override;
  absl::Status Normalize(Tensor x, const Norm& norm, Tensor out) override;
  absl::Status MatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out) override;
  absl::Status MatMulColumns(const WeightMatrix& w, Tensor x, absl::Span<const uint64_t> wanted,
                             Tensor out) override;
  absl::Status Project(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                       ProductResult result, Tensor out) override;
  absl::Status ProjectAll(absl::Span<const MatrixProduct> products, ProductResult result) override;
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
  absl::Status Copy(const void* from, void* to, size_t bytes) override;
  absl::Status Zero(void* data, size_t bytes) override;

 protected:
  absl::Status PlaceStep() override;

 private:
  class At;  // an op's arguments as one member has them

  absl::StatusOr<Buffer> AllocateShares(size_t bytes, int32_t shares);
  // Whose rows are whose.
  RowSplit SplitRows(DType dtype, int64_t rows, int64_t cols) const;
  // Begins the step for the members if it has not begun for them; where there is a split, with
  // tokens that are rows of their own parts of such a matrix, and with a list of the rows of
  // Embed's stack.
  absl::Status BeginMembers(const RowSplit* vocabulary);
  // To be called before members write what the ops are given: others may still be reading that.
  absl::Status BeginWriting(const void* data, size_t bytes);
  absl::Status Join();
  // f(member, at) of each, who may write these.
  using Written = std::initializer_list<Tensor>;
  template <typename F>
  absl::Status ForMembers(Written written, F f);
  // The op of each member, with arguments of its own.
  template <typename... Parameters, typename... Arguments>
  absl::Status Replicate(Written written, absl::Status (Backend::*op)(Parameters...),
                         const Arguments&... arguments);
  RowSplit EvenSplit(int64_t cols) const;
  // Gives everybody what each has made of `out`, whose columns the split shares out; and of
  // products with matrices that are split. The last is for when they have joined.
  struct Product {
    const WeightMatrix* w;
    Tensor out;
  };
  absl::Status Gather(Tensor out, const RowSplit& split);
  absl::Status Gather(absl::Span<const Product> products);
  absl::Status GiveToAll(Tensor out, const RowSplit& split);
  bool HasShares(const KvLayer& layer) const { return memory_->SharesOf(layer.keys) > 1; }

  const std::vector<std::unique_ptr<Backend>> members_;
  const std::unique_ptr<Collectives> collectives_;
  const std::string name_;
  const int64_t least_split_bytes_;
  const std::shared_ptr<MemberMemory> memory_;  // that of buffers, which may outlive this
  bool begun_ = false;                          // for the members
  RowSplit vocabulary_;                         // whose rows their tokens are; empty: all of them
  std::vector<StepTables> steps_;               // of each member
  // What has been given to all since the members joined last: where it begins and ends.
  std::vector<std::pair<const char*, const char*>> given_;
  Buffer embedded_;  // [token][member][hidden]
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_TENSOR_PARALLEL_TENSOR_PARALLEL_BACKEND_H_

// The CPU backend: backend.h over a thread pool and one instruction set's kernels.
#ifndef LM_ENGINE_BACKEND_CPU_CPU_BACKEND_H_
#define LM_ENGINE_BACKEND_CPU_CPU_BACKEND_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "engine/backend/backend.h"
#include "engine/backend/cpu/cpu_kernels.h"
#include "engine/backend/cpu/matmul_tiles.h"
#include "engine/backend/cpu/onednn_product.h"
#include "engine/backend/cpu/panel_matrix.h"
#include "engine/backend/cpu/scratch.h"
#include "engine/backend/cpu/weight_arena.h"
#include "engine/base/cpu_features.h"
#include "engine/base/hash_map.h"
#include "engine/base/thread_pool.h"

namespace lm {

// A token that asks, in attention.
struct AttentionQuery {
  const int32_t* blocks;  // of its sequence
  int64_t row;            // in the step
  int64_t position;       // in its sequence
  int64_t context;        // of its sequence
};

// threads 0: as many as this process may use.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(Isa isa, int threads);

class CpuBackend : public Backend {
 public:
  CpuBackend(Isa isa, int threads) : isa_(isa), kernels_(GetCpuKernels(isa)), pool_(threads) {}

  absl::string_view name() const override { return "cpu"; }

  bool uses_host_memory() const override { return true; }
  NumericContract numeric_contract() const override { return NumericContract::kExactBlocks; }
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;
  absl::Status Upload(const void* from, void* to, size_t bytes) override;
  absl::Status Download(const void* from, void* to, size_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(DType dtype, int64_t rows, int64_t cols,
                                                           RowReader read) override;
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadLastingMatrix(DType dtype, int64_t rows,
                                                                  int64_t cols,
                                                                  LastingRowReader read) override;
  bool lays_out_later() const override { return true; }
  absl::StatusOr<bool> LayOutMore(absl::Duration time) override;
  bool adopts_matrices() const override { return true; }
  absl::StatusOr<std::unique_ptr<WeightMatrix>> AdoptMatrix(DType dtype, int64_t rows, int64_t cols,
                                                            Buffer packed) override;

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
  absl::Status GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) override;
  absl::Status CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) override;
  absl::Status GatherRows(Tensor x, int32_t list, Tensor out) override;
  absl::Status Sample(Tensor logits, absl::Span<const SamplingRow> rows,
                      std::vector<absl::StatusOr<int32_t>>* tokens,
                      std::vector<float>* margins) override;
  absl::Status Copy(const void* from, void* to, size_t bytes) override;
  absl::Status Zero(void* data, size_t bytes) override;

 private:
  // A product, with what is around it.
  struct ProductArguments {
    const PanelMatrix& w;
    ProductInput input;
    Tensor bias;
    ProductResult result;
    Tensor out;
    absl::Span<const uint64_t> wanted = {};  // see MatMulColumns; empty: all

    bool Wants(int64_t column) const { return wanted.empty() || wanted[column / 64] != 0; }
    ProductArguments Rows(int64_t begin, int64_t count) const;
  };
  // Normalize of a row of `cols` values.
  void NormRow(const Norm& norm, const float* x, int64_t cols, float* out) const;
  absl::Status Multiply(const ProductArguments& args);
  class QuantizedPlan;
  // All of them at once. REQUIRES: block weights, and outputs with rows.
  absl::Status MultiplyQuantized(absl::Span<const ProductArguments> products);
  absl::Status MultiplyFloat(const ProductArguments& args);
  absl::Status MultiplyFewTokens(const ProductArguments& args);
  // REQUIRES: the rows are a multiple of OneDnnProduct::kTokens, and oneDNN can be used for all
  // chunks of w.cols().
  absl::Status MultiplyManyTokens(const ProductArguments& args);
  // Calls body(t, values) for every row of a product's input, on the pool where there is enough to
  // share; those of a tile on one thread.
  absl::Status ForInputRows(const ProductInput& input, const Tiles& tiles,
                            absl::FunctionRef<void(int64_t, const float*)> body);
  // The step's tokens in the order in which attention takes those of a class of the cache.
  const std::vector<AttentionQuery>& SortedQueries(int32_t cache_class);
  // nullptr where oneDNN cannot be used for chunks of k.
  OneDnnProduct* FindOneDnnProduct(int64_t k);

  // Values below which a loop over rows is done by the time another thread has woken.
  static constexpr int64_t kValuesWorthSharing = 8 * 1024;
  // So that a thread that is held up does not hold up the others.
  static constexpr int64_t kPiecesAThread = 4;

  // Calls body(begin, end) over the rows of a (rows, cols) operation: on the pool where there is
  // enough to share.
  void ForRows(int64_t rows, int64_t cols, absl::FunctionRef<void(int64_t, int64_t)> body);

  // Calls body(item, worker) for each item in [0, count), unless the step is cancelled, with worker
  // < pool_.num_threads(), one item at a time to each worker: the index of memory that a worker may
  // use meanwhile.
  void ForItems(int64_t count, absl::FunctionRef<void(int64_t, int)> body);

  // Calls body(item) for each item in [0, count): as ForItems where so many values are worth it.
  void ForWork(int64_t count, int64_t work, absl::FunctionRef<void(int64_t)> body);

  const Isa isa_;
  const CpuKernels& kernels_;
  ThreadPool pool_;
  WeightArena arena_;
  std::shared_ptr<DeferredMatrices> deferred_ = std::make_shared<DeferredMatrices>();
  Scratch rows_;                    // a row of a product's input for each worker
  Scratch inputs_;                  // activations as a product wants them
  Scratch workers_;                 // what each worker needs
  std::vector<DrawScratch> draws_;  // each worker's, of Sample
  struct SortedClass {
    int64_t step = 0;  // its serial
    std::vector<AttentionQuery> queries;
  };
  std::vector<SortedClass> sorted_;  // by class
  // By the length of a chunk; the outcome of each trial.
  HashMap<int64_t, std::unique_ptr<OneDnnProduct>> onednn_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_CPU_BACKEND_H_

// WeightLoader: takes tensors from a file by name, checks their shape, puts them on a backend, and
// keeps count of what was taken.
//
//   WeightLoader loader(gguf, backend);
//   ASSIGN_OR_RETURN(DeviceNorm norm, loader.LoadNorm("blk.0.attn_norm", spec, 1, spec.hidden));
//   RETURN_IF_ERROR(loader.CheckAllTaken(spec.architecture, spec.num_layers(), 0));
//
// Errors are InvalidArgument and name the tensor: one that is missing, of another shape (with both
// shapes), or not finite.
#ifndef LM_ENGINE_MODEL_WEIGHT_LOADER_H_
#define LM_ENGINE_MODEL_WEIGHT_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"
#include "engine/base/hash_map.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/read_ahead.h"
#include "engine/model/model_spec.h"
#include "engine/model/weights.h"

namespace lm {

class WeightLoader {
 public:
  // REQUIRES: the files outlive this.
  WeightLoader(const GgufFile& gguf, Backend* backend, absl::Span<const AdapterFile> adapters = {});

  // Where matrices may be that were packed before; null: nowhere. REQUIRES: it outlives this.
  void set_cache(PackCache* cache) { cache_ = cache; }

  // Matrices of plain files may be laid out later, beside the first steps; none with a cache. Their
  // values are looked at when they are read.
  void set_lays_out_later(bool later) { lays_out_later_ = later; }

  // Where the tensors go from now on.
  void set_backend(Backend* backend);

  bool Has(const std::string& name) const { return gguf_.FindTensor(name) != nullptr; }
  // 0 where there is no such tensor.
  int64_t RowsOf(const std::string& name) const;

  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size);

  // Row `row` of a (rows, cols) tensor.
  absl::StatusOr<std::vector<float>> HostRow(const std::string& name, int64_t rows, int64_t row,
                                             int64_t cols);

  absl::StatusOr<std::vector<float>> HostMatrix(const std::string& name, int64_t rows,
                                                int64_t cols);

  // A (rows, cols) tensor of I32, each in [0, below).
  absl::StatusOr<std::vector<int32_t>> HostInts(const std::string& name, int64_t rows, int64_t cols,
                                                int64_t below);

  // A tensor's values, all rows one after the other, as a (1, rows * cols) vector.
  absl::StatusOr<DeviceVector> Flat(const std::string& name, int64_t rows, int64_t cols);

  absl::StatusOr<DeviceVector> Vector(const std::string& name, int64_t size);

  absl::StatusOr<std::unique_ptr<WeightMatrix>> Matrix(const std::string& name, int64_t rows,
                                                       int64_t cols);

  // A tensor that stays in the file.
  absl::StatusOr<FileRows> InFile(const std::string& name, int64_t rows, int64_t cols);

  // Rows of the tensor "<prefix>.weight", and of "<prefix>.bias" where there is one; what products
  // with them are multiplied by is number `index` of "<prefix>.scale", where there is such.
  struct ProjectionPart {
    std::string prefix;
    int64_t rows;
    // The file's rows are groups of runs so long: all groups' first runs come first, then their
    // second ones, and so on, of the biases, too. Empty: the rows as they are.
    std::vector<int64_t> runs = {};
    // The tensor is this many of such matrices, one below the other, of which this is number
    // `index`.
    int64_t count = 1;
    int64_t index = 0;
    bool scaled = true;     // false: somebody else takes "<prefix>.scale"
    bool adaptable = true;  // false: what adapters would add is not what the product is used for
    std::string bias = {};  // in the place of "<prefix>.bias", and must be there
    bool own_bias = false;  // which is of this matrix alone
    // The tensor, and its biases, have this many rows, of which these are those from `first` on; 0:
    // it has no others.
    int64_t all_rows = 0;
    int64_t first = 0;

    int64_t RowsOfOne() const { return all_rows > 0 ? all_rows : rows; }  // of the `count`
  };

  absl::StatusOr<Projection> LoadProjection(absl::Span<const ProjectionPart> parts, int64_t cols);

  // REQUIRES: see ExpertProjection::Of.
  absl::StatusOr<ExpertProjection> Together(absl::Span<const Projection* const> experts) {
    return ExpertProjection::Of(experts, backend_);
  }

  // What the adapters add to the products with the parts over inputs of `cols` values, side by
  // side; LoadProjection has it in the projection. In an adapter's file a part's A and B are
  // "<prefix>.weight.lora_a" (count * rank, cols) and ".lora_b" (count * rows, rank).
  absl::StatusOr<std::vector<LowRankUpdate>> Updates(absl::Span<const ProjectionPart> parts,
                                                     int64_t cols);
  // Likewise of a (rows, cols) embedding: A is (rows, rank), B is (cols, rank).
  absl::StatusOr<std::vector<LowRankUpdate>> EmbeddingUpdates(const std::string& prefix,
                                                              int64_t rows, int64_t cols);

  // The rows [first, first + count) of a (rows, cols) tensor as a matrix; transposed, as F32.
  absl::StatusOr<Projection> LoadRows(const std::string& name, int64_t rows, int64_t cols,
                                      int64_t first, int64_t count, bool transpose);

  // Values made here, as a (rows, cols) matrix on the device.
  absl::StatusOr<DeviceVector> ToDevice(const std::vector<float>& values, int64_t rows = 1);

  // A norm with (rows, cols) gains, and a bias where there is one.
  absl::StatusOr<DeviceNorm> LoadNorm(const std::string& prefix, const ModelSpec& spec,
                                      int64_t rows, int64_t cols);

  // A norm of `cols` values without gains.
  absl::StatusOr<DeviceNorm> PlainNorm(const ModelSpec& spec, int64_t cols);

  // What values are multiplied by, one each, and nothing else (NormKind::kNone).
  absl::StatusOr<DeviceNorm> Gains(const std::vector<float>& values);

  // Divisors of a rope's frequencies; none where the file has none.
  absl::StatusOr<std::vector<float>> RopeFactors(const RopeSpec& rope, int64_t context_length);

  // A (rows, cols) tensor of the file, its columns as rows; several such as one, side by side.
  absl::StatusOr<DeviceVector> Transposed(const std::string& name, int64_t rows, int64_t cols);
  absl::StatusOr<DeviceVector> Transposed(absl::Span<const std::string> names, int64_t rows,
                                          int64_t cols);

  // A tensor that the architecture has and that nothing is computed with.
  void LeaveOut(const std::string& name) { taken_.insert(name); }

  // An error for a tensor that nobody asked for: the model is not what its architecture says. Those
  // of the `skipped` blocks from `first_skipped` on are not asked for, nor is what reads images or
  // sound.
  absl::Status CheckAllTaken(const std::string& architecture, int64_t first_skipped,
                             int64_t skipped) const;

  // Likewise for a tensor of an adapter that nothing here is updated by.
  absl::Status CheckAdaptersTaken() const;
  int64_t most_ranks() const { return most_ranks_; }  // of any update

  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }
  std::string MostCommonType() const;

 private:
  // Of weights, or of I32 where `numbers`.
  absl::StatusOr<const TensorInfo*> Take(const std::string& name, int64_t rows, int64_t cols,
                                         bool in_memory = true, bool numbers = false);

  // A run of a tensor's rows.
  struct Rows {
    const TensorInfo* info;
    int64_t first;
    int64_t count;
  };

  // The scale of a part's rows; 1 where the file has none.
  absl::StatusOr<float> ScaleOf(const ProjectionPart& part);
  // Gives the matrix scales unless all are 1.
  absl::Status SetScales(const std::vector<float>& scales, WeightMatrix* matrix);

  // The rows of a part in their order, from its first one on: where each run begins, and how many.
  static std::vector<std::pair<int64_t, int64_t>> RunsOf(const ProjectionPart& part);
  static void AddRows(const TensorInfo& info, const ProjectionPart& part, std::vector<Rows>* stack);

  // What one adapter adds; its tensors are taken by `tensors`.
  struct Adapter {
    const AdapterFile* file;
    std::unique_ptr<WeightLoader> tensors;
  };
  static absl::Status AddUpdates(const Adapter& adapter, int32_t number,
                                 absl::Span<const ProjectionPart> parts, int64_t cols,
                                 std::vector<LowRankUpdate>* updates);
  // Of an adapter's file: how many ranks a tensor has, 0 where it has none of that name; the error
  // where only one of A and B is there.
  absl::StatusOr<int64_t> RanksOf(const std::string& prefix) const;

  absl::StatusOr<std::vector<float>> ReadFloats(const TensorInfo& info, int64_t first,
                                                int64_t count) const;

  // Rows of tensors of one type and width as one matrix, one below the other.
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadStack(const std::vector<Rows>& stack,
                                                          int64_t rows, int64_t cols);

  // The rows [first, first + count) of such a stack; `ahead`, where there is one, learns of it.
  // Thread-safe.
  absl::Status ReadRows(const std::vector<Rows>& stack, int64_t first, int64_t count, char* to,
                        ReadAhead* ahead = nullptr) const;

  const GgufFile& gguf_;
  const std::shared_ptr<ReadAhead> read_ahead_;
  Backend* backend_;
  PackCache* cache_ = nullptr;
  bool lays_out_later_ = false;
  std::vector<Adapter> adapters_;
  int64_t most_ranks_ = 0;
  HashSet<std::string> taken_;
  HashMap<DType, int64_t> bytes_by_type_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_WEIGHT_LOADER_H_

#include "engine/model/weights.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"

namespace lm {

absl::Status Projection::Apply(Backend* backend, const ProductInput& x, ProductResult result,
                               Tensor out) const {
  for (const Part& part : parts_) {
    RETURN_IF_ERROR(backend->Project(*part.matrix, x, part.bias.tensor, result,
                                     out.Cols(part.first_col, part.matrix->rows())));
  }
  return absl::OkStatus();
}

int64_t Projection::bytes() const {
  int64_t total = 0;
  for (const Part& part : parts_) total += static_cast<int64_t>(part.matrix->bytes());
  return total;
}

// Takes tensors from the file by name, checks their shape, and keeps count of what was taken.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& gguf, Backend* backend) : gguf_(gguf), backend_(backend) {}

  // Where the tensors go from now on.
  void set_backend(Backend* backend) { backend_ = backend; }

  bool Has(const std::string& name) const { return gguf_.FindTensor(name) != nullptr; }

  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, 1, size));
    std::vector<char> bytes(info->bytes);
    RETURN_IF_ERROR(ReadRows({info}, 0, 1, bytes.data()));
    std::vector<float> values(size);
    DequantizeRow(info->dtype, bytes.data(), size, values.data());
    return values;
  }

  absl::StatusOr<DeviceVector> Vector(const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(std::vector<float> values, HostVector(name, size));
    return ToDevice(values);
  }

  absl::StatusOr<std::unique_ptr<WeightMatrix>> Matrix(const std::string& name, int64_t rows,
                                                       int64_t cols) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
    return LoadStack({info}, rows, cols);
  }

  struct ProjectionPart {
    std::string prefix;  // "<prefix>.weight", and "<prefix>.bias" where there is one
    int64_t rows;
  };

  absl::StatusOr<Projection> LoadProjection(absl::Span<const ProjectionPart> parts, int64_t cols,
                                            bool needs_bias) {
    Projection projection;
    int64_t first_col = 0;
    for (size_t begin = 0, end; begin < parts.size(); begin = end) {
      std::vector<const TensorInfo*> stack;
      std::vector<float> bias;
      int64_t rows = 0;
      for (end = begin; end < parts.size(); ++end) {
        const ProjectionPart& part = parts[end];
        std::string weight_name = part.prefix + ".weight";
        const TensorInfo* info = gguf_.FindTensor(weight_name);
        if (info != nullptr && !stack.empty() && info->dtype != stack[0]->dtype) break;
        ASSIGN_OR_RETURN(info, Take(weight_name, part.rows, cols));
        stack.push_back(info);
        if (needs_bias || Has(part.prefix + ".bias")) {
          bias.resize(rows);  // zeros for the parts before that have none
          ASSIGN_OR_RETURN(std::vector<float> values, HostVector(part.prefix + ".bias", part.rows));
          bias.insert(bias.end(), values.begin(), values.end());
        }
        rows += part.rows;
      }
      if (!bias.empty()) bias.resize(rows);
      Projection::Part part;
      part.first_col = first_col;
      ASSIGN_OR_RETURN(part.matrix, LoadStack(stack, rows, cols));
      if (!bias.empty()) {
        ASSIGN_OR_RETURN(part.bias, ToDevice(bias));
      }
      projection.parts_.push_back(std::move(part));
      first_col += rows;
    }
    return projection;
  }

  // An error for a tensor that nobody asked for: the model is not what its architecture says.
  absl::Status CheckAllTaken(const std::string& architecture) const {
    for (const TensorInfo& info : gguf_.tensors()) {
      if (!taken_.contains(info.name)) {
        return absl::InvalidArgumentError(absl::StrCat("tensor '", absl::CHexEscape(info.name),
                                                       "' is not part of the supported '",
                                                       architecture, "' architecture"));
      }
    }
    return absl::OkStatus();
  }

  int64_t parameters() const { return parameters_; }
  int64_t bytes() const { return bytes_; }
  std::string MostCommonType() const {
    DType most = DType::kF32;
    int64_t most_bytes = -1;
    for (const auto& [dtype, bytes] : bytes_by_type_) {
      if (bytes > most_bytes) std::tie(most, most_bytes) = std::make_pair(dtype, bytes);
    }
    return std::string(Traits(most).name);
  }

 private:
  absl::StatusOr<const TensorInfo*> Take(const std::string& name, int64_t rows, int64_t cols) {
    const TensorInfo* info = gguf_.FindTensor(name);
    if (info == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' is missing"));
    }
    if (info->rows != rows || info->cols != cols) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' must be ", rows, " x ",
                                                     cols, ", got ", info->rows, " x ",
                                                     info->cols));
    }
    if (taken_.insert(name).second) {
      parameters_ += rows * cols;
      bytes_ += static_cast<int64_t>(info->bytes);
      bytes_by_type_[info->dtype] += static_cast<int64_t>(info->bytes);
    }
    return info;
  }

  // Tensors of one type and width as one matrix, one below the other.
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadStack(
      const std::vector<const TensorInfo*>& stack, int64_t rows, int64_t cols) {
    return backend_->LoadMatrix(
        stack[0]->dtype, rows, cols,
        [&](int64_t first, int64_t count, char* to) { return ReadRows(stack, first, count, to); });
  }

  // The rows [first, first + count) of such a stack. Thread-safe.
  absl::Status ReadRows(const std::vector<const TensorInfo*>& stack, int64_t first, int64_t count,
                        char* to) const {
    for (const TensorInfo* info : stack) {
      const int64_t rows = std::clamp<int64_t>(info->rows - first, 0, count);
      if (rows > 0) {
        const int64_t row_bytes = RowBytes(info->dtype, info->cols);
        RETURN_IF_ERROR(
            gguf_.ReadTensor(*info, absl::MakeSpan(to, rows * row_bytes), first * row_bytes));
        absl::Status finite = CheckFinite(info->dtype, to, rows * info->cols, first * info->cols);
        if (!finite.ok()) {
          return absl::InvalidArgumentError(
              absl::StrCat("tensor '", info->name, "': ", finite.message()));
        }
        to += rows * row_bytes;
        count -= rows;
      }
      first = std::max<int64_t>(first - info->rows, 0);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceVector> ToDevice(const std::vector<float>& values) {
    DeviceVector vector;
    ASSIGN_OR_RETURN(vector.buffer, backend_->Allocate(values.size() * sizeof(float)));
    RETURN_IF_ERROR(
        backend_->Upload(values.data(), vector.buffer.data(), values.size() * sizeof(float)));
    vector.tensor = Tensor(vector.buffer.data(), DType::kF32, 1, values.size());
    return vector;
  }

  const GgufFile& gguf_;
  Backend* backend_;
  HashSet<std::string> taken_;
  HashMap<DType, int64_t> bytes_by_type_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
};

namespace {

absl::StatusOr<LayerWeights> LoadLayer(const ModelSpec& spec, int64_t index, WeightLoader* loader) {
  auto name = [index](absl::string_view part) { return absl::StrCat("blk.", index, ".", part); };
  const AttentionSpec& attention = spec.layers[index].attention;
  const int64_t ffn = spec.layers[index].feed_forward.width;
  LayerWeights layer;
  ASSIGN_OR_RETURN(layer.attention_norm, loader->Vector(name("attn_norm.weight"), spec.hidden));
  ASSIGN_OR_RETURN(layer.qkv, loader->LoadProjection({{name("attn_q"), attention.q_cols()},
                                                      {name("attn_k"), attention.kv_cols()},
                                                      {name("attn_v"), attention.kv_cols()}},
                                                     spec.hidden, attention.biases));
  if (attention.head_norms) {
    ASSIGN_OR_RETURN(layer.q_norm, loader->Vector(name("attn_q_norm.weight"), attention.head_dim));
    ASSIGN_OR_RETURN(layer.k_norm, loader->Vector(name("attn_k_norm.weight"), attention.head_dim));
  }
  ASSIGN_OR_RETURN(layer.attention_output,
                   loader->LoadProjection({{name("attn_output"), spec.hidden}}, attention.q_cols(),
                                          /*needs_bias=*/false));
  ASSIGN_OR_RETURN(layer.ffn_norm, loader->Vector(name("ffn_norm.weight"), spec.hidden));
  ASSIGN_OR_RETURN(layer.gate_up,
                   loader->LoadProjection({{name("ffn_gate"), ffn}, {name("ffn_up"), ffn}},
                                          spec.hidden, /*needs_bias=*/false));
  ASSIGN_OR_RETURN(layer.down, loader->LoadProjection({{name("ffn_down"), spec.hidden}}, ffn,
                                                      /*needs_bias=*/false));
  return layer;
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const GgufFile& gguf, const ModelSpec& spec,
                                    absl::FunctionRef<Backend*(int64_t layer)> backend_of) {
  Backend* const first = backend_of(0);
  Backend* const last = backend_of(spec.num_layers() - 1);
  WeightLoader loader(gguf, first);
  Weights weights;
  ASSIGN_OR_RETURN(weights.embedding, loader.Matrix("token_embd.weight", spec.vocab, spec.hidden));
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    loader.set_backend(backend_of(i));
    ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(spec, i, &loader));
    weights.layers.push_back(std::move(layer));
  }
  ASSIGN_OR_RETURN(weights.output_norm, loader.Vector("output_norm.weight", spec.hidden));
  weights.tied = !loader.Has("output.weight");
  if (!weights.tied || first != last) {
    const char* name = weights.tied ? "token_embd.weight" : "output.weight";
    ASSIGN_OR_RETURN(weights.output, loader.Matrix(name, spec.vocab, spec.hidden));
  }
  if (spec.output_bias && loader.Has("output.bias")) {
    ASSIGN_OR_RETURN(weights.output_bias, loader.Vector("output.bias", spec.vocab));
  }
  if (loader.Has("rope_freqs.weight")) {
    ASSIGN_OR_RETURN(weights.rope_factors,
                     loader.HostVector("rope_freqs.weight", spec.rope.dim / 2));
    for (float factor : weights.rope_factors) {
      if (!(factor > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor 'rope_freqs.weight' must be > 0, got ", factor));
      }
    }
  }
  RETURN_IF_ERROR(loader.CheckAllTaken(spec.architecture));
  weights.parameters = loader.parameters();
  weights.bytes = loader.bytes();
  weights.quantisation = loader.MostCommonType();
  return weights;
}

}  // namespace lm

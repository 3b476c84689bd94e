#include "engine/model/weights.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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
    RETURN_IF_ERROR(ReadRows({{info, 0, 1}}, 0, 1, bytes.data()));
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
    return LoadStack({{info, 0, rows}}, rows, cols);
  }

  struct ProjectionPart {
    std::string prefix;  // "<prefix>.weight", and "<prefix>.bias" where there is one
    int64_t rows;
    // Of the file's rows in runs of this many, every other run comes first: the even ones, then the
    // odd. 0: the rows as they are.
    int64_t interleaved = 0;
  };

  absl::StatusOr<Projection> LoadProjection(absl::Span<const ProjectionPart> parts, int64_t cols,
                                            bool needs_bias) {
    Projection projection;
    int64_t first_col = 0;
    for (size_t begin = 0, end; begin < parts.size(); begin = end) {
      std::vector<Rows> stack;
      std::vector<float> bias;
      int64_t rows = 0;
      for (end = begin; end < parts.size(); ++end) {
        const ProjectionPart& part = parts[end];
        std::string weight_name = part.prefix + ".weight";
        const TensorInfo* info = gguf_.FindTensor(weight_name);
        if (info != nullptr && !stack.empty() && info->dtype != stack[0].info->dtype) break;
        ASSIGN_OR_RETURN(info, Take(weight_name, part.rows, cols));
        AddRows(*info, part.interleaved, &stack);
        if (needs_bias || Has(part.prefix + ".bias")) {
          if (part.interleaved > 0) {
            return absl::UnimplementedError(
                absl::StrCat("tensor '", part.prefix, ".bias' is not supported"));
          }
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

  // Values made here, as a (rows, cols) matrix on the device.
  absl::StatusOr<DeviceVector> ToDevice(const std::vector<float>& values, int64_t rows = 1) {
    DeviceVector vector;
    ASSIGN_OR_RETURN(vector.buffer, backend_->Allocate(values.size() * sizeof(float)));
    RETURN_IF_ERROR(
        backend_->Upload(values.data(), vector.buffer.data(), values.size() * sizeof(float)));
    vector.tensor =
        Tensor(vector.buffer.data(), DType::kF32, rows, static_cast<int64_t>(values.size()) / rows);
    return vector;
  }

  // A (rows, cols) tensor of the file, its columns as rows.
  absl::StatusOr<DeviceVector> Transposed(const std::string& name, int64_t rows, int64_t cols) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
    std::vector<char> bytes(info->bytes);
    RETURN_IF_ERROR(ReadRows({{info, 0, rows}}, 0, rows, bytes.data()));
    std::vector<float> values(rows * cols), row(cols);
    for (int64_t i = 0; i < rows; ++i) {
      DequantizeRow(info->dtype, bytes.data() + i * RowBytes(info->dtype, cols), cols, row.data());
      for (int64_t j = 0; j < cols; ++j) values[j * rows + i] = row[j];
    }
    return ToDevice(values, cols);
  }

  // An error for a tensor that nobody asked for: the model is not what its architecture says. Those
  // of the `skipped` blocks from `first_skipped` on are not asked for.
  absl::Status CheckAllTaken(const std::string& architecture, int64_t first_skipped,
                             int64_t skipped) const {
    auto is_skipped = [&](absl::string_view name) {
      int64_t block;
      if (!absl::ConsumePrefix(&name, "blk.")) return false;
      return absl::SimpleAtoi(name.substr(0, name.find('.')), &block) && block >= first_skipped &&
             block < first_skipped + skipped;
    };
    for (const TensorInfo& info : gguf_.tensors()) {
      if (!taken_.contains(info.name) && !is_skipped(info.name)) {
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

  // A run of a tensor's rows.
  struct Rows {
    const TensorInfo* info;
    int64_t first;
    int64_t count;
  };

  static void AddRows(const TensorInfo& info, int64_t interleaved, std::vector<Rows>* stack) {
    if (interleaved == 0) return stack->push_back({&info, 0, info.rows});
    for (int64_t odd : {0, 1}) {
      for (int64_t first = odd * interleaved; first < info.rows; first += 2 * interleaved) {
        stack->push_back({&info, first, interleaved});
      }
    }
  }

  // Rows of tensors of one type and width as one matrix, one below the other.
  absl::StatusOr<std::unique_ptr<WeightMatrix>> LoadStack(const std::vector<Rows>& stack,
                                                          int64_t rows, int64_t cols) {
    return backend_->LoadMatrix(
        stack[0].info->dtype, rows, cols,
        [&](int64_t first, int64_t count, char* to) { return ReadRows(stack, first, count, to); });
  }

  // The rows [first, first + count) of such a stack. Thread-safe.
  absl::Status ReadRows(const std::vector<Rows>& stack, int64_t first, int64_t count,
                        char* to) const {
    for (const auto& [info, first_row, num_rows] : stack) {
      const int64_t rows = std::clamp<int64_t>(num_rows - first, 0, count);
      if (rows > 0) {
        const int64_t row_bytes = RowBytes(info->dtype, info->cols);
        const int64_t at = first_row + first;
        RETURN_IF_ERROR(
            gguf_.ReadTensor(*info, absl::MakeSpan(to, rows * row_bytes), at * row_bytes));
        absl::Status finite = CheckFinite(info->dtype, to, rows * info->cols, at * info->cols);
        if (!finite.ok()) {
          return absl::InvalidArgumentError(
              absl::StrCat("tensor '", info->name, "': ", finite.message()));
        }
        to += rows * row_bytes;
        count -= rows;
      }
      first = std::max<int64_t>(first - num_rows, 0);
    }
    return absl::OkStatus();
  }

  const GgufFile& gguf_;
  Backend* backend_;
  HashSet<std::string> taken_;
  HashMap<DType, int64_t> bytes_by_type_;
  int64_t parameters_ = 0;
  int64_t bytes_ = 0;
};

namespace {

class LayerLoader {
 public:
  LayerLoader(const ModelSpec& spec, int64_t index, WeightLoader* loader)
      : spec_(spec), layer_(spec.layers[index]), index_(index), loader_(*loader) {}

  absl::StatusOr<LayerWeights> Load() {
    LayerWeights layer;
    const int64_t ffn = layer_.feed_forward.width;
    ASSIGN_OR_RETURN(layer.mixer_norm, Norm("attn_norm"));
    RETURN_IF_ERROR(layer_.delta_net() != nullptr ? LoadDeltaNet(*layer_.delta_net(), &layer)
                                                  : LoadAttention(*layer_.attention(), &layer));
    ASSIGN_OR_RETURN(layer.ffn_norm, Norm(layer_.feed_forward_norm));
    if (layer_.post_norms) {
      ASSIGN_OR_RETURN(layer.post_mixer_norm, Norm("post_attention_norm"));
      ASSIGN_OR_RETURN(layer.post_ffn_norm, Norm("post_ffw_norm"));
    }
    ASSIGN_OR_RETURN(layer.gate_up,
                     loader_.LoadProjection({{Name("ffn_gate"), ffn}, {Name("ffn_up"), ffn}},
                                            spec_.hidden, /*needs_bias=*/false));
    ASSIGN_OR_RETURN(layer.down, loader_.LoadProjection({{Name("ffn_down"), spec_.hidden}}, ffn,
                                                        /*needs_bias=*/false));
    return layer;
  }

 private:
  std::string Name(absl::string_view part) const { return absl::StrCat("blk.", index_, ".", part); }
  absl::StatusOr<DeviceVector> Norm(absl::string_view part) {
    return loader_.Vector(absl::StrCat(Name(part), ".weight"), spec_.hidden);
  }

  absl::Status LoadAttention(const AttentionSpec& attention, LayerWeights* layer) {
    const int64_t q_rows = attention.q_cols() + attention.gate_cols();
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection(
                         {{Name("attn_q"), q_rows, attention.output_gate ? attention.head_dim : 0},
                          {Name("attn_k"), attention.kv_cols()},
                          {Name("attn_v"), attention.kv_cols()}},
                         spec_.hidden, attention.biases));
    if (attention.head_norms) {
      ASSIGN_OR_RETURN(layer->q_norm,
                       loader_.Vector(Name("attn_q_norm.weight"), attention.head_dim));
      ASSIGN_OR_RETURN(layer->k_norm,
                       loader_.Vector(Name("attn_k_norm.weight"), attention.head_dim));
    }
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("attn_output"), spec_.hidden}},
                                            attention.q_cols(), /*needs_bias=*/false));
    return absl::OkStatus();
  }

  absl::Status LoadDeltaNet(const DeltaNetSpec& net, LayerWeights* layer) {
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection({{Name("attn_qkv"), net.conv_cols()},
                                             {Name("attn_gate"), net.value_cols()},
                                             {Name("ssm_alpha"), net.heads},
                                             {Name("ssm_beta"), net.heads}},
                                            spec_.hidden, /*needs_bias=*/false));
    DeltaNetWeights& weights = layer->delta_net;
    ASSIGN_OR_RETURN(weights.conv, loader_.Transposed(Name("ssm_conv1d.weight"), net.conv_cols(),
                                                      net.conv_width));
    ASSIGN_OR_RETURN(weights.dt_bias, loader_.Vector(Name("ssm_dt.bias"), net.heads));
    ASSIGN_OR_RETURN(weights.a, loader_.Vector(Name("ssm_a"), net.heads));
    ASSIGN_OR_RETURN(weights.output_norm, loader_.Vector(Name("ssm_norm.weight"), net.value_dim));
    // RmsNorm leaves a head with length sqrt(key_dim).
    const float n = static_cast<float>(net.key_dim);
    ASSIGN_OR_RETURN(weights.k_gain,
                     loader_.ToDevice(std::vector<float>(net.key_dim, 1 / std::sqrt(n))));
    ASSIGN_OR_RETURN(weights.q_gain, loader_.ToDevice(std::vector<float>(net.key_dim, 1 / n)));
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("ssm_out"), spec_.hidden}}, net.value_cols(),
                                            /*needs_bias=*/false));
    return absl::OkStatus();
  }

  const ModelSpec& spec_;
  const LayerSpec& layer_;
  const int64_t index_;
  WeightLoader& loader_;
};

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
    ASSIGN_OR_RETURN(LayerWeights layer, LayerLoader(spec, i, &loader).Load());
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
                     loader.HostVector("rope_freqs.weight", spec.ropes[0].dim / 2));
    for (float factor : weights.rope_factors) {
      if (!(factor > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor 'rope_freqs.weight' must be > 0, got ", factor));
      }
    }
  }
  RETURN_IF_ERROR(loader.CheckAllTaken(spec.architecture, spec.num_layers(), spec.skipped_blocks));
  weights.parameters = loader.parameters();
  weights.bytes = loader.bytes();
  weights.quantisation = loader.MostCommonType();
  return weights;
}

}  // namespace lm

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

int64_t LatentWeights::bytes() const {
  int64_t total = q_b.bytes();
  for (const std::vector<Projection>* heads : {&k, &v}) {
    for (const Projection& head : *heads) total += head.bytes();
  }
  return total;
}

int64_t LayerWeights::bytes_a_token(const LayerSpec& spec) const {
  int64_t total =
      mixer_input.bytes() + latent.bytes() + mixer_output.bytes() + feed_forward.bytes();
  if (experts.experts.empty()) return total;
  int64_t all = 0;
  for (const FeedForwardWeights& expert : experts.experts) all += expert.bytes();
  total += experts.latent_down.bytes() + experts.latent_up.bytes();
  total += experts.router.bytes() + experts.shared.bytes() + experts.shared_gate.bytes();
  return total + all / spec.feed_forward.experts->count * spec.feed_forward.experts->router.chosen;
}

// Takes tensors from the file by name, checks their shape, and keeps count of what was taken.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& gguf, Backend* backend) : gguf_(gguf), backend_(backend) {}

  // Where the tensors go from now on.
  void set_backend(Backend* backend) { backend_ = backend; }

  bool Has(const std::string& name) const { return gguf_.FindTensor(name) != nullptr; }
  // 0 where there is no such tensor.
  int64_t RowsOf(const std::string& name) const {
    const TensorInfo* info = gguf_.FindTensor(name);
    return info == nullptr ? 0 : info->rows;
  }

  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size) {
    return HostRow(name, 1, 0, size);
  }

  // Row `row` of a (rows, cols) tensor.
  absl::StatusOr<std::vector<float>> HostRow(const std::string& name, int64_t rows, int64_t row,
                                             int64_t cols) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
    return ReadFloats(*info, row, 1);
  }

  // A tensor's values, all rows one after the other, as a (1, rows * cols) vector.
  absl::StatusOr<DeviceVector> Flat(const std::string& name, int64_t rows, int64_t cols,
                                    bool as_matrix = false) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
    ASSIGN_OR_RETURN(std::vector<float> values, ReadFloats(*info, 0, rows));
    return ToDevice(values, as_matrix ? rows : 1);
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

  // Rows of the tensor "<prefix>.weight", and of "<prefix>.bias" where there is one.
  struct ProjectionPart {
    std::string prefix;
    int64_t rows;
    // Of the file's rows in runs of this many, every other run comes first: the even ones, then the
    // odd. 0: the rows as they are.
    int64_t interleaved = 0;
    // The tensor is this many of such matrices, one below the other, of which this is number
    // `index`.
    int64_t count = 1;
    int64_t index = 0;
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
        ASSIGN_OR_RETURN(info, Take(weight_name, part.count * part.rows, cols));
        AddRows(*info, part, &stack);
        if (needs_bias || Has(part.prefix + ".bias")) {
          if (part.interleaved > 0) {
            return absl::UnimplementedError(
                absl::StrCat("tensor '", part.prefix, ".bias' is not supported"));
          }
          bias.resize(rows);  // zeros for the parts before that have none
          ASSIGN_OR_RETURN(std::vector<float> values,
                           HostRow(part.prefix + ".bias", part.count, part.index, part.rows));
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

  // A norm with (rows, cols) gains, and a bias where there is one.
  absl::StatusOr<DeviceNorm> LoadNorm(const std::string& prefix, const ModelSpec& spec,
                                      int64_t rows, int64_t cols) {
    DeviceNorm norm;
    ASSIGN_OR_RETURN(norm.weight, Flat(prefix + ".weight", rows, cols));
    if (Has(prefix + ".bias")) {
      ASSIGN_OR_RETURN(norm.bias, Flat(prefix + ".bias", rows, cols));
    }
    norm.norm = {.kind = spec.norm,
                 .weight = norm.weight.tensor,
                 .bias = norm.bias.tensor,
                 .eps = spec.norm_eps};
    return norm;
  }

  // Divisors of a rope's frequencies; none where the file has none.
  absl::StatusOr<std::vector<float>> RopeFactors(const RopeSpec& rope, int64_t context_length) {
    const bool is_long = rope.long_factors != nullptr && context_length > rope.original_context;
    const char* tensor = is_long ? rope.long_factors : rope.factors;
    // The other one is of no use.
    for (const char* other : {rope.factors, rope.long_factors}) {
      if (other != nullptr) taken_.insert(absl::StrCat(other, ".weight"));
    }
    std::vector<float> factors;
    if (tensor == nullptr || !Has(absl::StrCat(tensor, ".weight"))) return factors;
    ASSIGN_OR_RETURN(factors, HostVector(absl::StrCat(tensor, ".weight"), rope.dim / 2));
    for (float factor : factors) {
      if (!(factor > 0)) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor '", tensor, ".weight' must be > 0, got ", factor));
      }
    }
    return factors;
  }

  // A (rows, cols) tensor of the file, its columns as rows.
  absl::StatusOr<DeviceVector> Transposed(const std::string& name, int64_t rows, int64_t cols) {
    ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
    ASSIGN_OR_RETURN(const std::vector<float> read, ReadFloats(*info, 0, rows));
    std::vector<float> values(rows * cols);
    for (int64_t i = 0; i < rows * cols; ++i) values[i % cols * rows + i / cols] = read[i];
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

  static void AddRows(const TensorInfo& info, const ProjectionPart& part,
                      std::vector<Rows>* stack) {
    const int64_t run = part.interleaved;
    if (run == 0) return stack->push_back({&info, part.index * part.rows, part.rows});
    for (int64_t odd : {0, 1}) {
      for (int64_t first = odd * run; first < part.rows; first += 2 * run) {
        stack->push_back({&info, first, run});
      }
    }
  }

  absl::StatusOr<std::vector<float>> ReadFloats(const TensorInfo& info, int64_t first,
                                                int64_t count) const {
    const int64_t row_bytes = RowBytes(info.dtype, info.cols);
    std::vector<char> bytes(count * row_bytes);
    RETURN_IF_ERROR(ReadRows({{&info, first, count}}, 0, count, bytes.data()));
    std::vector<float> values(count * info.cols);
    for (int64_t i = 0; i < count; ++i) {
      DequantizeRow(info.dtype, bytes.data() + i * row_bytes, info.cols,
                    values.data() + i * info.cols);
    }
    return values;
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
    ASSIGN_OR_RETURN(layer.mixer_norm, LoadNorm(layer_.mixer_norm));
    RETURN_IF_ERROR(LoadMixer(&layer));
    ASSIGN_OR_RETURN(layer.post_mixer_norm, LoadNorm(layer_.post_mixer_norm));
    ASSIGN_OR_RETURN(layer.feed_forward_norm, LoadNorm(layer_.feed_forward_norm));
    ASSIGN_OR_RETURN(layer.post_feed_forward_norm, LoadNorm(layer_.post_feed_forward_norm));
    if (layer_.feed_forward.experts.has_value()) {
      ASSIGN_OR_RETURN(layer.experts, LoadExperts(*layer_.feed_forward.experts));
    } else if (layer_.feed_forward.exists()) {
      ASSIGN_OR_RETURN(layer.feed_forward,
                       LoadFeedForward(layer_.feed_forward.width, spec_.hidden, ""));
    }
    return layer;
  }

 private:
  using Part = WeightLoader::ProjectionPart;

  std::string Name(absl::string_view part) const { return absl::StrCat("blk.", index_, ".", part); }

  // Of the residual stream; empty where the name is null.
  absl::StatusOr<DeviceNorm> LoadNorm(const char* part) {
    if (part == nullptr) return DeviceNorm();
    return loader_.LoadNorm(Name(part), spec_, 1, spec_.hidden);
  }

  absl::Status LoadMixer(LayerWeights* layer) {
    if (!layer_.has_mixer()) return absl::OkStatus();
    if (const DeltaNetSpec* net = layer_.delta_net()) return LoadDeltaNet(*net, layer);
    if (const StateSpaceSpec* space = layer_.state_space()) return LoadStateSpace(*space, layer);
    if (const ShortConvSpec* conv = layer_.short_conv()) return LoadShortConv(*conv, layer);
    const AttentionSpec& attention = *layer_.attention();
    return attention.latent.has_value() ? LoadLatent(attention, layer)
                                        : LoadAttention(attention, layer);
  }

  absl::Status LoadAttention(const AttentionSpec& attention, LayerWeights* layer) {
    std::vector<Part> parts = {{Name("attn_q"), attention.q_cols()},
                               {Name("attn_k"), attention.k_cols()},
                               {Name("attn_v"), attention.v_cols()}};
    if (loader_.Has(Name("attn_qkv.weight"))) {  // q, k and v in one
      parts = {{Name("attn_qkv"), attention.q_cols() + attention.k_cols() + attention.v_cols()}};
    } else if (attention.output_gate == OutputGate::kInQ) {
      parts[0] = {Name("attn_q"), 2 * attention.q_cols(), attention.key_dim};
    } else if (attention.output_gate == OutputGate::kOwn) {
      parts.insert(parts.begin() + 1, {Name("attn_gate"), attention.gate_cols()});
    }
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection(parts, spec_.hidden, attention.biases));
    ASSIGN_OR_RETURN(layer->q_norm, LoadHeadNorm("attn_q_norm", attention, attention.heads));
    ASSIGN_OR_RETURN(layer->k_norm, LoadHeadNorm("attn_k_norm", attention, attention.kv_heads));
    if (attention.sinks) {
      ASSIGN_OR_RETURN(layer->sinks, loader_.Vector(Name("attn_sinks.weight"), attention.heads));
    }
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("attn_output"), spec_.hidden}},
                                            attention.out_cols(), /*needs_bias=*/false));
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceNorm> LoadHeadNorm(const char* part, const AttentionSpec& attention,
                                          int64_t heads) {
    const int64_t dim = attention.key_dim;
    switch (attention.head_norm) {
      case HeadNorm::kNone:
        break;
      case HeadNorm::kEach:
        return loader_.LoadNorm(Name(part), spec_, 1, dim);
      case HeadNorm::kWhole:
        return loader_.LoadNorm(Name(part), spec_, 1, heads * dim);
      case HeadNorm::kOwnGain: {
        ASSIGN_OR_RETURN(DeviceNorm norm, loader_.LoadNorm(Name(part), spec_, heads, dim));
        norm.norm.group = dim;
        return norm;
      }
    }
    return DeviceNorm();
  }

  absl::Status LoadLatent(const AttentionSpec& attention, LayerWeights* layer) {
    const LatentSpec& spec = *attention.latent;
    LatentWeights& latent = layer->latent;
    Part q = {Name("attn_q"), attention.latent_q_cols()};
    if (spec.q_rank > 0) {
      q = {Name("attn_q_a"), spec.q_rank};
      ASSIGN_OR_RETURN(latent.q_norm,
                       loader_.LoadNorm(Name("attn_q_a_norm"), spec_, 1, spec.q_rank));
      ASSIGN_OR_RETURN(latent.q_b,
                       loader_.LoadProjection({{Name("attn_q_b"), attention.latent_q_cols()}},
                                              spec.q_rank, /*needs_bias=*/false));
    }
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection({q, {Name("attn_kv_a_mqa"), attention.key_dim}},
                                            spec_.hidden, /*needs_bias=*/false));
    const int64_t heads = attention.heads, rank = attention.value_dim;
    ASSIGN_OR_RETURN(latent.norm, loader_.LoadNorm(Name("attn_kv_a_norm"), spec_, 1, rank));
    for (int64_t h = 0; h < heads; ++h) {
      ASSIGN_OR_RETURN(Projection k, loader_.LoadProjection({{Name("attn_k_b"), rank, 0, heads, h}},
                                                            spec.nope, /*needs_bias=*/false));
      ASSIGN_OR_RETURN(Projection v,
                       loader_.LoadProjection({{Name("attn_v_b"), spec.value_dim, 0, heads, h}},
                                              rank, /*needs_bias=*/false));
      latent.k.push_back(std::move(k));
      latent.v.push_back(std::move(v));
    }
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("attn_output"), spec_.hidden}},
                                            heads * spec.value_dim, /*needs_bias=*/false));
    return absl::OkStatus();
  }

  absl::Status LoadDeltaNet(const DeltaNetSpec& net, LayerWeights* layer) {
    std::vector<Part> parts = {{Name("attn_qkv"), net.conv_cols()},
                               {Name("attn_gate"), net.value_cols()}};
    if (loader_.Has(Name("ssm_ba.weight"))) {  // both of each key head in turn
      parts.push_back({Name("ssm_ba"), 2 * net.heads, net.heads / net.key_heads});
    } else {
      parts.push_back({Name("ssm_beta"), net.heads});
      parts.push_back({Name("ssm_alpha"), net.heads});
    }
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection(parts, spec_.hidden, /*needs_bias=*/false));
    ASSIGN_OR_RETURN(layer->conv, loader_.Transposed(Name("ssm_conv1d.weight"), net.conv_cols(),
                                                     net.conv_width));
    DeltaNetWeights& weights = layer->delta_net;
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

  absl::Status LoadStateSpace(const StateSpaceSpec& space, LayerWeights* layer) {
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection({{Name("ssm_in"), MixerInputCols(layer_)}},
                                            spec_.hidden, /*needs_bias=*/false));
    ASSIGN_OR_RETURN(layer->conv, loader_.Transposed(Name("ssm_conv1d.weight"), space.conv_cols(),
                                                     space.conv_width));
    StateSpaceWeights& weights = layer->state_space;
    ASSIGN_OR_RETURN(weights.conv_bias, loader_.Vector(Name("ssm_conv1d.bias"), space.conv_cols()));
    ASSIGN_OR_RETURN(weights.dt_bias, loader_.Vector(Name("ssm_dt.bias"), space.heads));
    ASSIGN_OR_RETURN(weights.a, loader_.Flat(Name("ssm_a"), space.heads, 1));
    ASSIGN_OR_RETURN(weights.skip, loader_.Flat(Name("ssm_d"), space.heads, 1));
    const int64_t group = space.inner() / space.groups;
    ASSIGN_OR_RETURN(weights.output_norm,
                     loader_.LoadNorm(Name("ssm_norm"), spec_, space.groups, group));
    weights.output_norm.norm.group = group;
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("ssm_out"), spec_.hidden}}, space.inner(),
                                            /*needs_bias=*/false));
    return absl::OkStatus();
  }

  absl::Status LoadShortConv(const ShortConvSpec& conv, LayerWeights* layer) {
    ASSIGN_OR_RETURN(layer->mixer_input,
                     loader_.LoadProjection({{Name("shortconv.in_proj"), 3 * conv.channels}},
                                            spec_.hidden, /*needs_bias=*/false));
    ASSIGN_OR_RETURN(layer->conv,
                     loader_.Transposed(Name("shortconv.conv.weight"), conv.channels, conv.width));
    ASSIGN_OR_RETURN(layer->mixer_output,
                     loader_.LoadProjection({{Name("shortconv.out_proj"), spec_.hidden}},
                                            conv.channels, /*needs_bias=*/false));
    return absl::OkStatus();
  }

  // Number `index` of `count` feed-forwards in the tensors ffn_*<suffix>. Gate and up may be one
  // tensor: ffn_gate_up, or ffn_up of twice the rows.
  absl::StatusOr<FeedForwardWeights> LoadFeedForward(int64_t width, int64_t cols,
                                                     absl::string_view suffix, int64_t count = 1,
                                                     int64_t index = 0) {
    auto part = [&](absl::string_view name, int64_t rows) {
      return Part{Name(absl::StrCat(name, suffix)), rows, 0, count, index};
    };
    auto rows_of = [&](absl::string_view name) {
      return loader_.RowsOf(Name(absl::StrCat(name, suffix, ".weight")));
    };
    std::vector<Part> input = {part("ffn_up", width)};
    if (layer_.feed_forward.gated) {
      if (rows_of("ffn_gate_up") > 0) {
        input = {part("ffn_gate_up", 2 * width)};
      } else if (rows_of("ffn_gate") == 0 && rows_of("ffn_up") == count * 2 * width) {
        input = {part("ffn_up", 2 * width)};
      } else {
        input = {part("ffn_gate", width), part("ffn_up", width)};
      }
    }
    FeedForwardWeights weights;
    ASSIGN_OR_RETURN(weights.input, loader_.LoadProjection(input, cols, /*needs_bias=*/false));
    ASSIGN_OR_RETURN(weights.down, loader_.LoadProjection({part("ffn_down", cols)}, width,
                                                          /*needs_bias=*/false));
    return weights;
  }

  absl::StatusOr<ExpertWeights> LoadExperts(const ExpertSpec& spec) {
    ExpertWeights weights;
    ASSIGN_OR_RETURN(weights.router,
                     loader_.LoadProjection({{Name("ffn_gate_inp"), spec.count}}, spec_.hidden,
                                            /*needs_bias=*/false));
    if (loader_.Has(Name("exp_probs_b.bias"))) {
      ASSIGN_OR_RETURN(weights.choice_bias,
                       loader_.HostVector(Name("exp_probs_b.bias"), spec.count));
    }
    const int64_t cols = spec.latent > 0 ? spec.latent : spec_.hidden;
    if (spec.latent > 0) {
      ASSIGN_OR_RETURN(weights.latent_down,
                       loader_.LoadProjection({{Name("ffn_latent_down"), spec.latent}},
                                              spec_.hidden, /*needs_bias=*/false));
      ASSIGN_OR_RETURN(weights.latent_up,
                       loader_.LoadProjection({{Name("ffn_latent_up"), spec_.hidden}}, spec.latent,
                                              /*needs_bias=*/false));
    }
    for (int64_t e = 0; e < spec.count; ++e) {
      ASSIGN_OR_RETURN(FeedForwardWeights expert,
                       LoadFeedForward(spec.width, cols, "_exps", spec.count, e));
      weights.experts.push_back(std::move(expert));
    }
    if (spec.shared_width > 0) {
      ASSIGN_OR_RETURN(weights.shared, LoadFeedForward(spec.shared_width, spec_.hidden, "_shexp"));
    }
    if (spec.shared_gate) {
      ASSIGN_OR_RETURN(weights.shared_gate,
                       loader_.LoadProjection({{Name("ffn_gate_inp_shexp"), 1}}, spec_.hidden,
                                              /*needs_bias=*/false));
    }
    return weights;
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
  if (spec.learned_positions > 0) {
    ASSIGN_OR_RETURN(weights.positions, loader.Flat("position_embd.weight", spec.learned_positions,
                                                    spec.hidden, /*as_matrix=*/true));
  }
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    loader.set_backend(backend_of(i));
    ASSIGN_OR_RETURN(LayerWeights layer, LayerLoader(spec, i, &loader).Load());
    weights.layers.push_back(std::move(layer));
  }
  ASSIGN_OR_RETURN(weights.output_norm, loader.LoadNorm(spec.output_norm, spec, 1, spec.hidden));
  weights.tied = !loader.Has("output.weight");
  if (!weights.tied || first != last) {
    const char* name = weights.tied ? "token_embd.weight" : "output.weight";
    ASSIGN_OR_RETURN(weights.output, loader.Matrix(name, spec.vocab, spec.hidden));
  }
  if (spec.output_bias && loader.Has("output.bias")) {
    ASSIGN_OR_RETURN(weights.output_bias, loader.Vector("output.bias", spec.vocab));
  }
  for (const RopeSpec& rope : spec.ropes) {
    ASSIGN_OR_RETURN(std::vector<float> factors, loader.RopeFactors(rope, spec.context_length));
    weights.rope_factors.push_back(std::move(factors));
  }
  RETURN_IF_ERROR(loader.CheckAllTaken(spec.architecture, spec.num_layers(), spec.skipped_blocks));
  weights.parameters = loader.parameters();
  weights.bytes = loader.bytes();
  weights.quantisation = loader.MostCommonType();
  return weights;
}

}  // namespace lm

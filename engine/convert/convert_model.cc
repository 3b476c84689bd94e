#include "engine/convert/convert_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/new_file.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/convert/quantize.h"
#include "engine/gguf/block_format.h"
#include "engine/gguf/gguf_header.h"
#include "engine/gguf/message.h"
#include "engine/gguf/split_files.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/adapter_file.h"

namespace lm {
namespace {

struct Target {
  absl::string_view name;
  DType dtype;         // of most tensors
  bool better_head;    // Q6_K
  bool mixed;          // Q6_K for other tensors too
  uint64_t file_type;  // general.file_type
};
constexpr Target kTargets[] = {
    {"F32", DType::kF32, false, false, 0},    {"F16", DType::kF16, false, false, 1},
    {"BF16", DType::kBF16, false, false, 32}, {"Q8_0", DType::kQ8_0, false, false, 7},
    {"Q6_K", DType::kQ6_K, false, false, 18}, {"Q4_0", DType::kQ4_0, true, false, 2},
    {"Q4_K_M", DType::kQ4_K, true, true, 15},
};

absl::StatusOr<Target> FindTarget(const std::string& type) {
  for (const Target& target : kTargets) {
    if (target.name == type) return target;
  }
  auto name = [](std::string* out, const Target& t) { absl::StrAppend(out, t.name); };
  return absl::InvalidArgumentError(absl::StrCat(
      "type must be one of ", absl::StrJoin(kTargets, ", ", name), ", got ", Quoted(type)));
}

// Of "blk.7.attn_v.weight" 7 and "attn_v"; of others -1.
std::pair<int, absl::string_view> SplitName(absl::string_view name) {
  constexpr int kMostLayers = 4096;
  absl::ConsumeSuffix(&name, ".weight");
  absl::string_view rest = name;
  int layer = -1;
  if (!absl::ConsumePrefix(&rest, "blk.")) return {-1, name};
  const size_t dot = rest.find('.');
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dot), &layer) ||
      layer < 0 || layer >= kMostLayers) {
    return {-1, name};
  }
  return {layer, rest.substr(dot + 1)};
}

// Of RWKV's time mixing all others are vectors, or of a low rank.
constexpr absl::string_view kLargeOfTimeMixing[] = {"key", "value", "receptance", "gate", "output"};

bool IsSmallOfTimeMixing(absl::string_view tensor) {
  absl::string_view name = SplitName(tensor).second;
  return absl::ConsumePrefix(&name, "time_mix_") &&
         std::find(std::begin(kLargeOfTimeMixing), std::end(kLargeOfTimeMixing), name) ==
             std::end(kLargeOfTimeMixing);
}

// Matrices that are not products of activations, or too small to be worth it.
bool StaysAsItIs(const TensorInfo& tensor) {
  if (tensor.dims.size() < 2 || !absl::EndsWith(tensor.name, ".weight")) return true;
  if (tensor.dtype == DType::kI32) return true;  // numbers of things
  if (IsSmallOfTimeMixing(tensor.name)) return true;
  for (absl::string_view part :
       {"_norm.weight", "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d",
        "shortconv.conv", "rope_f", "attn_rel_b", "channel_mix_lerp", "altup", "laurel",
        "per_layer_model_proj", "cls.", "compressor_ape", "hc_attn_", "hc_ffn_", "output_hc_"}) {
    if (absl::StrContains(tensor.name, part)) return true;
  }
  return false;
}

// The type, or the next one that has blocks of such rows.
DType Fitting(DType dtype, int64_t cols) {
  if (cols % Traits(dtype).block_size == 0) return dtype;
  if (dtype == DType::kQ4_K) return Fitting(DType::kQ5_0, cols);
  if (dtype == DType::kQ6_K) return Fitting(DType::kQ8_0, cols);
  return DType::kF16;
}

class Converter {
 public:
  Converter(const GgufFile& source, const Target& target, int num_threads,
            const Importance& importance)
      : source_(source), target_(target), pool_(num_threads), importance_(importance) {
    for (const TensorInfo& tensor : source.tensors()) {
      layers_ = std::max(layers_, SplitName(tensor.name).first + 1);
    }
  }

  absl::StatusOr<ConvertReport> WriteTo(NewFile* out) {
    std::vector<const TensorInfo*> tensors;
    for (const TensorInfo& tensor : source_.tensors()) tensors.push_back(&tensor);
    GgufHeader header;
    for (const auto& [key, value] : source_.metadata().values()) {
      const bool own = key == "general.alignment" || key == "general.file_type" ||
                       key == "general.quantization_version" || absl::StartsWith(key, "split.");
      if (!own) header.Add(key, value);
    }
    header.Add("general.file_type", target_.file_type);
    header.Add("general.quantization_version", uint64_t{2});
    for (const TensorInfo* tensor : tensors) {
      header.AddTensor(tensor->name, tensor->dims, TypeOf(*tensor));
    }
    const std::string front = header.Finish();
    RETURN_IF_ERROR(out->Append(front));
    uint64_t written = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      RETURN_IF_ERROR(out->Append(std::string(header.offset(i) - written, '\0')));
      absl::Status status = WriteTensor(*tensors[i], out);
      if (!status.ok()) return InContext(absl::StrCat("tensor ", Quoted(tensors[i]->name)), status);
      written =
          header.offset(i) + RowBytes(TypeOf(*tensors[i]), tensors[i]->rows * tensors[i]->cols);
    }
    RETURN_IF_ERROR(out->Append(std::string(header.data_bytes() - written, '\0')));
    return ConvertReport{.tensors = static_cast<int64_t>(tensors.size()),
                         .source_bytes = static_cast<int64_t>(source_.bytes()),
                         .bytes = static_cast<int64_t>(front.size() + header.data_bytes())};
  }

 private:
  static constexpr int64_t kPieceValues = 1 << 20;  // whole blocks of every type

  // What llama.cpp gives more bits: the first and the last eighth, and every third between.
  bool HasMoreBits(int layer) const {
    const int eighth = layers_ / 8;
    return layer < eighth || layer >= 7 * layers_ / 8 || (layer - eighth) % 3 == 2;
  }

  DType TypeOf(const TensorInfo& tensor) const {
    if (StaysAsItIs(tensor)) return tensor.dtype;
    const auto [layer, name] = SplitName(tensor.name);
    const bool head = name == "output" ||
                      (name == "token_embd" && source_.FindTensor("output.weight") == nullptr);
    const bool more =
        (head && target_.better_head) ||
        (target_.mixed && (name == "attn_qkv" ||
                           ((name == "attn_v" || name == "ffn_down" || name == "ffn_down_exps") &&
                            HasMoreBits(layer))));
    return Fitting(more ? DType::kQ6_K : target_.dtype, tensor.cols);
  }

  // Of its columns' errors. None is 0: what these texts do not need others may.
  std::vector<float> WeightsOf(const TensorInfo& tensor) const {
    std::vector<float> weights(tensor.cols, 1);
    const auto found = importance_.find(tensor.name);
    if (found == importance_.end() || found->second.size() != weights.size()) return weights;
    const double sum = std::accumulate(found->second.begin(), found->second.end(), 0.0);
    const float mean = static_cast<float>(sum / static_cast<double>(weights.size()));
    if (!(mean > 1e-20f) || !std::isfinite(mean)) return weights;
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = found->second[i] / mean + 1e-3f;
    return weights;
  }

  // Values [first, first + count), as stored. REQUIRES: whole blocks.
  absl::Status ReadValues(const TensorInfo& tensor, int64_t first, int64_t count,
                          std::vector<char>* stored) const {
    RETURN_IF_ERROR(Checkpoint());
    stored->resize(RowBytes(tensor.dtype, count));
    RETURN_IF_ERROR(
        source_.ReadTensor(tensor, absl::MakeSpan(*stored), RowBytes(tensor.dtype, first)));
    return CheckFinite(tensor.dtype, stored->data(), count, first);
  }

  absl::Status CopyTensor(const TensorInfo& tensor, NewFile* out) {
    const int64_t values = tensor.rows * tensor.cols;
    std::vector<char> stored;
    for (int64_t first = 0; first < values; first += kPieceValues) {
      RETURN_IF_ERROR(ReadValues(tensor, first, std::min(kPieceValues, values - first), &stored));
      RETURN_IF_ERROR(out->Append({stored.data(), stored.size()}));
    }
    return absl::OkStatus();
  }

  absl::Status WriteTensor(const TensorInfo& tensor, NewFile* out) {
    const DType to = TypeOf(tensor);
    if (to == tensor.dtype) return CopyTensor(tensor, out);
    if (tensor.cols > kPieceValues) {
      return absl::InvalidArgumentError(absl::StrCat("rows of ", tensor.cols, " values, at most ",
                                                     kPieceValues, " are converted"));
    }
    const int64_t to_bytes = RowBytes(to, tensor.cols);
    const int64_t from_bytes = RowBytes(tensor.dtype, tensor.cols);
    const int64_t piece = std::clamp<int64_t>(kPieceValues / tensor.cols, 1, tensor.rows);
    std::vector<char> stored, made(piece * to_bytes);
    const std::vector<float> weights = WeightsOf(tensor);
    for (int64_t first = 0; first < tensor.rows; first += piece) {
      const int64_t rows = std::min(piece, tensor.rows - first);
      RETURN_IF_ERROR(ReadValues(tensor, first * tensor.cols, rows * tensor.cols, &stored));
      pool_.ParallelFor(rows, [&](int64_t row) {
        std::vector<float> values(tensor.cols);
        DequantizeRow(tensor.dtype, stored.data() + row * from_bytes, tensor.cols, values.data());
        QuantizeRow(to, values, weights, made.data() + row * to_bytes);
      });
      // Values beyond what the type has.
      RETURN_IF_ERROR(CheckFinite(to, made.data(), rows * tensor.cols, first * tensor.cols));
      RETURN_IF_ERROR(out->Append({made.data(), static_cast<size_t>(rows * to_bytes)}));
    }
    return absl::OkStatus();
  }

  const GgufFile& source_;
  const Target target_;
  ThreadPool pool_;
  const Importance& importance_;
  int layers_ = 0;
};

// That what was read is one model. What is gone was read to its end nevertheless.
absl::Status CheckUnchanged(const std::string& source, const ModelIdentity& before) {
  const absl::StatusOr<ModelIdentity> now = IdentifyModel(source);
  if (!now.ok() || !IsReplaced(before, *now)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Quoted(source), ": was replaced or changed while it was being converted"));
}

}  // namespace

absl::Status CheckConversion(const std::string& destination, const std::string& type) {
  RETURN_IF_ERROR(FindTarget(type).status());
  return NewFile::CheckFree(destination);
}

absl::StatusOr<ConvertReport> ConvertModel(
    const std::string& source, const std::string& destination, const std::string& type,
    int num_threads, const Importance& importance,
    absl::FunctionRef<absl::Status(const std::string&)> try_out) {
  ASSIGN_OR_RETURN(const Target target, FindTarget(type));
  ASSIGN_OR_RETURN(const ModelIdentity before, IdentifyModel(source));
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, OpenModelFile(source));
  if (IsAdapter(gguf->metadata())) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(source),
                     ": it is an adapter (LoRA) of a model, and none itself: it is used as it is"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> out, NewFile::Create(destination));
  ASSIGN_OR_RETURN(const ConvertReport report,
                   Converter(*gguf, target, num_threads, importance).WriteTo(out.get()));
  RETURN_IF_ERROR(CheckUnchanged(source, before));
  RETURN_IF_ERROR(try_out(out->part()));
  RETURN_IF_ERROR(out->Finish());
  return report;
}

}  // namespace lm

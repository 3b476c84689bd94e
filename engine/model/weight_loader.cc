#include "engine/model/weight_loader.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/base/digest.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/block_format.h"
#include "engine/model/lasting_rows.h"
#include "engine/model/other_keys.h"
#include "engine/model/pack_cache.h"

namespace lm {

int64_t WeightLoader::RowsOf(const std::string& name) const {
  const TensorInfo* info = gguf_.FindTensor(name);
  return info == nullptr ? 0 : info->rows;
}

absl::StatusOr<std::vector<float>> WeightLoader::HostVector(const std::string& name, int64_t size) {
  return HostRow(name, 1, 0, size);
}

absl::StatusOr<std::vector<float>> WeightLoader::HostRow(const std::string& name, int64_t rows,
                                                         int64_t row, int64_t cols) {
  ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
  return ReadFloats(*info, row, 1);
}

absl::StatusOr<std::vector<float>> WeightLoader::HostMatrix(const std::string& name, int64_t rows,
                                                            int64_t cols) {
  ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
  return ReadFloats(*info, 0, rows);
}

absl::StatusOr<std::vector<int32_t>> WeightLoader::HostInts(const std::string& name, int64_t rows,
                                                            int64_t cols, int64_t below) {
  ASSIGN_OR_RETURN(const TensorInfo* info,
                   Take(name, rows, cols, /*in_memory=*/true, /*numbers=*/true));
  std::vector<int32_t> values(rows * cols);
  RETURN_IF_ERROR(
      gguf_.ReadTensor(*info, absl::MakeSpan(reinterpret_cast<char*>(values.data()), info->bytes)));
  for (const int32_t value : values) {
    if (value >= 0 && value < below) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "': values must be in [0, ", below, "), got ", value));
  }
  return values;
}

absl::StatusOr<DeviceVector> WeightLoader::Flat(const std::string& name, int64_t rows,
                                                int64_t cols) {
  ASSIGN_OR_RETURN(const std::vector<float> values, HostMatrix(name, rows, cols));
  return ToDevice(values);
}

absl::StatusOr<DeviceVector> WeightLoader::Vector(const std::string& name, int64_t size) {
  ASSIGN_OR_RETURN(std::vector<float> values, HostVector(name, size));
  return ToDevice(values);
}

absl::StatusOr<std::unique_ptr<WeightMatrix>> WeightLoader::Matrix(const std::string& name,
                                                                   int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
  ASSIGN_OR_RETURN(std::unique_ptr<WeightMatrix> matrix, LoadStack({{info, 0, rows}}, rows, cols));
  const std::string prefix(absl::StripSuffix(name, ".weight"));
  ASSIGN_OR_RETURN(const float scale, ScaleOf({prefix, rows}));
  RETURN_IF_ERROR(SetScales(std::vector<float>(rows, scale), matrix.get()));
  return matrix;
}

absl::StatusOr<float> WeightLoader::ScaleOf(const ProjectionPart& part) {
  const std::string name = part.prefix + ".scale";
  if (!part.scaled || !Has(name)) return 1.0f;
  ASSIGN_OR_RETURN(const std::vector<float> values, HostVector(name, part.count));
  return values[part.index];
}

absl::Status WeightLoader::SetScales(const std::vector<float>& scales, WeightMatrix* matrix) {
  if (std::all_of(scales.begin(), scales.end(), [](float scale) { return scale == 1; })) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(DeviceVector vector, ToDevice(scales));
  matrix->set_row_scales(std::move(vector.buffer));
  return absl::OkStatus();
}

absl::StatusOr<FileRows> WeightLoader::InFile(const std::string& name, int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols, /*in_memory=*/false));
  if (info->form == StoredForm::kPlain) return FileRows(gguf_, *info);
  return absl::UnimplementedError(
      absl::StrCat("tensor '", name, "' is of a type that is not looked up in the file"));
}

absl::StatusOr<Projection> WeightLoader::LoadProjection(absl::Span<const ProjectionPart> parts,
                                                        int64_t cols) {
  Projection projection;
  ASSIGN_OR_RETURN(projection.updates_, Updates(parts, cols));
  int64_t first_col = 0;
  for (size_t begin = 0, end; begin < parts.size(); begin = end) {
    std::vector<Rows> stack;
    std::vector<float> bias, scales;
    int64_t rows = 0;
    for (end = begin; end < parts.size(); ++end) {
      const ProjectionPart& part = parts[end];
      std::string weight_name = part.prefix + ".weight";
      const TensorInfo* info = gguf_.FindTensor(weight_name);
      if (info != nullptr && !stack.empty() && info->dtype != stack[0].info->dtype) break;
      ASSIGN_OR_RETURN(info, Take(weight_name, part.count * part.RowsOfOne(), cols));
      AddRows(*info, part, &stack);
      ASSIGN_OR_RETURN(const float scale, ScaleOf(part));
      scales.resize(rows + part.rows, scale);
      const std::string bias_name = part.bias.empty() ? part.prefix + ".bias" : part.bias;
      if (!part.bias.empty() || Has(bias_name)) {
        bias.resize(rows);  // zeros for the parts before that have none
        ASSIGN_OR_RETURN(const std::vector<float> values,
                         part.own_bias
                             ? HostVector(bias_name, part.rows)
                             : HostRow(bias_name, part.count, part.index, part.RowsOfOne()));
        const auto begin_of_part = values.begin() + (part.own_bias ? 0 : part.first);
        for (const auto& [first, count] : RunsOf(part)) {
          bias.insert(bias.end(), begin_of_part + first, begin_of_part + first + count);
        }
      }
      rows += part.rows;
    }
    if (!bias.empty()) bias.resize(rows);
    Projection::Part part;
    part.first_col = first_col;
    ASSIGN_OR_RETURN(part.matrix, LoadStack(stack, rows, cols));
    RETURN_IF_ERROR(SetScales(scales, part.matrix.get()));
    if (!bias.empty()) {
      ASSIGN_OR_RETURN(part.bias, ToDevice(bias));
    }
    projection.parts_.push_back(std::move(part));
    first_col += rows;
  }
  return projection;
}

absl::StatusOr<Projection> WeightLoader::LoadRows(const std::string& name, int64_t rows,
                                                  int64_t cols, int64_t first, int64_t count,
                                                  bool transpose) {
  ASSIGN_OR_RETURN(const TensorInfo* info, Take(name, rows, cols));
  Projection projection;
  Projection::Part& part = projection.parts_.emplace_back();
  part.first_col = 0;
  if (!transpose) {
    ASSIGN_OR_RETURN(part.matrix, LoadStack({{info, first, count}}, count, cols));
    return projection;
  }
  ASSIGN_OR_RETURN(const std::vector<float> values, ReadFloats(*info, first, count));
  auto read = [&](int64_t row, int64_t num_rows, char* to) {
    float* out = reinterpret_cast<float*>(to);
    for (int64_t i = row; i < row + num_rows; ++i) {
      for (int64_t j = 0; j < count; ++j) *out++ = values[j * cols + i];
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(part.matrix, backend_->LoadMatrix(DType::kF32, cols, count, read));
  return projection;
}

absl::StatusOr<DeviceVector> WeightLoader::ToDevice(const std::vector<float>& values,
                                                    int64_t rows) {
  DeviceVector vector;
  ASSIGN_OR_RETURN(vector.buffer, backend_->Allocate(values.size() * sizeof(float)));
  RETURN_IF_ERROR(
      backend_->Upload(values.data(), vector.buffer.data(), values.size() * sizeof(float)));
  vector.tensor =
      Tensor(vector.buffer.data(), DType::kF32, rows, static_cast<int64_t>(values.size()) / rows);
  return vector;
}

absl::StatusOr<DeviceNorm> WeightLoader::LoadNorm(const std::string& prefix, const ModelSpec& spec,
                                                  int64_t rows, int64_t cols) {
  DeviceNorm norm;
  // One converter (Falcon-H1's) leaves ".weight" out of one name.
  const std::string name = prefix + ".weight";
  ASSIGN_OR_RETURN(norm.weight, Flat(!Has(name) && Has(prefix) ? prefix : name, rows, cols));
  if (Has(prefix + ".bias")) {
    ASSIGN_OR_RETURN(norm.bias, Flat(prefix + ".bias", rows, cols));
  }
  norm.norm = {.kind = spec.norm,
               .weight = norm.weight.tensor,
               .bias = norm.bias.tensor,
               .eps = spec.norm_eps};
  return norm;
}

absl::StatusOr<DeviceNorm> WeightLoader::PlainNorm(const ModelSpec& spec, int64_t cols) {
  DeviceNorm norm;
  ASSIGN_OR_RETURN(norm.weight, ToDevice(std::vector<float>(cols, 1.0f)));
  norm.norm = {.kind = spec.norm, .weight = norm.weight.tensor, .eps = spec.norm_eps};
  return norm;
}

absl::StatusOr<DeviceNorm> WeightLoader::Gains(const std::vector<float>& values) {
  DeviceNorm norm;
  ASSIGN_OR_RETURN(norm.weight, ToDevice(values));
  norm.norm = {.kind = NormKind::kNone, .weight = norm.weight.tensor};
  return norm;
}

absl::StatusOr<std::vector<float>> WeightLoader::RopeFactors(const RopeSpec& rope,
                                                             int64_t context_length) {
  const bool is_long = rope.long_factors != nullptr && context_length > rope.original_context;
  const char* tensor = is_long ? rope.long_factors : rope.factors;
  // The other one is of no use.
  for (const char* other : {rope.factors, rope.long_factors}) {
    if (other != nullptr) taken_.insert(absl::StrCat(other, ".weight"));
  }
  std::vector<float> factors;
  if (tensor == nullptr || !Has(absl::StrCat(tensor, ".weight"))) return factors;
  const int64_t stored = std::max(rope.num_factors, rope.dim / 2);
  ASSIGN_OR_RETURN(factors, HostVector(absl::StrCat(tensor, ".weight"), stored));
  factors.resize(rope.dim / 2);
  for (float factor : factors) {
    if (!(factor > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor, ".weight' must be > 0, got ", factor));
    }
  }
  return factors;
}

absl::StatusOr<DeviceVector> WeightLoader::Transposed(const std::string& name, int64_t rows,
                                                      int64_t cols) {
  return Transposed(absl::MakeConstSpan(&name, 1), rows, cols);
}

absl::StatusOr<DeviceVector> WeightLoader::Transposed(absl::Span<const std::string> names,
                                                      int64_t rows, int64_t cols) {
  // The file, which has them, says how large they are before there is memory for all.
  for (const std::string& name : names) RETURN_IF_ERROR(Take(name, rows, cols).status());
  const int64_t all_rows = static_cast<int64_t>(names.size()) * rows;
  std::vector<float> values(all_rows * cols);
  for (int64_t part = 0; part < static_cast<int64_t>(names.size()); ++part) {
    ASSIGN_OR_RETURN(const std::vector<float> read, HostMatrix(names[part], rows, cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      values[i % cols * all_rows + part * rows + i / cols] = read[i];
    }
  }
  return ToDevice(values, cols);
}

absl::Status WeightLoader::CheckAllTaken(const std::string& architecture, int64_t first_skipped,
                                         int64_t skipped) const {
  auto is_skipped = [&](absl::string_view name) {
    int64_t block;
    // What activations are multiplied by before they become few bits; ours need not.
    if (absl::EndsWith(name, ".input_scale")) return true;
    if (IsTowerTensor(name)) return true;
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

std::string WeightLoader::MostCommonType() const {
  DType most = DType::kF32;
  int64_t most_bytes = -1;
  for (const auto& [dtype, bytes] : bytes_by_type_) {
    if (bytes > most_bytes) std::tie(most, most_bytes) = std::make_pair(dtype, bytes);
  }
  return std::string(Traits(most).name);
}

absl::StatusOr<const TensorInfo*> WeightLoader::Take(const std::string& name, int64_t rows,
                                                     int64_t cols, bool in_memory, bool numbers) {
  const TensorInfo* info = gguf_.FindTensor(name);
  if (info == nullptr) {
    const std::string first = absl::StrReplaceAll(name, {{"_exps.", ".0."}});
    const bool one_by_one = gguf_.FindTensor(first) != nullptr;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", name, "' is missing",
        one_by_one ? absl::StrCat("; the file has experts one by one, such as '", first,
                                  "', as converters no longer write them since April 2024")
                   : ""));
  }
  if (info->rows != rows || info->cols != cols) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' must be ", rows, " x ",
                                                   cols, ", got ", info->rows, " x ", info->cols));
  }
  if ((info->dtype == DType::kI32) != numbers) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' must be ",
                                                   numbers ? "I32" : "of weights", ", got ",
                                                   Traits(info->dtype).name));
  }
  if (taken_.insert(name).second) {
    if (!numbers) parameters_ += rows * cols;
    if (!in_memory) return info;
    bytes_ += static_cast<int64_t>(info->bytes);
    bytes_by_type_[info->dtype] += static_cast<int64_t>(info->bytes);
  }
  return info;
}

std::vector<std::pair<int64_t, int64_t>> WeightLoader::RunsOf(const ProjectionPart& part) {
  if (part.runs.empty()) return {{0, part.rows}};
  std::vector<std::pair<int64_t, int64_t>> found;
  const int64_t group = std::accumulate(part.runs.begin(), part.runs.end(), int64_t{0});
  int64_t begin = 0;  // of the run, in each group
  for (const int64_t run : part.runs) {
    for (int64_t first = begin; first < part.rows; first += group) found.push_back({first, run});
    begin += run;
  }
  return found;
}

void WeightLoader::AddRows(const TensorInfo& info, const ProjectionPart& part,
                           std::vector<Rows>* stack) {
  for (const auto& [first, count] : RunsOf(part)) {
    stack->push_back({&info, part.index * part.RowsOfOne() + part.first + first, count});
  }
}

absl::StatusOr<std::vector<float>> WeightLoader::ReadFloats(const TensorInfo& info, int64_t first,
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

absl::StatusOr<std::unique_ptr<WeightMatrix>> WeightLoader::LoadStack(
    const std::vector<Rows>& stack, int64_t rows, int64_t cols) {
  const DType dtype = stack[0].info->dtype;
  const bool later =
      lays_out_later_ && cache_ == nullptr && backend_->lays_out_later() &&
      std::all_of(stack.begin(), stack.end(), [this](const Rows& rows) {
        return rows.info->form == StoredForm::kPlain && gguf_.FileOf(*rows.info)->lasts();
      });
  if (later) {
    std::vector<LastingRows::Part> parts;
    for (const auto& [info, first, count] : stack) {
      parts.push_back({*info, gguf_.FileOf(*info), first, count});
    }
    return backend_->LoadLastingMatrix(dtype, rows, cols,
                                       LastingRows(std::move(parts), read_ahead_));
  }
  auto read = [&](int64_t first, int64_t count, char* to) {
    return ReadRows(stack, first, count, to, read_ahead_.get());
  };
  if (cache_ == nullptr) return backend_->LoadMatrix(dtype, rows, cols, read);
  std::string name = absl::StrCat(Traits(dtype).name, " ", cols);
  for (const auto& [info, first, count] : stack) {
    absl::StrAppend(&name, " ", info->name, "[", first, "+", count, "]");
  }
  return cache_->Load(DigestOf(name).Hex(), dtype, rows, cols, read, backend_);
}

absl::Status WeightLoader::ReadRows(const std::vector<Rows>& stack, int64_t first, int64_t count,
                                    char* to, ReadAhead* ahead) const {
  for (const auto& [info, first_row, num_rows] : stack) {
    const int64_t rows = std::clamp<int64_t>(num_rows - first, 0, count);
    if (rows > 0) {
      const int64_t row_bytes = RowBytes(info->dtype, info->cols);
      const int64_t at = first_row + first;
      if (ahead != nullptr) {
        ahead->Reading(info->split, info->offset + StoredBytes(info->form, at * row_bytes));
      }
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

}  // namespace lm

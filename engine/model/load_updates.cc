// WeightLoader's part that reads adapters.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/model/other_keys.h"
#include "engine/model/weight_loader.h"

namespace lm {
namespace {

constexpr absl::string_view kA = ".weight.lora_a", kB = ".weight.lora_b";

}  // namespace

WeightLoader::WeightLoader(const GgufFile& gguf, Backend* backend,
                           absl::Span<const AdapterFile> adapters)
    : gguf_(gguf), read_ahead_(std::make_shared<ReadAhead>(gguf.files())), backend_(backend) {
  for (const AdapterFile& file : adapters) {
    adapters_.push_back({&file, std::make_unique<WeightLoader>(*file.gguf, backend)});
  }
}

void WeightLoader::set_backend(Backend* backend) {
  backend_ = backend;
  for (const Adapter& adapter : adapters_) adapter.tensors->set_backend(backend);
}

absl::StatusOr<std::vector<LowRankUpdate>> WeightLoader::Updates(
    absl::Span<const ProjectionPart> parts, int64_t cols) {
  std::vector<LowRankUpdate> updates;
  for (size_t i = 0; i < adapters_.size(); ++i) {
    const Adapter& adapter = adapters_[i];
    RETURN_IF_ERROR(OfAdapter(adapter.file->name,
                              AddUpdates(adapter, static_cast<int32_t>(i), parts, cols, &updates)));
  }
  for (const LowRankUpdate& update : updates) most_ranks_ = std::max(most_ranks_, update.ranks());
  return updates;
}

absl::Status WeightLoader::AddUpdates(const Adapter& adapter, int32_t number,
                                      absl::Span<const ProjectionPart> parts, int64_t cols,
                                      std::vector<LowRankUpdate>* updates) {
  WeightLoader& tensors = *adapter.tensors;
  std::vector<Rows> stack;  // of A, those of one type
  LowRankUpdate update = {.adapter = number};
  int64_t first_col = 0, low = 0;
  auto finish = [&] {
    if (stack.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(update.a, tensors.LoadStack(stack, low, cols));
    updates->push_back(std::exchange(update, {.adapter = number}));
    stack.clear();
    low = 0;
    return absl::OkStatus();
  };
  for (const ProjectionPart& part : parts) {
    const int64_t col = std::exchange(first_col, first_col + part.rows);
    if (!part.adaptable) continue;
    ASSIGN_OR_RETURN(const int64_t rank, tensors.RanksOf(part.prefix));
    if (rank == 0) continue;
    ASSIGN_OR_RETURN(const TensorInfo* a,
                     tensors.Take(absl::StrCat(part.prefix, kA), part.count * rank, cols));
    ASSIGN_OR_RETURN(const TensorInfo* b, tensors.Take(absl::StrCat(part.prefix, kB),
                                                       part.count * part.RowsOfOne(), rank));
    if (!stack.empty() && stack[0].info->dtype != a->dtype) RETURN_IF_ERROR(finish());
    stack.push_back({a, part.index * rank, rank});
    std::vector<Rows> own;
    AddRows(*b, part, &own);
    LowRankUpdate::Part& added = update.parts.emplace_back();
    ASSIGN_OR_RETURN(added.b, tensors.LoadStack(own, part.rows, rank));
    added.first_low = std::exchange(low, low + rank);
    added.first_col = col;
    if (adapter.file->alpha != 0) added.factor = adapter.file->alpha / static_cast<float>(rank);
  }
  return finish();
}

absl::StatusOr<std::vector<LowRankUpdate>> WeightLoader::EmbeddingUpdates(const std::string& prefix,
                                                                          int64_t rows,
                                                                          int64_t cols) {
  std::vector<LowRankUpdate> updates;
  for (size_t i = 0; i < adapters_.size(); ++i) {
    auto load = [&](WeightLoader& tensors, float alpha) {
      ASSIGN_OR_RETURN(const int64_t rank, tensors.RanksOf(prefix));
      if (rank == 0) return absl::OkStatus();
      LowRankUpdate update = {.adapter = static_cast<int32_t>(i)};
      LowRankUpdate::Part part;
      ASSIGN_OR_RETURN(update.a, tensors.Matrix(absl::StrCat(prefix, kA), rows, rank));
      ASSIGN_OR_RETURN(part.b, tensors.Matrix(absl::StrCat(prefix, kB), cols, rank));
      if (alpha != 0) part.factor = alpha / static_cast<float>(rank);
      update.parts.push_back(std::move(part));
      most_ranks_ = std::max(most_ranks_, rank);
      updates.push_back(std::move(update));
      return absl::OkStatus();
    };
    const AdapterFile& file = *adapters_[i].file;
    RETURN_IF_ERROR(OfAdapter(file.name, load(*adapters_[i].tensors, file.alpha)));
  }
  return updates;
}

absl::StatusOr<int64_t> WeightLoader::RanksOf(const std::string& prefix) const {
  const std::string a = absl::StrCat(prefix, kA), b = absl::StrCat(prefix, kB);
  if (Has(a) != Has(b)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", Has(a) ? a : b, "' is there, but '",
                                                   Has(a) ? b : a, "' is missing"));
  }
  return Has(b) ? gguf_.FindTensor(b)->cols : int64_t{0};
}

absl::Status WeightLoader::CheckAdaptersTaken() const {
  for (const Adapter& adapter : adapters_) {
    for (const TensorInfo& info : adapter.file->gguf->tensors()) {
      if (adapter.tensors->taken_.contains(info.name) || IsTowerTensor(info.name)) continue;
      absl::string_view changed = info.name;
      std::string why =
          "is neither the A nor the B of a weight: its name ends in neither '.lora_a' "
          "nor '.lora_b'";
      if (absl::ConsumeSuffix(&changed, ".lora_a") || absl::ConsumeSuffix(&changed, ".lora_b")) {
        const bool known = gguf_.FindTensor(changed) != nullptr;
        why = absl::StrCat("is of '", absl::CHexEscape(changed), "', which ",
                           known ? "adapters cannot change here" : "the model does not have");
      }
      return OfAdapter(adapter.file->name,
                       absl::InvalidArgumentError(
                           absl::StrCat("tensor '", absl::CHexEscape(info.name), "' ", why)));
    }
  }
  return absl::OkStatus();
}

}  // namespace lm

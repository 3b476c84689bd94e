#include "engine/model/mtp.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

std::string MtpName(int64_t block, absl::string_view part) {
  return absl::StrCat("blk.", block, ".nextn.", part);
}

}  // namespace

void AddMtp(const GgufFile& gguf, ModelSpec* spec) {
  const int64_t block = spec->num_layers();
  auto has = [&](absl::string_view part) {
    return gguf.FindTensor(MtpName(block, absl::StrCat(part, ".weight"))) != nullptr;
  };
  if (spec->skipped_blocks == 0 || !has("eh_proj") || !has("enorm") || !has("hnorm")) return;
  const auto like = std::find_if(spec->layers.rbegin(), spec->layers.rend(),
                                 [](const LayerSpec& l) { return l.attention() != nullptr; });
  if (like == spec->layers.rend()) return;
  LayerSpec layer = *like;
  spec->layers.push_back(std::move(layer));
  spec->has_mtp = true;
  --spec->skipped_blocks;
}

absl::StatusOr<MtpWeights> LoadMtp(const ModelSpec& spec, WeightLoader* loader) {
  const int64_t block = spec.num_layers(), hidden = spec.hidden;
  auto name = [block](absl::string_view part) { return MtpName(block, part); };
  MtpWeights mtp;
  ASSIGN_OR_RETURN(mtp.embedding_norm, loader->LoadNorm(name("enorm"), spec, 1, hidden));
  ASSIGN_OR_RETURN(mtp.hidden_norm, loader->LoadNorm(name("hnorm"), spec, 1, hidden));
  const bool own_norm = loader->Has(name("shared_head_norm.weight"));
  ASSIGN_OR_RETURN(
      mtp.output_norm,
      loader->LoadNorm(own_norm ? name("shared_head_norm") : spec.output_norm, spec, 1, hidden));
  ASSIGN_OR_RETURN(
      mtp.join, loader->LoadProjection(
                    {{.prefix = name("eh_proj"), .rows = hidden, .adaptable = false}}, 2 * hidden));
  for (auto& [part, matrix] : {std::pair("embed_tokens.weight", &mtp.embedding),
                               std::pair("shared_head_head.weight", &mtp.output)}) {
    if (!loader->Has(name(part))) continue;
    ASSIGN_OR_RETURN(*matrix, loader->Matrix(name(part), spec.vocab, hidden));
  }
  return mtp;
}

absl::Status JoinMtp(const LayerRun& run, const Weights& weights, Tensor hidden) {
  const MtpWeights& mtp = weights.mtp;
  const Tensor joined = run.act.joined.Rows(0, run.rows);
  const int64_t width = run.model.hidden;
  RETURN_IF_ERROR(run.backend->Embed(mtp.embedding ? *mtp.embedding : *weights.embedding,
                                     run.model.embedding_scale, run.x()));
  RETURN_IF_ERROR(run.backend->Normalize(run.x(), mtp.embedding_norm.norm, joined.Cols(0, width)));
  RETURN_IF_ERROR(run.backend->Normalize(hidden, mtp.hidden_norm.norm, joined.Cols(width, width)));
  return mtp.join.Apply(run.backend, ProductInput::Plain(joined), ProductResult::kReplaces,
                        run.x());
}

StepTables MtpTables(const StepTables& step, absl::Span<const int32_t> next,
                     absl::Span<const int32_t> kept) {
  StepTables tables;
  tables.blocks.resize(step.blocks.size());
  std::vector<int32_t>& places = tables.row_lists.emplace_back();
  for (const StepSequence& sequence : step.sequences) {
    const absl::Span<const int32_t> tokens = next.subspan(sequence.first_row, sequence.num_tokens);
    const auto count = static_cast<int32_t>(
        std::find_if(tokens.begin(), tokens.end(), [](int32_t t) { return t < 0; }) -
        tokens.begin());
    if (count == 0) continue;
    tables.Append(tokens.data(), count, sequence.first_position);
    const int32_t blocks = BlocksFor(sequence.first_position + count);
    for (size_t c = 0; c < step.blocks.size(); ++c) {
      const auto first = step.blocks[c].begin() + sequence.first_block;
      tables.blocks[c].insert(tables.blocks[c].end(), first, first + blocks);
    }
    const auto place = std::lower_bound(kept.begin(), kept.end(), sequence.first_row);
    for (int32_t i = 0; i < count; ++i) {
      places.push_back(static_cast<int32_t>(place - kept.begin()) + i);
    }
  }
  return tables;
}

}  // namespace lm

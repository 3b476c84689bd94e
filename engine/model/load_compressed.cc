#include "engine/model/load_compressed.h"

#include <utility>
#include <vector>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

using Part = WeightLoader::ProjectionPart;

// What is added to the scores of what is pooled, by the place in a run.
absl::StatusOr<DeviceVector> LoadPlaces(const std::string& name, int64_t every, int64_t cols,
                                        WeightLoader* loader) {
  ASSIGN_OR_RETURN(const std::vector<float> values, loader->HostMatrix(name, every, cols));
  return loader->ToDevice(values, every);
}

}  // namespace

absl::Status LoadCompressed(const ModelSpec& spec, const AttentionSpec& attention,
                            const std::string& prefix, WeightLoader* loader, MixerWeights* mixer) {
  const CompressedSpec& own = *attention.compressed;
  CompressedWeights& weights = mixer->compressed;
  const int64_t dim = attention.key_dim;
  std::vector<Part> input = {{prefix + "attn_q_a", own.q_rank}, {prefix + "attn_kv", dim}};
  if (own.every > 0) {
    input.push_back({prefix + "attn_compressor_kv", attention.pooled_cols()});
    input.push_back({prefix + "attn_compressor_gate", attention.pooled_cols()});
    ASSIGN_OR_RETURN(weights.places, LoadPlaces(prefix + "attn_compressor_ape.weight", own.every,
                                                attention.pooled_cols(), loader));
    ASSIGN_OR_RETURN(weights.pooled_norm,
                     loader->LoadNorm(prefix + "attn_compressor_norm", spec, 1, dim));
  }
  if (own.index_heads > 0) {
    input.push_back({prefix + "indexer_compressor_kv", attention.index_cols()});
    input.push_back({prefix + "indexer_compressor_gate", attention.index_cols()});
    input.push_back({prefix + "indexer.proj", own.index_heads});
    ASSIGN_OR_RETURN(weights.index_places, LoadPlaces(prefix + "indexer_compressor_ape.weight",
                                                      own.every, attention.index_cols(), loader));
    ASSIGN_OR_RETURN(weights.index_norm,
                     loader->LoadNorm(prefix + "indexer_compressor_norm", spec, 1, own.index_dim));
    ASSIGN_OR_RETURN(
        weights.index_q,
        loader->LoadProjection({{prefix + "indexer.attn_q_b", own.index_heads * own.index_dim}},
                               own.q_rank));
  }
  ASSIGN_OR_RETURN(mixer->input, loader->LoadProjection(input, spec.hidden));
  ASSIGN_OR_RETURN(weights.q_norm, loader->LoadNorm(prefix + "attn_q_a_norm", spec, 1, own.q_rank));
  ASSIGN_OR_RETURN(weights.q_b,
                   loader->LoadProjection({{prefix + "attn_q_b", attention.q_cols()}}, own.q_rank));
  ASSIGN_OR_RETURN(weights.head_norm, loader->PlainNorm(spec, dim));
  ASSIGN_OR_RETURN(weights.norm, loader->LoadNorm(prefix + "attn_kv_a_norm", spec, 1, dim));
  ASSIGN_OR_RETURN(mixer->sinks, loader->Vector(prefix + "attn_sinks.weight", attention.heads));
  for (int64_t g = 0; g < own.groups; ++g) {
    const Part part = {prefix + "attn_output_a", own.o_rank, {}, own.groups, g};
    ASSIGN_OR_RETURN(Projection group,
                     loader->LoadProjection({part}, attention.out_cols() / own.groups));
    weights.groups.push_back(std::move(group));
  }
  ASSIGN_OR_RETURN(mixer->output, loader->LoadProjection({{prefix + "attn_output_b", spec.hidden}},
                                                         own.groups * own.o_rank));
  return absl::OkStatus();
}

}  // namespace lm

#include "engine/model/weights.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/model/load_layer.h"
#include "engine/model/load_streams.h"
#include "engine/model/mtp.h"
#include "engine/model/pooling_head.h"
#include "engine/model/weight_loader.h"

namespace lm {

absl::Status Projection::Apply(Backend* backend, const ProductInput& x, ProductResult result,
                               Tensor out) const {
  std::vector<MatrixProduct> products;
  for (const Part& part : parts_) {
    products.push_back(
        {part.matrix.get(), x, part.bias.tensor, out.Cols(part.first_col, part.matrix->rows())});
  }
  return backend->ProjectAll(products, result);
}

absl::StatusOr<ExpertProjection> ExpertProjection::Of(absl::Span<const Projection* const> experts,
                                                      Backend* backend) {
  ExpertProjection all;
  for (size_t i = 0; i < experts[0]->parts_.size(); ++i) {
    std::vector<GroupedMatrix> members;
    for (const Projection* expert : experts) {
      members.push_back({expert->parts_[i].matrix.get(), expert->parts_[i].bias.tensor});
    }
    ASSIGN_OR_RETURN(auto group, backend->GroupMatrices(std::move(members)));
    all.parts_.push_back({std::move(group), experts[0]->parts_[i].first_col});
  }
  return all;
}

absl::Status ExpertProjection::Apply(Backend* backend, const ProductInput& x,
                                     const ExpertRoutes& routes, Tensor out) const {
  std::vector<ExpertProduct> products;
  for (const Part& part : parts_) {
    products.push_back(
        {part.group.get(), x, out.Cols(part.first_col, part.group->members()[0].w->rows())});
  }
  return backend->ProjectExperts(products, routes, ProductResult::kReplaces);
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

int64_t CompressedWeights::bytes() const {
  int64_t total = q_b.bytes() + index_q.bytes();
  for (const Projection& group : groups) total += group.bytes();
  return total;
}

int64_t RwkvWeights::bytes() const {
  int64_t total = mix_1.bytes() + g.bytes();
  for (const Projection* part : {&r, &k, &v, &w_1, &w_2, &a_1, &a_2, &v_1, &v_2, &g_1, &g_2}) {
    total += part->bytes();
  }
  for (const Projection& part : mix_2) total += part.bytes();
  return total;
}

int64_t LayerWeights::bytes_a_token(const LayerSpec& spec) const {
  int64_t total = mixer.bytes() + beside.bytes() + feed_forward.bytes();
  total += streams.bytes() + laurel.bytes() + hyper_mixer.bytes() + hyper_feed_forward.bytes();
  total += input.gate.bytes() + input.projection.bytes();
  if (experts.experts.empty()) return total;
  int64_t all = 0;
  for (const FeedForwardWeights& expert : experts.experts) all += expert.bytes();
  total += experts.latent_down.bytes() + experts.latent_up.bytes();
  total += experts.router.bytes() + experts.shared.bytes() + experts.shared_gate.bytes();
  return total + all / spec.feed_forward.experts->count * spec.feed_forward.experts->router.chosen;
}

namespace {

// What is added to the embeddings of tokens, by their positions or to all.
absl::StatusOr<DeviceVector> LoadPositions(const ModelSpec& spec, WeightLoader* loader) {
  std::vector<float> values, type;
  if (spec.token_types) {
    constexpr char kTypes[] = "token_types.weight";
    const int64_t types = std::max<int64_t>(loader->RowsOf(kTypes), 1);
    ASSIGN_OR_RETURN(type, loader->HostRow(kTypes, types, 0, spec.hidden));
  }
  if (spec.learned_positions == 0) {
    return type.empty() ? DeviceVector() : loader->ToDevice(type);
  }
  ASSIGN_OR_RETURN(values,
                   loader->HostMatrix("position_embd.weight", spec.learned_positions, spec.hidden));
  for (size_t i = 0; i < values.size() && !type.empty(); ++i) values[i] += type[i % type.size()];
  return loader->ToDevice(values, spec.learned_positions);
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const GgufFile& gguf, absl::Span<const AdapterFile> adapters,
                                    const ModelSpec& spec,
                                    absl::FunctionRef<Backend*(int64_t layer)> backend_of,
                                    PackCache* cache, bool lays_out_later) {
  Backend* const first = backend_of(0);
  Backend* const last = backend_of(spec.num_layers() - 1);
  WeightLoader loader(gguf, first, adapters);
  loader.set_cache(cache);
  loader.set_lays_out_later(lays_out_later);
  Weights weights;
  ASSIGN_OR_RETURN(weights.embedding, loader.Matrix(kEmbedding, spec.vocab, spec.hidden));
  ASSIGN_OR_RETURN(weights.embedding_updates,
                   loader.EmbeddingUpdates("token_embd", spec.vocab, spec.hidden));
  ASSIGN_OR_RETURN(weights.positions, LoadPositions(spec, &loader));
  if (spec.embedding_norm != nullptr) {
    ASSIGN_OR_RETURN(weights.embedding_norm,
                     loader.LoadNorm(spec.embedding_norm, spec, 1, spec.hidden));
  } else if (spec.plain_embedding_norm) {
    ASSIGN_OR_RETURN(weights.embedding_norm, loader.PlainNorm(spec, spec.hidden));
  }
  if (const int64_t cols = spec.num_layers() * spec.per_layer_input; cols > 0) {
    PerLayerInputWeights& input = weights.per_layer_input;
    ASSIGN_OR_RETURN(input.embedding, loader.InFile(kPerLayerEmbedding, spec.vocab, cols));
    ASSIGN_OR_RETURN(input.projection,
                     loader.LoadProjection({{"per_layer_model_proj", cols}}, spec.hidden));
    ASSIGN_OR_RETURN(input.norm,
                     loader.LoadNorm("per_layer_proj_norm", spec, 1, spec.per_layer_input));
  }
  if (spec.hyper.has_value()) {
    loader.set_backend(last);
    ASSIGN_OR_RETURN(weights.hyper_end, LoadHyperEnd(spec, &loader));
  } else if (spec.streams > 1) {
    RETURN_IF_ERROR(LoadStreams(spec, last, &loader, &weights));
  }
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    loader.set_backend(backend_of(i));
    RETURN_IF_ERROR(LoadLayer(spec, i, &loader, &weights.layers.emplace_back()));
  }
  if (spec.has_mtp) {
    const int64_t before = loader.parameters();
    RETURN_IF_ERROR(LoadLayer(spec, spec.num_layers(), &loader, &weights.layers.emplace_back()));
    ASSIGN_OR_RETURN(weights.mtp, LoadMtp(spec, &loader));
    weights.mtp.parameters = loader.parameters() - before;
  }
  if (spec.output_norm != nullptr && spec.plain_norms) {
    ASSIGN_OR_RETURN(weights.output_norm, loader.PlainNorm(spec, spec.hidden));
  } else if (spec.output_norm != nullptr) {
    ASSIGN_OR_RETURN(weights.output_norm, loader.LoadNorm(spec.output_norm, spec, 1, spec.hidden));
  }
  ASSIGN_OR_RETURN(weights.pooling, LoadPoolingHead(spec, &loader));
  weights.tied = !loader.Has("output.weight");
  if (!weights.tied || first != last) {
    const char* name = weights.tied ? kEmbedding : "output.weight";
    ASSIGN_OR_RETURN(weights.output, loader.Matrix(name, spec.vocab, spec.hidden));
  }
  if (!weights.tied) {
    ASSIGN_OR_RETURN(weights.output_updates, loader.Updates({{"output", spec.vocab}}, spec.hidden));
  }
  if (spec.output_bias && loader.Has("output.bias")) {
    ASSIGN_OR_RETURN(weights.output_bias, loader.Vector("output.bias", spec.vocab));
  }
  for (const RopeSpec& rope : spec.ropes) {
    ASSIGN_OR_RETURN(std::vector<float> factors, loader.RopeFactors(rope, spec.context_length));
    weights.rope_factors.push_back(std::move(factors));
  }
  RETURN_IF_ERROR(loader.CheckAllTaken(spec.architecture, spec.all_layers(), spec.skipped_blocks));
  RETURN_IF_ERROR(loader.CheckAdaptersTaken());
  weights.most_ranks = loader.most_ranks();
  weights.parameters = loader.parameters();
  weights.bytes = loader.bytes();
  weights.quantisation = loader.MostCommonType();
  return weights;
}

}  // namespace lm

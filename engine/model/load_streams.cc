#include "engine/model/load_streams.h"

#include <numeric>
#include <vector>

#include "engine/base/status_macros.h"

namespace lm {
namespace {

absl::StatusOr<std::vector<Projection>> LoadEach(const ModelSpec& spec, const char* name,
                                                 WeightLoader* loader) {
  std::vector<Projection> each;
  for (int64_t i = 0; i + 1 < spec.streams; ++i) {
    WeightLoader::ProjectionPart part = {name, spec.hidden, {}, spec.streams - 1, i};
    part.adaptable = false;  // it is made as long as something else
    ASSIGN_OR_RETURN(Projection one, loader->LoadProjection({part}, spec.hidden));
    each.push_back(std::move(one));
  }
  return each;
}

// What makes rows of mean square 1, however short they are.
absl::StatusOr<DeviceNorm> LengthNorm(const ModelSpec& spec, WeightLoader* loader) {
  ASSIGN_OR_RETURN(DeviceNorm norm, loader->PlainNorm(spec, spec.hidden));
  norm.norm.eps = 1e-30f;
  return norm;
}

// With numbers of these counts, which have a scale each.
absl::StatusOr<HyperWeights> LoadNumbers(const ModelSpec& spec, const std::string& prefix,
                                         absl::Span<const int64_t> counts, WeightLoader* loader) {
  HyperWeights weights;
  const int64_t numbers = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  ASSIGN_OR_RETURN(weights.norm, loader->PlainNorm(spec, spec.streams * spec.hidden));
  ASSIGN_OR_RETURN(weights.numbers,
                   loader->LoadProjection({{prefix + "_fn", numbers}}, spec.streams * spec.hidden));
  ASSIGN_OR_RETURN(const std::vector<float> scales,
                   loader->HostVector(prefix + "_scale.weight", counts.size()));
  std::vector<float> gains;
  for (size_t i = 0; i < counts.size(); ++i) gains.insert(gains.end(), counts[i], scales[i]);
  ASSIGN_OR_RETURN(weights.affine, loader->Gains(gains));
  ASSIGN_OR_RETURN(weights.affine.bias, loader->Vector(prefix + "_base.weight", numbers));
  weights.affine.norm.bias = weights.affine.bias.tensor;
  ASSIGN_OR_RETURN(weights.plus_eps, loader->Gains(std::vector<float>(spec.streams, 1.0f)));
  ASSIGN_OR_RETURN(weights.plus_eps.bias,
                   loader->ToDevice(std::vector<float>(spec.streams, spec.hyper->eps)));
  weights.plus_eps.norm.bias = weights.plus_eps.bias.tensor;
  return weights;
}

}  // namespace

absl::StatusOr<HyperWeights> LoadHyper(const ModelSpec& spec, const std::string& prefix,
                                       WeightLoader* loader) {
  const int64_t n = spec.streams;
  return LoadNumbers(spec, prefix, {n, n, n * n}, loader);
}

absl::StatusOr<HyperWeights> LoadHyperEnd(const ModelSpec& spec, WeightLoader* loader) {
  return LoadNumbers(spec, "output_hc", {spec.streams}, loader);
}

absl::Status LoadStreams(const ModelSpec& spec, Backend* last, WeightLoader* loader,
                         Weights* weights) {
  ASSIGN_OR_RETURN(weights->stream_begins, LoadEach(spec, "altup_proj", loader));
  ASSIGN_OR_RETURN(weights->stream_norm, LengthNorm(spec, loader));
  loader->set_backend(last);
  ASSIGN_OR_RETURN(weights->stream_ends, LoadEach(spec, "altup_unembd_proj", loader));
  ASSIGN_OR_RETURN(weights->stream_end_norm, LengthNorm(spec, loader));
  return absl::OkStatus();
}

absl::StatusOr<StreamWeights> LoadLayerStreams(const ModelSpec& spec, const std::string& prefix,
                                               WeightLoader* loader) {
  StreamWeights weights;
  const int64_t n = spec.streams;
  // The router sees the normed rows over `hidden`.
  ASSIGN_OR_RETURN(std::vector<float> gain,
                   loader->HostVector(prefix + "altup_router_norm.weight", spec.hidden));
  for (float& value : gain) value /= static_cast<float>(spec.hidden);
  ASSIGN_OR_RETURN(weights.router_norm.weight, loader->ToDevice(gain));
  weights.router_norm.norm = {
      .kind = spec.norm, .weight = weights.router_norm.weight.tensor, .eps = spec.norm_eps};
  auto load = [&](const char* name, int64_t rows, int64_t cols) {
    return loader->LoadProjection({{prefix + name, rows}}, cols);
  };
  ASSIGN_OR_RETURN(weights.router, load("altup_router", n, spec.hidden));
  ASSIGN_OR_RETURN(weights.predict, load("altup_predict_coef", n * n, n));
  ASSIGN_OR_RETURN(weights.correct, load("altup_correct_coef", n, n));
  const std::vector<float> ones(n, 1.0f);
  ASSIGN_OR_RETURN(weights.one_more, loader->Gains(ones));
  ASSIGN_OR_RETURN(weights.one_more.bias, loader->ToDevice(ones));
  weights.one_more.norm.bias = weights.one_more.bias.tensor;
  ASSIGN_OR_RETURN(gain, loader->HostVector(prefix + "altup_correct_scale.weight", spec.hidden));
  ASSIGN_OR_RETURN(weights.input_gain, loader->Gains(gain));
  return weights;
}

}  // namespace lm

#include "engine/model/activations.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"

namespace lm {

absl::Status Activations::Reserve(const ModelSpec& spec, int64_t ranks, int64_t tokens,
                                  Backend* backend) {
  if (tokens <= capacity) return absl::OkStatus();
  const int64_t rows = std::max(tokens, 2 * capacity);
  const int64_t mixed_cols = spec.Widest([](const LayerSpec& l) {
    if (l.beside.has_value()) return std::max(l.beside->conv_cols(), MixerOutputCols(l));
    if (l.delta_net() != nullptr) return l.delta_net()->conv_cols();
    if (l.kimi_delta() != nullptr) return l.kimi_delta()->conv_cols();
    return l.state_space() != nullptr ? l.state_space()->conv_cols() : MixerOutputCols(l);
  });
  // The most that `width` gives for any mixture of experts.
  auto widest = [&spec](auto width) {
    return spec.Widest([&](const LayerSpec& l) {
      return l.feed_forward.experts.has_value() ? width(l.feed_forward) : 0;
    });
  };
  auto latent = [&spec](auto width) {
    return spec.Widest([&](const LayerSpec& l) {
      return l.attention() != nullptr && l.attention()->latent ? width(*l.attention()) : 0;
    });
  };
  auto compressed = [&spec](auto width) {
    return spec.Widest([&](const LayerSpec& l) {
      return l.attention() != nullptr && l.attention()->compressed ? width(*l.attention()) : 0;
    });
  };
  const int64_t of_experts = widest([&spec](const FeedForwardSpec&) { return spec.hidden; });
  const int64_t cut = spec.Widest(
      [](const LayerSpec& l) { return l.feed_forward.sparsity > 0 ? l.feed_forward.width : 0; });
  const std::pair<Tensor*, int64_t> wants[] = {
      {&x, spec.hidden},
      {&mixer_input, spec.Widest([](const LayerSpec& l) {
         return std::max(MixerInputCols(l), l.beside.has_value() ? l.beside->input_cols() : 0);
       })},
      {&beside, spec.Widest([&spec](const LayerSpec& l) {
         const bool beside = l.beside.has_value() || l.laurel_rank > 0;
         return beside || l.mixer_second_sum_norm != nullptr ? spec.hidden : 0;
       })},
      {&mixed, mixed_cols},
      {&gate_up, spec.Widest([](const LayerSpec& l) {
         const FeedForwardSpec& f = l.feed_forward;
         const int64_t shared = f.experts.has_value() ? f.experts->shared_width : 0;
         return f.InputCols(f.is_dense() ? std::max(f.width, shared) : shared);
       })},
      {&gathered, std::max({spec.hidden * spec.streams, mixed_cols, spec.per_layer_input,
                            2 * spec.streams * (1 + spec.streams)})},
      {&hidden, spec.hidden},
      {&joined, spec.has_mtp ? 2 * spec.hidden : 0},
      {&temperature, spec.temperature.beta != 0 ? 1 : 0},
      {&selective, spec.Widest([](const LayerSpec& l) {
         const SelectiveSpec* s = l.selective();
         return s == nullptr ? int64_t{0} : s->step_rank + 2 * s->state_dim;
       })},
      {&per_layer, spec.num_layers() * spec.per_layer_input},
      {&per_layer_read, spec.num_layers() * spec.per_layer_input},
      {&per_layer_gate, spec.per_layer_input},
      {&compressed_q, compressed([](const AttentionSpec& a) { return a.q_cols(); })},
      {&compressed_out, compressed([](const AttentionSpec& a) { return a.out_cols(); })},
      {&pooled, compressed([](const AttentionSpec& a) { return a.key_dim; })},
      {&index_q, compressed([](const AttentionSpec& a) {
         return a.compressed->index_heads * a.compressed->index_dim;
       })},
      {&index_pooled, compressed([](const AttentionSpec& a) { return a.compressed->index_dim; })},
      {&index_chosen, compressed([](const AttentionSpec& a) { return a.compressed->most; })},
      {&streams, spec.streams > 1 ? spec.streams * spec.hidden : 0},
      {&predicted, spec.streams > 1 ? spec.streams * spec.hidden : 0},
      {&stream_router, spec.has_alternating_streams() ? spec.streams : 0},
      {&stream_numbers, spec.hyper         ? 2 * spec.streams * (1 + spec.streams)
                        : spec.streams > 1 ? spec.streams * spec.streams
                                           : 0},
      {&laurel, spec.Widest([](const LayerSpec& l) { return l.laurel_rank; })},
      {&sparse, cut},
      {&row_factor, cut > 0 ? 1 : 0},
      {&rwkv, spec.Widest([](const LayerSpec& l) {
         const RwkvSpec* r = l.rwkv();
         constexpr int64_t kParts = 11;
         return r == nullptr
                    ? int64_t{0}
                    : kParts * r->inner() + std::max(r->widest_rank(), r->heads) + 5 * r->mix_rank;
       })},
      {&rwkv_first,
       spec.Widest([](const LayerSpec& l) { return l.rwkv() ? l.rwkv()->inner() : 0; })},
      {&latent_q, latent([](const AttentionSpec& a) { return a.latent_q_cols(); })},
      {&latent_query, latent([](const AttentionSpec& a) { return a.q_cols(); })},
      {&latent_key, latent([](const AttentionSpec& a) { return a.key_dim; })},
      {&latent_out, latent([](const AttentionSpec& a) { return a.out_cols(); })},
      {&normed, of_experts},
      {&shared, of_experts},
      {&router, widest([](const FeedForwardSpec& f) { return f.experts->count + 1; })},
      {&slots, widest([&spec](const FeedForwardSpec& f) {
         return f.experts->router.chosen * spec.hidden;
       })},
      {&slot_factors, widest([](const FeedForwardSpec& f) {
         return int64_t{f.experts->weigh_input ? f.experts->router.chosen : 0};
       })},
      {&slot_gate_up, widest([](const FeedForwardSpec& f) {
         return f.experts->router.chosen * f.InputCols(f.experts->width);
       })},
      {&low_rank, ranks},
  };
  constexpr int64_t kAlignment = 64;
  int64_t bytes = 0;
  for (const auto& [tensor, cols] : wants) bytes += rows * cols * sizeof(float) + kAlignment;
  ASSIGN_OR_RETURN(buffer, backend->Allocate(bytes));
  capacity = rows;
  char* next = static_cast<char*>(buffer.data());
  for (const auto& [tensor, cols] : wants) {
    *tensor = Tensor(next, DType::kF32, rows, cols);
    int64_t size = rows * cols * sizeof(float);
    next += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return absl::OkStatus();
}

}  // namespace lm

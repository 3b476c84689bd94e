#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/model/cache_spec.h"
#include "engine/model/feed_forward.h"
#include "engine/model/hyper_connections.h"
#include "engine/model/mixers.h"
#include "engine/model/mtp.h"
#include "engine/model/pack_cache.h"
#include "engine/model/pooling_head.h"
#include "engine/model/rehearsed_step.h"
#include "engine/model/rope.h"
#include "engine/model/streams.h"

namespace lm {
namespace {

// The row lists of a step.
enum RowList : int32_t {
  kKept,        // rows that something is wanted of, ascending
  kAllKept,     // 0, 1, ..., as many
  kKeptLogits,  // of the kept rows, those that logits are computed of: logit_rows, and the others
  kKeptHidden,  // ... whose hidden states are
  kPositions,   // of the tokens, where these have weights
  kNumRowLists,
};

// The embedding of the run's rows for layer `index`.
Tensor InputOf(const LayerRun& run, int64_t index) {
  const int64_t width = run.model.per_layer_input;
  return run.act.per_layer.Rows(0, run.rows).Cols(index * width, width);
}

absl::Status AddLayerInput(const LayerRun& run, int64_t index) {
  const LayerInputWeights& weights = run.weights.input;
  const Tensor gate = run.Of(run.act.per_layer_gate, run.model.per_layer_input);
  const bool streams = run.model.has_alternating_streams();
  RETURN_IF_ERROR(run.Apply(weights.gate,
                            streams ? StreamsInput(run) : ProductInput::Plain(run.x()),
                            ProductResult::kReplaces, gate));
  RETURN_IF_ERROR(
      run.backend->GatedActivation(Activation::kGeluTanh, gate, InputOf(run, index), gate));
  const ProductInput input = ProductInput::Plain(gate);
  if (!streams) return AddToResidual(run, weights.projection, input, weights.norm);
  const Tensor added = run.act.hidden.Rows(0, run.rows);
  RETURN_IF_ERROR(run.Apply(weights.projection, input, ProductResult::kReplaces, added));
  RETURN_IF_ERROR(run.backend->Normalize(added, weights.norm.norm, added));
  return AddToOtherStreams(run, added);
}

// What goes around the mixer (LayerSpec::laurel_rank), in act.beside.
absl::StatusOr<Tensor> GoAround(const LayerRun& run) {
  const LaurelWeights& weights = run.weights.laurel;
  const Tensor normed = run.act.beside.Rows(0, run.rows);
  const Tensor low = run.Of(run.act.laurel, run.spec.laurel_rank);
  const Tensor added = run.act.hidden.Rows(0, run.rows);
  RETURN_IF_ERROR(run.backend->Normalize(run.x(), run.weights.mixer_norm.norm, normed));
  RETURN_IF_ERROR(
      run.Apply(weights.down, ProductInput::Plain(normed), ProductResult::kReplaces, low));
  RETURN_IF_ERROR(run.Apply(weights.up, ProductInput::Plain(low), ProductResult::kReplaces, added));
  RETURN_IF_ERROR(run.backend->Normalize(added, weights.norm.norm, added));
  RETURN_IF_ERROR(run.backend->Add(normed, added, /*scale=*/1));
  return normed;
}

absl::Status NormalizeInPlace(const DeviceNorm& norm, Tensor x, Backend* backend) {
  return norm.empty() ? absl::OkStatus() : backend->Normalize(x, norm.norm, x);
}

// Adds what the mixer made, and what is beside it, to x.
absl::Status AddMixed(const LayerRun& run, Tensor mixed, Tensor beside) {
  const LayerSpec& spec = run.spec;
  if (!spec.has_mixer()) return absl::OkStatus();
  const Tensor x = run.x();
  if (spec.mixer_second_sum_norm != nullptr) {
    RETURN_IF_ERROR(run.backend->GatedActivation(Activation::kIdentity, x, {},
                                                 run.act.beside.Rows(0, run.rows)));
  }
  if (!beside.empty()) {
    RETURN_IF_ERROR(run.backend->Add(x, beside.Rows(0, run.rows), spec.residual_scale));
  }
  RETURN_IF_ERROR(AddToResidual(run, run.weights.mixer.output,
                                ProductInput::Plain(mixed.Rows(0, run.rows)),
                                run.weights.post_mixer_norm));
  if (spec.laurel_rank == 0) return absl::OkStatus();
  return run.backend->ScaleAndCap(x, 1 / std::sqrt(2.0f), /*cap=*/0);
}

absl::Status CheckCancelled(const std::atomic<bool>& cancel) {
  if (!cancel.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::CancelledError("the generation was cancelled");
}

// Layers that read another one's keys and values must be where that is.
absl::Status CheckSources(const ModelSpec& spec, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i) {
    const AttentionSpec* attention = spec.layers[i].attention();
    if (attention == nullptr || attention->kv_source < 0 || attention->kv_source >= first) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", i, " reads the keys and values of layer ", attention->kv_source,
                     " and must be on the same device"));
  }
  return absl::OkStatus();
}

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(
    const GgufFile& gguf, const ModelSpec& spec, int64_t kv_bytes, DType kv_dtype,
    std::vector<Part> parts, absl::Span<const AdapterFile> adapters, PackCache* packs,
    bool lays_out_later) {
  std::vector<Stage> stages;
  for (Part& part : parts) {
    stages.push_back({.backend = std::move(part.backend), .first = part.first, .end = part.end});
  }
  stages.back().end = spec.all_layers();
  auto backend_of = [&stages](int64_t layer) {
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [layer](const Stage& s) { return layer < s.end; });
    return stage->backend.get();
  };
  ASSIGN_OR_RETURN(Weights weights,
                   LoadWeights(gguf, adapters, spec, backend_of, packs, lays_out_later));
  for (const Stage& stage : stages) RETURN_IF_ERROR(CheckSources(spec, stage.first, stage.end));
  std::unique_ptr<Transformer> model(new Transformer(spec, {}, std::move(stages),
                                                     std::move(weights),
                                                     packs != nullptr ? packs->packed() : nullptr));
  auto create = [&](const CacheSpec& cache) {
    model->cache_ = cache.shape;
    for (Stage& stage : model->stages_) {
      ASSIGN_OR_RETURN(stage.cache, LayerCache::Create(spec, cache, stage.first, stage.end,
                                                       stage.backend.get()));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(create(SmallestCache(spec, kv_dtype)));
  RETURN_IF_ERROR(
      WithContext(model->Rehearse(static_cast<int32_t>(adapters.size())), "the memory of a step"));
  std::vector<CacheRoom> rooms;
  for (Stage& stage : model->stages_) {
    stage.cache = {};
    ASSIGN_OR_RETURN(const int64_t free, stage.backend->FreeBytes());
    rooms.push_back({stage.first, stage.end, free, absl::StrSplit(stage.backend->name(), '+')});
  }
  ASSIGN_OR_RETURN(const CacheSpec cache, kv_bytes > 0 ? PlanCache(spec, kv_bytes, kv_dtype)
                                                       : PlanCacheIn(spec, rooms, kv_dtype));
  RETURN_IF_ERROR(WithContext(create(cache), "the KV cache (kv_bytes)"));
  return model;
}

Transformer::Transformer(const ModelSpec& spec, const CacheShape& cache, std::vector<Stage> stages,
                         Weights weights, std::shared_ptr<PackedFile> packed)
    : spec_(spec),
      cache_(cache),
      stages_(std::move(stages)),
      weights_(std::move(weights)),
      packed_(std::move(packed)) {
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    frequencies_.push_back(RopeFrequencies(spec_.ropes[i], weights_.rope_factors[i]));
  }
}

absl::Status Transformer::Rehearse(int32_t adapters) {
  auto on_host = [](const Stage& stage) { return stage.backend->uses_host_memory(); };
  if (std::all_of(stages_.begin(), stages_.end(), on_host)) return absl::OkStatus();
  const StepBounds bounds = StepBoundsOf(spec_);
  auto set_rehearsal = [this](const StepBounds* to) {
    rehearses_ = to != nullptr;
    for (const Stage& stage : stages_) stage.backend->set_rehearsal(to);
  };
  const absl::Cleanup unset = [&] {
    set_rehearsal(nullptr);
    step_ = {};
  };
  set_rehearsal(&bounds);
  const RehearsedStep steps(spec_, cache_, adapters);
  const std::atomic<bool> never{false};
  StepResults results;
  // Which kernels there are depends on how many rows they have.
  for (int64_t tokens = bounds.tokens; tokens > 0; tokens /= 2) {
    RETURN_IF_ERROR(Run(steps.Of(tokens), never, &results));
    if (spec_.has_mtp) RETURN_IF_ERROR(Run(steps.OfMtp(tokens), never, &results));
  }
  const std::vector<float> pooled(spec_.hidden);
  return on_host(stages_.back()) ? absl::OkStatus()
                                 : ApplyHead(spec_.pooling.ranks, pooled).status();
}

absl::Status Transformer::CheckWeights() {
  return packed_ == nullptr ? absl::OkStatus() : packed_->Check();
}

absl::Status Transformer::Run(ModelStep step, const std::atomic<bool>& cancel,
                              StepResults* results) {
  picked_ = false;
  Prepare(std::move(step));
  results->late.clear();
  const absl::Status applied = ApplyCacheOps();
  results->cache_ops_left = std::move(step_.cache_ops);
  RETURN_IF_ERROR(applied);
  if (step_.tables.tokens.empty()) return absl::OkStatus();
  auto set_cancel = [this](const std::atomic<bool>* flag) {
    for (const Stage& stage : stages_) stage.backend->set_cancel(flag);
  };
  const absl::Cleanup unset = [&set_cancel] { set_cancel(nullptr); };
  set_cancel(&cancel);
  RETURN_IF_ERROR(step_.mtp_hidden.empty() ? RunModel(cancel, results) : RunMtp(results));
  return CheckCancelled(cancel);
}

void Transformer::Prepare(ModelStep step) {
  step_ = std::move(step);
  FillRopes(&step_.tables);
  ListRows();
  ListPositions();
  mtp_tables_ = {};
  if (!step_.mtp_next.empty()) {
    mtp_tables_ = MtpTables(step_.tables, step_.mtp_next, step_.tables.row_lists[kKept]);
    FillRopes(&mtp_tables_);
  }
}

// On one device with a queue, where the host needs neither the tokens nor a state that could not be
// computed again.
bool Transformer::queues_steps() const {
  const bool reads_tokens =
      spec_.per_layer_input > 0 ||
      std::any_of(weights_.layers.begin(), weights_.layers.end(),
                  [](const LayerWeights& layer) { return !layer.experts.of_tokens.empty(); });
  return stages_.size() == 1 && stages_[0].backend->queues_steps() && !spec_.has_mtp &&
         !cache_.recurrent() && !cache_.whole_sequences && !reads_tokens;
}

absl::Status Transformer::Begin(ModelStep step) {
  static constexpr std::atomic<bool> kNever{false};
  Prepare(std::move(step));
  RETURN_IF_ERROR(ApplyCacheOps());
  RETURN_IF_ERROR(RunTokens(kNever));
  return stages_[0].backend->Start();
}

absl::Status Transformer::Pick(std::vector<SamplingRow> samples,
                               std::vector<uint64_t> wanted_logits) {
  const std::vector<int32_t>& kept = step_.tables.row_lists[kKept];
  for (SamplingRow& sample : samples) {  // the kept rows are the rows of the logits
    sample.row =
        static_cast<int32_t>(std::lower_bound(kept.begin(), kept.end(), sample.row) - kept.begin());
  }
  step_.samples = std::move(samples);
  step_.wanted_logits = std::move(wanted_logits);
  Backend* backend = stages_[0].backend.get();
  Tensor logits;
  if (!step_.samples.empty()) {
    ASSIGN_OR_RETURN(logits, MakeLogits(weights_.output_norm, weights_.head(), nullptr));
  }
  RETURN_IF_ERROR(backend->BeginSample(logits, step_.samples));
  picked_ = true;
  return absl::OkStatus();
}

absl::Status Transformer::Await(const std::atomic<bool>& cancel, StepResults* results) {
  if (!std::exchange(picked_, false)) return absl::FailedPreconditionError("nothing was picked");
  results->cache_ops_left.clear();
  results->logits.clear();
  results->hidden.clear();
  results->margins.clear();
  results->late.clear();
  RETURN_IF_ERROR(stages_[0].backend->EndSample(&results->tokens, nullptr, &results->late));
  return CheckCancelled(cancel);
}

// All but the head.
absl::Status Transformer::RunTokens(const std::atomic<bool>& cancel) {
  RETURN_IF_ERROR(CheckWeights());
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage* stage = &stages_[i];
    if (rehearses_ && stage->backend->uses_host_memory()) continue;
    RETURN_IF_ERROR(stage->act.Reserve(spec_, weights_.most_ranks, tokens, stage->backend.get()));
    RETURN_IF_ERROR(stage->backend->BeginStep(&step_.tables));
    // x = embedding[tokens], or what the layers before have made of it
    RETURN_IF_ERROR(i == 0 ? stage->backend->Embed(*weights_.embedding, spec_.embedding_scale,
                                                   stage->act.x.Rows(0, tokens))
                           : Hand(&stages_[i - 1], stage));
    if (i == 0) RETURN_IF_ERROR(FinishEmbedding(stage));
    if (i == 0 && spec_.per_layer_input > 0) RETURN_IF_ERROR(PlaceLayerInputs(stage));
    if (i == 0 && spec_.hyper.has_value()) {
      RETURN_IF_ERROR(FillStreams(spec_, tokens, stage->act, stage->backend.get()));
    } else if (i == 0 && spec_.streams > 1) {
      RETURN_IF_ERROR(BeginStreams(spec_, weights_, tokens, stage->act, stage->backend.get()));
    }
    if (!temperatures_.empty()) {
      RETURN_IF_ERROR(stage->backend->Upload(temperatures_.data(), stage->act.temperature.data,
                                             temperatures_.size() * sizeof(float)));
    }
    RETURN_IF_ERROR(RunLayers(cancel, stage));
  }
  return absl::OkStatus();
}

absl::Status Transformer::RunModel(const std::atomic<bool>& cancel, StepResults* results) {
  results->logits.resize(step_.logit_rows.size() * spec_.vocab);
  results->hidden.resize(step_.hidden_rows.size() * spec_.hidden);
  results->tokens.clear();
  results->margins.clear();
  RETURN_IF_ERROR(RunTokens(cancel));
  if (rehearses_ && stages_.back().backend->uses_host_memory()) return absl::OkStatus();
  if (kept_ == 0) return stages_.back().backend->Synchronize();
  RETURN_IF_ERROR(Head(weights_.output_norm, weights_.head(), results));
  if (!mtp_tables_.tokens.empty()) RETURN_IF_ERROR(StoreMtp());
  return absl::OkStatus();
}

// What layer `layer`, of the step's `rows` first rows, refers to.
LayerRun Transformer::RunOf(int64_t layer, int64_t rows, Stage* stage) const {
  return {.model = spec_,
          .spec = spec_.layers[layer],
          .weights = weights_.layers[layer],
          .mixer = weights_.layers[layer].mixer,
          .backend = stage->backend.get(),
          .act = stage->act,
          .rows = rows,
          .adapted = step_.adapted,
          .tables = &step_.tables,
          .tokens = step_.tables.tokens};
}

// Keys and values of the rows whose next token is known, behind the head, whose hidden states they
// are made of.
absl::Status Transformer::StoreMtp() {
  Stage* stage = &stages_.back();
  const int64_t layer = spec_.num_layers();
  const int64_t rows = static_cast<int64_t>(mtp_tables_.tokens.size());
  LayerRun run = RunOf(layer, rows, stage);
  run.adapted = {};
  run.tables = &mtp_tables_;
  run.tokens = mtp_tables_.tokens;
  run.stores_only = true;
  RETURN_IF_ERROR(stage->backend->BeginStep(&mtp_tables_));
  const Tensor hidden(stage->act.gathered.data, DType::kF32, rows, spec_.hidden);
  RETURN_IF_ERROR(stage->backend->GatherRows(stage->act.hidden.Rows(0, kept_), kMtpRows, hidden));
  RETURN_IF_ERROR(JoinMtp(run, weights_, hidden));
  RETURN_IF_ERROR(Mix(run, layer, stage->cache).status());
  return stage->backend->Synchronize();
}

// A step of the layer that guesses.
absl::Status Transformer::RunMtp(StepResults* results) {
  RETURN_IF_ERROR(CheckWeights());
  Stage* stage = &stages_.back();
  const int64_t rows = static_cast<int64_t>(step_.tables.tokens.size());
  results->logits.resize(step_.logit_rows.size() * spec_.vocab);
  results->hidden.resize(step_.hidden_rows.size() * spec_.hidden);
  results->tokens.clear();
  results->margins.clear();
  RETURN_IF_ERROR(stage->act.Reserve(spec_, weights_.most_ranks, rows, stage->backend.get()));
  RETURN_IF_ERROR(stage->backend->BeginStep(&step_.tables));
  const Tensor hidden = stage->act.hidden.Rows(0, rows);
  RETURN_IF_ERROR(stage->backend->Upload(step_.mtp_hidden.data(), hidden.data,
                                         step_.mtp_hidden.size() * sizeof(float)));
  LayerRun run = RunOf(spec_.num_layers(), rows, stage);
  RETURN_IF_ERROR(JoinMtp(run, weights_, hidden));
  RETURN_IF_ERROR(RunLayer(run, spec_.num_layers(), stage));
  const MtpWeights& mtp = weights_.mtp;
  return Head(mtp.output_norm, mtp.output ? *mtp.output : weights_.head(), results);
}

// Takes off the step what is done.
absl::Status Transformer::ApplyCacheOps() {
  std::vector<CacheOp>& ops = step_.cache_ops;
  absl::Status status;
  size_t done = 0;
  for (; done < ops.size(); ++done) {
    for (const Stage& stage : stages_) {
      if (status.ok()) status = stage.cache.Apply(ops[done], stage.backend.get());
    }
    if (!status.ok()) break;
  }
  ops.erase(ops.begin(), ops.begin() + static_cast<ptrdiff_t>(done));
  return status;
}

absl::StatusOr<bool> Transformer::LayOutMore(absl::Duration time) {
  for (const Stage& stage : stages_) {
    ASSIGN_OR_RETURN(const bool more, stage.backend->LayOutMore(time));
    if (more) return true;
  }
  return false;
}

absl::StatusOr<bool> Transformer::KeepWeights() {
  return packed_ == nullptr ? false : packed_->Keep();
}

absl::Span<char> Transformer::BlockMemory(int32_t cache_class, int32_t block) {
  if (stages_.size() > 1 || !stages_[0].backend->uses_host_memory()) return {};
  return stages_[0].cache.BlockMemory(cache_class, block);
}

absl::Span<char> Transformer::StateMemory(int32_t slot) {
  if (stages_.size() > 1 || !stages_[0].backend->uses_host_memory()) return {};
  return stages_[0].cache.StateMemory(slot);
}

absl::Status Transformer::RunLayers(const std::atomic<bool>& cancel, Stage* stage) {
  const int64_t rows = static_cast<int64_t>(step_.tables.tokens.size());
  for (int64_t i = stage->first; i < std::min(stage->end, spec_.num_layers()); ++i) {
    RETURN_IF_ERROR(CheckCancelled(cancel));
    RETURN_IF_ERROR(CheckWeights());
    LayerRun run = RunOf(i, rows, stage);
    RETURN_IF_ERROR(spec_.hyper.has_value() ? RunHyperLayer(run, i, stage)
                                            : RunLayer(run, i, stage));
  }
  return absl::OkStatus();
}

absl::Status Transformer::RunLayer(LayerRun& run, int64_t index, Stage* stage) {
  const LayerSpec& spec = run.spec;
  if (spec_.streams > 1) RETURN_IF_ERROR(PredictStreams(run));
  Tensor mixed, beside;
  if (spec.beside.has_value()) {
    ASSIGN_OR_RETURN(beside, MixBeside(run, index, stage->cache));
  } else if (spec.laurel_rank > 0) {
    ASSIGN_OR_RETURN(beside, GoAround(run));
  }
  if (spec.has_mixer()) {
    ASSIGN_OR_RETURN(mixed, Mix(run, index, stage->cache));
  }
  const bool keeps = index == spec_.num_layers() - 1 && kept_ < run.rows;
  if (keeps && !spec.mixes_feed_forward()) {
    // Nobody reads the other rows after the last layer's keys and values are stored.
    if (kept_ == 0) return absl::OkStatus();
    RETURN_IF_ERROR(KeepRows(stage->act.x, stage));
    if (spec.has_mixer()) RETURN_IF_ERROR(KeepRows(mixed, stage));
    if (!beside.empty()) RETURN_IF_ERROR(KeepRows(beside, stage));
    if (spec_.streams > 1) RETURN_IF_ERROR(KeepRows(stage->act.predicted, stage));
    if (spec_.per_layer_input > 0) RETURN_IF_ERROR(KeepRows(InputOf(run, index), stage));
    run.rows = kept_;
    run.adapted = adapted_kept_;
    run.tokens = kept_tokens_;
  }
  if (!spec.parallel) RETURN_IF_ERROR(AddMixed(run, mixed, beside));
  RETURN_IF_ERROR(NormalizeInPlace(run.weights.mixer_sum_norm, run.x(), run.backend));
  if (!run.weights.mixer_second_sum_norm.empty()) {
    RETURN_IF_ERROR(run.backend->Add(run.x(), run.act.beside.Rows(0, run.rows), /*scale=*/1));
    RETURN_IF_ERROR(NormalizeInPlace(run.weights.mixer_second_sum_norm, run.x(), run.backend));
  }
  if (spec.feed_forward.exists()) {
    RETURN_IF_ERROR(FeedForward(run, stage->cache.conv_state(index)));
  }
  if (spec.parallel) RETURN_IF_ERROR(AddMixed(run, mixed, beside));
  RETURN_IF_ERROR(NormalizeInPlace(run.weights.feed_forward_sum_norm, run.x(), run.backend));
  if (spec_.streams > 1) RETURN_IF_ERROR(CorrectStreams(run));
  if (spec_.per_layer_input > 0) RETURN_IF_ERROR(AddLayerInput(run, index));
  if (run.weights.output_scale != 1) {
    RETURN_IF_ERROR(run.backend->ScaleAndCap(run.x(), run.weights.output_scale, /*cap=*/0));
  }
  // Its feed-forward needed all rows.
  return keeps && spec.mixes_feed_forward() && kept_ > 0 ? KeepRows(stage->act.x, stage)
                                                         : absl::OkStatus();
}

// A layer between streams that are connected as hyper_connections.h says.
absl::Status Transformer::RunHyperLayer(LayerRun& run, int64_t index, Stage* stage) {
  RETURN_IF_ERROR(EnterStreams(run, run.weights.hyper_mixer));
  ASSIGN_OR_RETURN(const Tensor mixed, Mix(run, index, stage->cache));
  if (index == spec_.num_layers() - 1 && kept_ < run.rows) {
    if (kept_ == 0) return absl::OkStatus();
    for (const Tensor& rows : {mixed, run.act.streams, run.act.stream_numbers}) {
      RETURN_IF_ERROR(KeepRows(rows, stage));
    }
    run.rows = kept_;
    run.adapted = adapted_kept_;
    run.tokens = kept_tokens_;
  }
  RETURN_IF_ERROR(run.Apply(run.mixer.output, ProductInput::Plain(mixed.Rows(0, run.rows)),
                            ProductResult::kReplaces, run.x()));
  RETURN_IF_ERROR(LeaveStreams(run));
  RETURN_IF_ERROR(EnterStreams(run, run.weights.hyper_feed_forward));
  RETURN_IF_ERROR(FeedForward(run, stage->cache.conv_state(index)));
  return LeaveStreams(run);
}

// x = norm(x + what adapters and positions add)
absl::Status Transformer::FinishEmbedding(Stage* stage) {
  Backend* backend = stage->backend.get();
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const Tensor x = stage->act.x.Rows(0, tokens);
  RETURN_IF_ERROR(AddEmbeddingUpdates(weights_.embedding_updates, step_.adapted,
                                      spec_.embedding_scale, stage->act.low_rank, backend, x));
  if (!weights_.positions.tensor.empty()) {
    const Tensor added = stage->act.hidden.Rows(0, tokens);
    RETURN_IF_ERROR(backend->GatherRows(weights_.positions.tensor, kPositions, added));
    RETURN_IF_ERROR(backend->Add(x, added, /*scale=*/1));
  }
  return NormalizeInPlace(weights_.embedding_norm, x, backend);
}

// What the tokens' embeddings add to each layer.
absl::Status Transformer::PlaceLayerInputs(Stage* stage) {
  Backend* backend = stage->backend.get();
  const PerLayerInputWeights& weights = weights_.per_layer_input;
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  const Tensor out = stage->act.per_layer.Rows(0, tokens);
  const Tensor read = stage->act.per_layer_read.Rows(0, tokens);
  handed_.resize(tokens * out.cols);
  RETURN_IF_ERROR(weights.embedding.Read(step_.tables.tokens, handed_.data()));
  RETURN_IF_ERROR(backend->Upload(handed_.data(), read.data, handed_.size() * sizeof(float)));
  const ProductInput x = ProductInput::Plain(stage->act.x.Rows(0, tokens));
  RETURN_IF_ERROR(weights.projection.Apply(backend, x, ProductResult::kReplaces, out));
  RETURN_IF_ERROR(AddUpdates(weights.projection.updates(), step_.adapted, x, stage->act.low_rank,
                             backend, out));
  const float hidden = static_cast<float>(spec_.hidden);
  const float width = static_cast<float>(spec_.per_layer_input);
  RETURN_IF_ERROR(backend->ScaleAndCap(out, 1 / std::sqrt(hidden), /*cap=*/0));
  RETURN_IF_ERROR(backend->Normalize(out, weights.norm.norm, out));
  RETURN_IF_ERROR(backend->Add(out, read, std::sqrt(width)));
  return backend->ScaleAndCap(out, 1 / std::sqrt(2.0f), /*cap=*/0);
}

// Moves what the layers behind a stage need from it to the next, through host memory.
absl::Status Transformer::Hand(Stage* from, Stage* to) {
  if (rehearses_) return absl::OkStatus();
  const int64_t tokens = static_cast<int64_t>(step_.tables.tokens.size());
  auto hand = [&](Tensor source, Tensor target) {
    handed_.resize(tokens * source.cols);
    const size_t bytes = handed_.size() * sizeof(float);
    RETURN_IF_ERROR(from->backend->Download(source.data, handed_.data(), bytes));
    return to->backend->Upload(handed_.data(), target.data, bytes);
  };
  if (spec_.per_layer_input > 0) RETURN_IF_ERROR(hand(from->act.per_layer, to->act.per_layer));
  if (from->act.rwkv_first.cols > 0) {
    RETURN_IF_ERROR(hand(from->act.rwkv_first, to->act.rwkv_first));
  }
  if (spec_.streams > 1) return hand(from->act.streams, to->act.streams);
  return hand(from->act.x, to->act.x);
}

// What is wanted of the kept rows, which are the first of x on the last stage.
absl::Status Transformer::Head(const DeviceNorm& norm, const WeightMatrix& head,
                               StepResults* results) {
  ASSIGN_OR_RETURN(const Tensor logits, MakeLogits(norm, head, results));
  if (logits.empty()) return absl::OkStatus();
  return stages_.back().backend->Sample(logits, step_.samples, &results->tokens,
                                        step_.margins ? &results->margins : nullptr);
}

// hidden = norm(x), logits = W_head norm(x): those that are picked of, which are empty where none
// are wanted. What is wanted on the host goes to the results, which may be null where nothing is.
absl::StatusOr<Tensor> Transformer::MakeLogits(const DeviceNorm& norm, const WeightMatrix& head,
                                               StepResults* results) {
  RETURN_IF_ERROR(CheckWeights());
  Backend* backend = stages_.back().backend.get();
  const Activations& act = stages_.back().act;
  if (spec_.hyper.has_value()) {
    RETURN_IF_ERROR(JoinStreams(spec_, weights_.hyper_end, kept_, act, backend));
  } else if (spec_.streams > 1) {
    RETURN_IF_ERROR(EndStreams(spec_, weights_, kept_, act, backend));
  }
  Tensor h = act.hidden.Rows(0, kept_);
  const Tensor x = act.x.Rows(0, kept_);
  if (norm.empty()) {
    h = x;
  } else {
    RETURN_IF_ERROR(backend->Normalize(x, norm.norm, h));
  }
  if (!step_.hidden_rows.empty()) {
    ASSIGN_OR_RETURN(const Tensor hidden, Gather(h, kKeptHidden));
    RETURN_IF_ERROR(backend->Download(hidden.data, results->hidden.data(),
                                      results->hidden.size() * sizeof(float)));
  }
  if (head_rows_ == 0) return Tensor();
  ASSIGN_OR_RETURN(h, Gather(h, kKeptLogits));
  const absl::Span<float> read =
      results == nullptr ? absl::Span<float>() : absl::MakeSpan(results->logits);
  Tensor logits(read.data(), DType::kF32, head_rows_, spec_.vocab);
  const bool in_place = backend->uses_host_memory() && step_.samples.empty();
  if (!in_place) {
    RETURN_IF_ERROR(ReserveLogits(head_rows_));
    logits.data = logits_buffer_.data();
  }
  const Tensor bias = weights_.output_bias.tensor;
  RETURN_IF_ERROR(step_.wanted_logits.empty() || !bias.empty()
                      ? backend->MatMul(head, h, bias, logits)
                      : backend->MatMulColumns(head, h, step_.wanted_logits, logits));
  RETURN_IF_ERROR(AddUpdates(weights_.output_updates,
                             AdaptedAmong(adapted_kept_, step_.tables.row_lists[kKeptLogits]),
                             ProductInput::Plain(h), act.low_rank, backend, logits));
  if (spec_.logit_scale != 1 || spec_.logit_softcap > 0) {
    RETURN_IF_ERROR(backend->ScaleAndCap(logits, spec_.logit_scale, spec_.logit_softcap));
  }
  if (!in_place && !read.empty()) {
    RETURN_IF_ERROR(backend->Download(logits.data, read.data(), read.size() * sizeof(float)));
  }
  return logits;
}

absl::StatusOr<std::vector<float>> Transformer::ApplyHead(bool ranks,
                                                          absl::Span<const float> pooled) {
  RETURN_IF_ERROR(CheckWeights());
  return ApplyPoolingHead(spec_, weights_.pooling, ranks, pooled, stages_.back().backend.get(),
                          &head_scratch_);
}

// Of the last stage's matrix whose rows are the kept ones, those of the list, a subset. Valid until
// the next call.
absl::StatusOr<Tensor> Transformer::Gather(Tensor from, int32_t list) {
  const std::vector<int32_t>& picks = step_.tables.row_lists[list];
  if (picks == step_.tables.row_lists[kAllKept]) return from;
  const int64_t rows = static_cast<int64_t>(picks.size());
  Stage& stage = stages_.back();
  Tensor picked(stage.act.gathered.data, DType::kF32, rows, from.cols);
  RETURN_IF_ERROR(stage.backend->GatherRows(from, list, picked));
  return picked;
}

// Moves the kept rows of a matrix to its top, through `gathered`.
absl::Status Transformer::KeepRows(Tensor from, Stage* stage) {
  Tensor gathered(stage->act.gathered.data, DType::kF32, kept_, from.cols);
  RETURN_IF_ERROR(stage->backend->GatherRows(from, kKept, gathered));
  return stage->backend->GatherRows(gathered, kAllKept, from.Rows(0, kept_));
}

void Transformer::ListRows() {
  std::vector<std::vector<int32_t>>& lists = step_.tables.row_lists;
  lists.assign(kNumRowLists, {});
  std::vector<int32_t>& kept = lists[kKept];
  const std::vector<int32_t>& read = step_.logit_rows;
  kept = read;
  for (const SamplingRow& sample : step_.samples) kept.push_back(sample.row);
  kept.insert(kept.end(), step_.hidden_rows.begin(), step_.hidden_rows.end());
  for (size_t row = 0; row < step_.mtp_next.size(); ++row) {
    if (step_.mtp_next[row] >= 0) kept.push_back(static_cast<int32_t>(row));
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  kept_ = static_cast<int64_t>(kept.size());
  adapted_kept_ = AdaptedAmong(step_.adapted, kept);
  kept_tokens_.clear();
  for (const int32_t row : kept) kept_tokens_.push_back(step_.tables.tokens[row]);
  lists[kAllKept].resize(kept.size());
  std::iota(lists[kAllKept].begin(), lists[kAllKept].end(), 0);
  auto among = [](const std::vector<int32_t>& rows, int32_t row) {
    return static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), row) - rows.begin());
  };
  for (int32_t row : step_.hidden_rows) lists[kKeptHidden].push_back(among(kept, row));
  std::vector<int32_t>& head = lists[kKeptLogits];
  for (int32_t row : read) head.push_back(among(kept, row));
  for (SamplingRow& sample : step_.samples) {  // from now on a row of the logits
    const int32_t row = sample.row;
    sample.row = among(read, row);
    if (sample.row < static_cast<int32_t>(read.size()) && read[sample.row] == row) continue;
    sample.row = static_cast<int32_t>(head.size());
    head.push_back(among(kept, row));
  }
  head_rows_ = static_cast<int64_t>(head.size());
}

// What else depends on the tokens' positions.
void Transformer::ListPositions() {
  temperatures_.clear();
  for (const StepSequence& sequence : step_.tables.sequences) {
    for (int32_t p = sequence.first_position; p < sequence.context(); ++p) {
      if (!weights_.positions.tensor.empty()) {
        step_.tables.row_lists[kPositions].push_back(spec_.learned_positions > 0 ? p : 0);
      }
      if (spec_.temperature.beta == 0) continue;
      const double turns =
          static_cast<double>((p + spec_.temperature.offset) / spec_.temperature.length);
      temperatures_.push_back(static_cast<float>(1 + spec_.temperature.beta * std::log(turns + 1)));
    }
  }
}

// Writes the angles of a position, of a rope: cosines and sines.
void Transformer::FindAngles(size_t rope, int32_t position, float* out) const {
  const RopeSpec& spec = spec_.ropes[rope];
  const double place = static_cast<double>(position - spec.behind) * (spec.back ? -1 : 1);
  for (const double frequency : frequencies_[rope]) {
    const double angle = place * frequency;
    *out++ = static_cast<float>(spec.magnitude * std::cos(angle));
    *out++ = static_cast<float>(spec.magnitude * std::sin(angle));
  }
}

// The angles of each token's position, for each rope. Those of early positions are found once.
void Transformer::FillRopes(StepTables* tables) {
  std::vector<RopeTable>& ropes = tables->ropes;
  ropes.resize(spec_.ropes.size());
  known_angles_.resize(spec_.ropes.size());
  for (size_t r = 0; r < ropes.size(); ++r) {
    const int64_t dim = spec_.ropes[r].dim;
    ropes[r].dim = static_cast<int32_t>(dim);
    ropes[r].angles.resize(tables->tokens.size() * dim);
    float* out = ropes[r].angles.data();
    for (const StepSequence& sequence : tables->sequences) {
      for (int32_t p = sequence.first_position; p < sequence.context(); ++p, out += dim) {
        if (p >= kKnownPositions) {
          FindAngles(r, p, out);
          continue;
        }
        const size_t run = p / kAnglesRun;
        if (run >= known_angles_[r].size()) known_angles_[r].resize(run + 1);
        std::vector<float>& known = known_angles_[r][run];
        if (known.empty()) {
          known.resize(kAnglesRun * dim);
          for (int32_t i = 0; i < kAnglesRun; ++i) {
            FindAngles(r, p / kAnglesRun * kAnglesRun + i, known.data() + i * dim);
          }
        }
        std::copy_n(known.data() + p % kAnglesRun * dim, dim, out);
      }
    }
  }
}

absl::Status Transformer::ReserveLogits(int64_t rows) {
  if (rows <= logits_capacity_) return absl::OkStatus();
  ASSIGN_OR_RETURN(logits_buffer_,
                   stages_.back().backend->Allocate(rows * spec_.vocab * sizeof(float)));
  logits_capacity_ = rows;
  return absl::OkStatus();
}

}  // namespace lm

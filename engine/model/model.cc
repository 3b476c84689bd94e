#include "engine/model/model.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "engine/backend/registry.h"
#include "engine/base/cpu_features.h"
#include "engine/base/default_rounding.h"
#include "engine/base/digest.h"
#include "engine/base/own_thread.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/gguf_file.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/adapter_file.h"
#include "engine/model/cache_spec.h"
#include "engine/model/device_plan.h"
#include "engine/model/model_spec.h"
#include "engine/model/model_text.h"
#include "engine/model/pack_cache.h"
#include "engine/model/transformer.h"

namespace lm {
namespace {

// Scores and the values that they weigh: a multiply and an add each.
void AddAttention(const AttentionSpec& attention, ModelCost* cost) {
  const int64_t operations = 2 * attention.heads * (attention.key_dim + attention.value_dim);
  const auto same = std::find_if(
      cost->attention.begin(), cost->attention.end(),
      [&attention](const ModelCost::Attention& a) { return a.window == attention.window; });
  if (same != cost->attention.end()) {
    same->operations += operations;
  } else {
    cost->attention.push_back({attention.window, operations});
  }
}

// How much faster a prompt's attention over a cache of int16 was than over one of F16, which is in
// F32: on AVX2, AVX-VNNI and AVX-512 1.75, 1.58, 1.38 (tests/benchmarks/attention_and_context.md,
// "Attention of integers"). Of steps that decode, where it is a smaller part, 1.06 to 1.6.
constexpr double kInt16AttentionSpeed = 1.5;

ModelCost CostOf(const ModelSpec& spec, const Weights& weights, const CacheShape& cache,
                 DType kv_type) {
  const WeightMatrix& head = weights.head();
  ModelCost cost;
  cost.head_parameters = head.rows() * head.cols();
  cost.head_bytes = static_cast<int64_t>(head.bytes());
  // The embedding is looked up, not multiplied; the norms are too small to tell.
  cost.body_parameters = weights.parameters - cost.head_parameters - weights.mtp.parameters;
  if (!weights.tied) {
    cost.body_parameters -= weights.embedding->rows() * weights.embedding->cols();
  }
  const FileRows& looked_up = weights.per_layer_input.embedding;
  cost.body_parameters -= looked_up.rows() * looked_up.cols();
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    if (const AttentionSpec* attention = spec.layers[i].attention()) {
      AddAttention(*attention, &cost);
    }
    const FeedForwardSpec& feed_forward = spec.layers[i].feed_forward;
    cost.body_bytes += weights.layers[i].bytes_a_token(spec.layers[i]);
    if (!feed_forward.experts.has_value()) continue;
    const ExpertSpec& experts = *feed_forward.experts;
    cost.body_parameters -= (experts.count - experts.router.chosen) * spec.hidden *
                            (feed_forward.InputCols(experts.width) + experts.width);
  }
  cost.state_bytes = cache.state_bytes;
  if (kv_type == DType::kI16) cost.attention_speed = kInt16AttentionSpeed;
  for (ModelCost::Attention& attention : cost.attention) {
    for (const CacheClass& c : cache.classes) {
      if (c.window == attention.window) attention.bytes = c.block_bytes / kKvBlockTokens;
    }
  }
  cost.integers = weights.quantisation != "F32" && weights.quantisation != "F16" &&
                  weights.quantisation != "BF16";
  return cost;
}

// Made at once where it will be asked for soon, or the files cannot be read again.
absl::StatusOr<std::unique_ptr<const ContentDigest>> MakeDigest(
    const GgufFile& gguf, const std::optional<PackCache>& packs, bool is_stored_under,
    int threads) {
  std::optional<std::string> known = packs.has_value() ? packs->digest() : std::nullopt;
  const ModelFiles files = gguf.files();
  const bool last =
      std::all_of(files.begin(), files.end(), [](const auto& file) { return file->lasts(); });
  if (!known.has_value() && !packs.has_value() && !is_stored_under && last) {
    return std::make_unique<const ContentDigest>(files, threads);
  }
  if (!known.has_value()) {
    ASSIGN_OR_RETURN(known, gguf.Digest(threads));
  }
  return std::make_unique<const ContentDigest>(*std::move(known));
}

// As far as the system tells files apart, and what they were from what they are: answers in memory
// outlive the model, and another one's weights may be written over its own, as many and with the
// same time. REQUIRES: all last.
std::string IdentityOf(const ModelFiles& files) {
  std::string identities;
  for (const auto& file : files) {
    const auto [device, inode, bytes, modified_ns] = file->identity();
    absl::StrAppend(&identities, device, ":", inode, ":", bytes, ":", modified_ns, ":",
                    file->changed_ns(), " ");
  }
  return DigestOf(identities).Hex();
}

struct Devices {
  std::vector<Transformer::Part> parts;
  std::string names;
  std::string where;  // each run of layers is
  bool exact = true;
};

absl::StatusOr<Devices> CreateBackends(absl::Span<const DeviceLayers> plan,
                                       const ModelOptions& options) {
  Devices devices;
  for (const DeviceLayers& run : plan) {
    BackendOptions own = {.device = run.device, .threads = options.threads};
    own.least_split_bytes = options.least_split_bytes.value_or(own.least_split_bytes);
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend(own));
    absl::StrAppend(&devices.names, devices.names.empty() ? "" : ",", backend->name());
    absl::StrAppend(&devices.where, backend->name(), ":", run.first, "-", run.end, " ");
    devices.exact = devices.exact && backend->numeric_contract() == NumericContract::kExactBlocks;
    devices.parts.push_back({std::move(backend), run.first, run.end});
  }
  return devices;
}

// What its file says of the model, and its weights and cache say.
absl::Status Describe(const std::string& path, const Metadata& metadata, const ModelSpec& spec,
                      const Transformer& transformer, DType kv_type, ModelInfo* info) {
  info->path = path;
  info->architecture = spec.architecture;
  info->name =
      metadata.GetString("general.name").value_or(std::filesystem::path(path).stem().string());
  ASSIGN_OR_RETURN(info->purpose, ReadPurpose(metadata));
  info->quantisation = transformer.weights().quantisation;
  info->parameters = transformer.weights().parameters;
  info->weight_bytes = transformer.weights().bytes;
  info->kv_bytes = transformer.cache().bytes();
  info->kv_type = kv_type;
  info->generates = spec.causal && !spec.pooling.ranks;
  info->pooling = spec.pooling.pooling;
  info->ranks = spec.pooling.ranks;
  info->context_length = transformer.context_length();
  info->short_rope = std::any_of(spec.ropes.begin(), spec.ropes.end(), [&spec](const RopeSpec& r) {
    return r.long_factors != nullptr && spec.context_length <= r.original_context;
  });
  info->vocab_size = transformer.vocab_size();
  info->hidden_size = transformer.hidden_size();
  info->cost = CostOf(spec, transformer.weights(), transformer.cache(), kv_type);
  return absl::OkStatus();
}

absl::Status AddAdapters(absl::Span<const AdapterFile> adapters, const ModelOptions& options,
                         int threads, ModelInfo* info) {
  for (size_t i = 0; i < adapters.size(); ++i) {
    AdapterInfo adapter = {.name = adapters[i].name, .scale = options.lora[i].scale};
    ASSIGN_OR_RETURN(adapter.digest, adapters[i].gguf->Digest(threads));
    for (const TensorInfo& tensor : adapters[i].gguf->tensors()) {
      adapter.bytes += static_cast<int64_t>(tensor.bytes);
    }
    info->weight_bytes += adapter.bytes;
    info->adapters.push_back(std::move(adapter));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> LoadDraft(const std::string& path,
                                                 const ModelOptions& options, const Model& model,
                                                 const std::atomic<bool>& cancel) {
  // A token of it takes a fraction of the memory.
  constexpr int64_t kCacheShare = 8, kLeastCache = 32 << 20;
  const int64_t kv_bytes = options.kv_bytes > 0 ? options.kv_bytes : model.info().kv_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<Model> draft,
                   Model::Load(DraftPath(path, options),
                               {.device = options.device,
                                .threads = options.threads,
                                .kv_bytes = std::max(kv_bytes / kCacheShare, kLeastCache),
                                .kv_type = options.kv_type,
                                .pack_cache = options.pack_cache,
                                .least_split_bytes = options.least_split_bytes},
                               cancel));
  RETURN_IF_ERROR(CheckDraft(model, *draft));
  return draft;
}

// What body() returns, made beside the weights; where the system gives no thread, after them.
template <typename Body>
std::future<std::invoke_result_t<Body>> Beside(Body body) {
  const SignalsBlocked blocked;
  return std::async(std::launch::async | std::launch::deferred, [body = std::move(body)] {
    const DefaultRounding rounding;
    return body();
  });
}

// `on_gpu`: whether a GPU was to have some of the layers, as far as it came.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path,
                                                 const ModelOptions& options,
                                                 const std::atomic<bool>& cancel, bool* on_gpu) {
  *on_gpu = false;
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> gguf, OpenModelFile(path, &cancel));
  ASSIGN_OR_RETURN(ModelSpec spec, DescribeModel(*gguf, options.pooling));
  if (options.context_length < 0 || options.context_length > spec.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("context_length must be 0 (the model's own) to ",
                                                   spec.context_length, ", got ",
                                                   options.context_length));
  }
  if (options.context_length > 0) spec.context_length = options.context_length;
  ASSIGN_OR_RETURN(const std::vector<DeviceLayers> plan,
                   PlanDevices(options.device, spec.num_layers()));
  *on_gpu = HasGpu(plan);
  ASSIGN_OR_RETURN(const DType asked_kv_type, KvTypeOn(plan, options.kv_type));
  const DType kv_type = KvTypeOf(spec, *on_gpu, asked_kv_type);
  const bool guesses = options.mtp && options.draft.empty() && plan.size() == 1;
  if (!guesses || !spec.causal || spec.pooling.ranks) spec.LeaveOutMtp();
  ASSIGN_OR_RETURN(Devices devices, CreateBackends(plan, options));
  ASSIGN_OR_RETURN(const std::vector<AdapterFile> adapters,
                   OpenAdapters(path, spec.architecture, options.lora, &cancel));
  const int threads = options.threads > 0 ? options.threads : DefaultThreads();
  std::optional<PackCache> packs;
  if (!options.pack_cache.empty()) {
    const bool adopts =
        std::any_of(devices.parts.begin(), devices.parts.end(),
                    [](const auto& part) { return part.backend->adopts_matrices(); });
    packs.emplace(options.pack_cache, path, *gguf, devices.where, adopts, threads, cancel);
  }
  ASSIGN_OR_RETURN(const std::string chat_template, ReadChatTemplate(path, options));
  std::future<absl::StatusOr<ModelText>> text_made =
      Beside([&] { return ModelText::Load(gguf->metadata(), chat_template); });
  const bool lays_out_later = static_cast<int64_t>(gguf->bytes()) >= options.least_deferred;
  ASSIGN_OR_RETURN(
      std::unique_ptr<Transformer> transformer,
      Transformer::Load(*gguf, spec, options.kv_bytes, kv_type, std::move(devices.parts), adapters,
                        packs ? &*packs : nullptr, lays_out_later));
  ASSIGN_OR_RETURN(std::unique_ptr<const ContentDigest> digest,
                   MakeDigest(*gguf, packs, !options.prefix_store.empty(), threads));
  ASSIGN_OR_RETURN(ModelText text, text_made.get());
  ModelInfo info;
  RETURN_IF_ERROR(Describe(path, gguf->metadata(), spec, *transformer, kv_type, &info));
  RETURN_IF_ERROR(AddAdapters(adapters, options, threads, &info));
  info.device = devices.names;
  if (options.device == "auto" && info.device == "cpu") info.device_reason = WhyNoGpu();
  info.exact = devices.exact;
  info.thinking_marks = options.thinking_marks;
  if (!chat_template.empty()) info.chat_template = DigestOf(chat_template).Hex();
  info.prefix_store = options.prefix_store;
  info.prefix_store_bytes = options.prefix_store_bytes;
  info.identity = digest->known().has_value() ? *digest->known() : IdentityOf(gguf->files());
  if (packs) {
    packs->Finish(*digest->known());
    info.pack_cache = packs->state();
  }
  auto model =
      std::make_unique<Model>(std::move(info), std::move(text.tokenizer), text.chat_template,
                              std::move(transformer), std::move(digest));
  if (options.draft.empty()) return model;
  ASSIGN_OR_RETURN(std::unique_ptr<Model> draft, LoadDraft(path, options, *model, cancel));
  model->set_draft(std::move(draft));
  return model;
}

// Whether the token only fills a table of embeddings up: it has no name, is of the type that
// converters give it, or is called as they call it.
bool IsPadding(const Tokenizer& tokenizer, int32_t token) {
  return token >= tokenizer.size() || tokenizer.vocabulary().types[token] == TokenType::kUnused ||
         tokenizer.TokenName(token) == absl::StrCat("[PAD", token, "]");
}

}  // namespace

absl::Status CheckGenerates(const ModelInfo& info) {
  if (info.generates) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", Printable(info.name), "' (", info.architecture, ") writes no text: it is ",
      info.ranks ? "a reranker, for lm_rerank" : "an encoder, for lm_embed"));
}

absl::Status CheckDraft(const Model& model, const Model& draft) {
  auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("draft model '", Printable(draft.info().name),
                                                   "' cannot guess for '",
                                                   Printable(model.info().name), "': ", why));
  };
  if (!draft.info().generates) return refuse("it writes no text");
  const int32_t size = draft.language_model().vocab_size();
  const int32_t wanted_size = model.language_model().vocab_size();
  const int32_t common = std::min(size, wanted_size);
  for (int32_t token = 0; token < common; ++token) {
    const absl::string_view own = draft.tokenizer().TokenBytes(token);
    const absl::string_view wanted = model.tokenizer().TokenBytes(token);
    if (own == wanted) continue;
    return refuse(absl::StrCat("its token ", token, " is '", Printable(own), "', not '",
                               Printable(wanted), "'"));
  }
  const Tokenizer& larger = size > wanted_size ? draft.tokenizer() : model.tokenizer();
  for (int32_t token = common; token < std::max(size, wanted_size); ++token) {
    if (IsPadding(larger, token)) continue;
    return refuse(absl::StrCat("its vocabulary has ", size, " tokens, not ", wanted_size, ", and ",
                               token, ", '", Printable(larger.TokenName(token)),
                               "', is no padding"));
  }
  if (draft.language_model().cache().recurrent()) {
    return refuse("it has recurrent states, which take no guess back");
  }
  return absl::OkStatus();
}

absl::Status CheckRanks(const ModelInfo& info) {
  if (info.ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model '", Printable(info.name), "' (",
                                                 info.architecture,
                                                 ") ranks no texts: it is not a reranker (where it "
                                                 "is one and its file does not say so, its options "
                                                 "in lm_models do: {\"pooling\":\"rank\"})"));
}

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const std::string& path,
                                                   const ModelOptions& options) {
  const std::atomic<bool> never{false};
  return Load(path, options, never);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const std::string& path,
                                                   const ModelOptions& options,
                                                   const std::atomic<bool>& cancel) {
  bool on_gpu;
  absl::StatusOr<std::unique_ptr<Model>> model = LoadModel(path, options, cancel, &on_gpu);
  const bool unfit = absl::IsResourceExhausted(model.status()) ||
                     absl::IsFailedPrecondition(model.status()) ||
                     absl::IsUnavailable(model.status());
  if (options.device == "auto" && on_gpu && unfit) {
    const std::string reason(model.status().message());
    ModelOptions on_cpu = options;
    on_cpu.device = "cpu";
    model = LoadModel(path, on_cpu, cancel, &on_gpu);
    if (model.ok()) (*model)->info_.device_reason = reason;
  }
  if (!model.ok() && model.status().message().find(path) == absl::string_view::npos) {
    return absl::Status(model.status().code(),
                        absl::StrCat("model '", path, "': ", model.status().message()));
  }
  return model;
}

Model::Model(ModelInfo info, std::unique_ptr<Tokenizer> tokenizer, ChatTemplate chat_template,
             std::unique_ptr<LanguageModel> language_model,
             std::unique_ptr<const ContentDigest> digest)
    : info_(std::move(info)),
      digest_(digest != nullptr ? std::move(digest)
                                : std::make_unique<const ContentDigest>(info_.identity)),
      tokenizer_(std::move(tokenizer)),
      chat_template_(chat_template),
      thinking_marks_(ThinkingMarks::Of(*tokenizer_, info_.thinking_marks)),
      language_model_(std::move(language_model)) {}

}  // namespace lm

// How a model is loaded, and the JSON form of it: the `options` of a row of lm_models and of
// lm_engine_open.
#ifndef LM_ENGINE_MODEL_MODEL_OPTIONS_H_
#define LM_ENGINE_MODEL_MODEL_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/model/pooling.h"
#include "engine/tensor/dtype.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {

// An adapter (LoRA) that is known for a model.
struct AdapterOption {
  std::string name = {};
  std::string path = {};  // a GGUF file's, as OpenAdapters reads it
  float scale = 1;        // of rows that do not say which adapters they want; 0: not for them

  bool operator==(const AdapterOption&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const AdapterOption& option) {
    return H::combine(std::move(h), option.name, option.path, option.scale);
  }
};

struct ModelOptions {
  std::string device = "cpu";               // as PlanDevices (device_plan.h)
  int threads = 0;                          // 0: as many as this process may use
  int64_t kv_bytes = 0;                     // cap of the KV cache; 0: Transformer::Load
  std::optional<DType> kv_type = {};        // of keys and values; none: KvTypeOn (device_plan.h)
  int32_t context_length = 0;               // 0: the model's own; more than that is an error
  std::vector<AdapterOption> lora = {};     // each name once
  std::string draft = {};                   // a smaller model's GGUF file, which guesses; "": none
  bool mtp = true;                          // without one, the file's own layer for it (mtp.h) does
  std::string pack_cache = {};              // the folder of packed weights (pack_cache.h); "": none
  std::string prefix_store = {};            // that of prefixes (prefix_store.h); "": none
  int64_t prefix_store_bytes = -1;  // what it may hold; 0: nothing of this; below 0: its default
  std::optional<PoolingType> pooling = {};  // in the place of what the file says
  // Bytes of a file from which on its weights are laid out beside the first steps (LayOutMore):
  // below, memory comes soon enough. No key.
  int64_t least_deferred = int64_t{64} << 20;
  // Likewise, of several devices that compute together: as BackendOptions, whose default it has.
  std::optional<int64_t> least_split_bytes = {};
  std::string chat_template = {};  // no key: Jinja, or the path of a file of it; "": the file's

  std::optional<NamedMarks> thinking_marks = {};  // none: as its file tells (ThinkingMarks::Of)

  bool operator==(const ModelOptions&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ModelOptions& options) {
    return H::combine(
        std::move(h), options.device, options.threads, options.kv_bytes, options.kv_type,
        options.context_length, options.lora, options.draft, options.mtp, options.pack_cache,
        options.prefix_store, options.prefix_store_bytes, options.pooling, options.least_deferred,
        options.least_split_bytes, options.chat_template, options.thinking_marks.has_value(),
        options.thinking_marks.value_or(NamedMarks()));
  }
};

// Overlays the keys of a JSON object (device, threads, kv_bytes, kv_type, context_length, lora,
// draft, mtp, pack_cache, prefix_store, prefix_store_bytes, pooling, chat_template, thinking_marks)
// on *options. InvalidArgument, naming it, for an unknown key, a wrong type or a value out of
// range. `others` are known to the caller, who has read them out of the object: an error names them
// too.
absl::Status ParseModelOptions(absl::string_view json, ModelOptions* options,
                               absl::Span<const absl::string_view> others = {});

// "auto", which is none, "f16", "int16", "int8", "f32", and back. InvalidArgument for any other
// name.
absl::StatusOr<std::optional<DType>> ParseKvType(absl::string_view name);
absl::string_view KvTypeName(std::optional<DType> type);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_OPTIONS_H_

// Adapters as texts: by their names, for people, and by what they contain, for stored prefixes.
//
//   AdaptersText(info, adapters);                  // [{"name":"one","scale":1.0}]
//   const std::string key = AdaptersKey(info, adapters);
//   AdaptersOfKey(info, key) == adapters;
#ifndef LM_ENGINE_RUNTIME_ADAPTER_TEXT_H_
#define LM_ENGINE_RUNTIME_ADAPTER_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/model/adapter_set.h"
#include "engine/model/model.h"

namespace lm {

// {"name": ..., "scale": ...} of each, as the option `lora` takes them; empty for none.
std::string AdaptersText(const ModelInfo& info, const AdapterSet& adapters);

// What the keys and values of a text depend on: the digest of each adapter, and its scale. It stays
// the same where a model is loaded with more adapters, or in another order.
std::string AdaptersKey(const ModelInfo& info, const AdapterSet& adapters);
// The adapters of a key, without those that the model was loaded without.
AdapterSet AdaptersOfKey(const ModelInfo& info, absl::string_view key);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_ADAPTER_TEXT_H_

#include "engine/runtime/adapter_text.h"

#include <algorithm>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/json.h"

namespace lm {

std::string AdaptersText(const ModelInfo& info, const AdapterSet& adapters) {
  if (adapters.empty()) return "";
  Json array = Json::MakeArray();
  for (const AdapterUse& use : adapters) {
    Json one = Json::MakeObject();
    one.Add("name", info.adapters[use.adapter].name);
    one.Add("scale", double{use.scale});
    array.Append(std::move(one));
  }
  return array.Dump();
}

std::string AdaptersKey(const ModelInfo& info, const AdapterSet& adapters) {
  std::string key;
  for (const AdapterUse& use : adapters) {
    absl::StrAppend(&key, key.empty() ? "" : " ", info.adapters[use.adapter].digest, "*",
                    absl::Hex(absl::bit_cast<uint32_t>(use.scale), absl::kZeroPad8));
  }
  return key;
}

AdapterSet AdaptersOfKey(const ModelInfo& info, absl::string_view key) {
  AdapterSet set;
  for (const absl::string_view one : absl::StrSplit(key, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(one, '*');
    const auto named =
        std::find_if(info.adapters.begin(), info.adapters.end(),
                     [&parts](const AdapterInfo& a) { return a.digest == parts.first; });
    uint32_t scale = 0;
    if (named == info.adapters.end() || !absl::SimpleHexAtoi(parts.second, &scale)) continue;
    set.push_back(
        {static_cast<int32_t>(named - info.adapters.begin()), absl::bit_cast<float>(scale)});
  }
  return set;
}

}  // namespace lm

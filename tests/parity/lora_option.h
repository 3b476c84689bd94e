// The option lora=PATH:SCALE[,PATH:SCALE] of the programs that run a model beside another engine.
#ifndef LM_TESTS_PARITY_LORA_OPTION_H_
#define LM_TESTS_PARITY_LORA_OPTION_H_

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/model/adapter_set.h"
#include "engine/model/model_options.h"

namespace lm {

// The adapters become the model's, and all are used. False where the text is none such.
inline bool ReadLoraOption(absl::string_view text, ModelOptions* options, AdapterSet* adapters) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t colon = part.rfind(':');
    float scale;
    if (colon == absl::string_view::npos || !absl::SimpleAtof(part.substr(colon + 1), &scale)) {
      return false;
    }
    const std::string path = std::filesystem::absolute(std::string(part.substr(0, colon))).string();
    adapters->push_back({static_cast<int32_t>(adapters->size()), scale});
    options->lora.push_back({.name = absl::StrCat(adapters->size()), .path = path});
  }
  return true;
}

}  // namespace lm

#endif  // LM_TESTS_PARITY_LORA_OPTION_H_

// The options of a call: any text is refused with a message that can be shown, and then changes
// nothing, or gives options within their ranges.
#include <string>
#include <vector>

#include "engine/runtime/generation_options.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {

std::vector<std::string> FuzzSeeds() {
  return {
      R"({"max_tokens":5,"temperature":0.8,"seed":3,"top_p":0.9,"top_k":40,"min_p":0.1,"stop":["zz","y"]})",
      R"({"choices":["a","b"],"vote":5,"logit_bias":{"12":-1.5},"timeout_ms":100,"priority":"interactive"})",
      R"({"schema":{"type":"object","properties":{"a":{"enum":[1,null]}}},"json_spaces":true,"on_length":"complete"})",
      R"({"regex":"[a-z]{2}","repeat_penalty":1.1,"n":3,"best_of":4,"thinking":"keep","messages":true})",
      R"({"grammar":"root ::= \"a\"","template_args":{"x":[1,{"y":"z"}]},"lora":[{"name":"t","scale":0.5}]})",
  };
}

std::vector<std::string> FuzzWords() {
  return {"\"max_tokens\":",
          "\"temperature\":",
          "\"seed\":",
          "\"stop\":",
          "\"choices\":",
          "\"schema\":",
          "\"lora\":",
          "\"name\":",
          "\"scale\":",
          "null",
          "true",
          "-1",
          "1e999",
          "\\ud83d",
          "\\u0000",
          "\"\":",
          "[[[[[[[[",
          "{\"a\":"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lm::GenerationOptions options;
  options.max_tokens = 77;
  const lm::GenerationOptions before = options;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (absl::Status status = lm::ParseGenerationOptions(text, &options); !status.ok()) {
    lm::RequireShowable(status);
    lm::Require(options == before, "options that are refused change nothing");
    return 0;
  }
  lm::Require(lm::ValidateGenerationOptions(options).ok(), "options that are taken are in range");
  return 0;
}

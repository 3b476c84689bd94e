// The text models of "qwen2vl": Qwen2-VL and Qwen2.5-VL (Bai et al. 2025, arXiv 2502.13923), and of
// "qwen3vl", "qwen3vlmoe": Qwen3-VL.
//
// As qwen2, qwen3 and qwen3moe. The pairs of a head are for an image's time, height and width,
// which are all the token's position in a text; what is left of them does not turn.
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"

namespace lm {
namespace {

absl::Status NeedSections(KeyReader& keys, bool interleaved, RopeSpec* rope) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections, ReadRopeSections(keys));
  if (sections.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("key \"", keys.Key("rope.dimension_sections"), "\" is not in the file"));
  }
  UseRopeSections(sections, interleaved, rope);
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeQwen2Vl(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen2(keys, spec));
  return NeedSections(keys, /*interleaved=*/false, &spec->ropes[0]);
}

absl::Status DescribeQwen3Vl(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen3(keys, spec));
  keys.Has("n_deepstack_layers");  // to which an image is added
  return NeedSections(keys, /*interleaved=*/true, &spec->ropes[0]);
}

}  // namespace lm

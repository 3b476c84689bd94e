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

// `interleaved`: pair i is of section i mod 3 as long as that has some left.
absl::Status ReadSections(KeyReader& keys, bool interleaved, RopeSpec* rope) {
  constexpr char kSections[] = "rope.dimension_sections";
  if (!keys.Has(kSections)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key \"", keys.Key(kSections), "\" is not in the file"));
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> sections,
                   keys.IntsOr(kSections, 4, 0, kMaxHeadDim, 0));
  const int64_t turning = sections[0] + sections[1] + sections[2];
  for (int64_t i = 0; i < rope->dim / 2; ++i) {
    const int64_t place = turning + sections[3] > 0 ? i % (turning + sections[3]) : 0;
    if (interleaved ? place >= 3 * sections[place % 3] : place >= turning) rope->still.push_back(i);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DescribeQwen2Vl(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen2(keys, spec));
  return ReadSections(keys, /*interleaved=*/false, &spec->ropes[0]);
}

absl::Status DescribeQwen3Vl(KeyReader& keys, ModelSpec* spec) {
  RETURN_IF_ERROR(DescribeQwen3(keys, spec));
  keys.Has("n_deepstack_layers");  // to which an image is added
  return ReadSections(keys, /*interleaved=*/true, &spec->ropes[0]);
}

}  // namespace lm

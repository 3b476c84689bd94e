// Families: what is peculiar to the models of one architecture, a short file each in families/. A
// family reads the keys that a converter writes for it and describes its layers.
//
// To add one: families/<name>.cc, a line here and in kFamilies (model_spec.cc), and a row in the
// table of golden_logits_test.cc.
#ifndef LM_ENGINE_MODEL_FAMILIES_H_
#define LM_ENGINE_MODEL_FAMILIES_H_

#include "absl/status/status.h"
#include "engine/model/key_reader.h"
#include "engine/model/model_spec.h"

namespace lm {

// What the families below have in common, uniform over the layers: the sizes, heads, rope and norms
// under the names that all converters use. Refuses variants that none of them computes (mixtures of
// experts, other rope scalings), naming the key; and windows, which a family reads itself with
// ReadWindow where it has them.
absl::Status DescribeStandardBlocks(KeyReader& keys, ModelSpec* spec);
// The window, in tokens; 0 where there is none, or the context does not outgrow it.
absl::StatusOr<int64_t> ReadWindow(KeyReader& keys, int64_t context_length);
absl::Status RefuseWindow(KeyReader& keys, int64_t context_length);

absl::Status DescribeGemma3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLlama(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen35(KeyReader& keys, ModelSpec* spec);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_FAMILIES_H_

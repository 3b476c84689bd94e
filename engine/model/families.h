// Families: what is peculiar to the models of one architecture, a short file each in families/. A
// family reads the keys that a converter writes for it and describes its layers.
//
// To add one: families/<name>.cc, a line here and in kFamilies (model_spec.cc), and a row in the
// table of golden_logits_test.cc.
#ifndef LM_ENGINE_MODEL_FAMILIES_H_
#define LM_ENGINE_MODEL_FAMILIES_H_

#include <vector>

#include "absl/status/status.h"
#include "engine/model/key_reader.h"
#include "engine/model/model_spec.h"

namespace lm {

// The sizes and norms that all models have. Returns the number of layers; blocks that predict
// further tokens (nextn_predict_layers; mtp.h) are none.
absl::StatusOr<int64_t> DescribeSizes(KeyReader& keys, ModelSpec* spec,
                                      NormKind norm = NormKind::kRms);
// What the families below have in common: the sizes, heads, rope and norms under the names that all
// converters use, as the layers of a llama. A layer without KV heads is the family's to describe.
// Windows a family reads itself where it has them, experts with DescribeExperts.
absl::Status DescribeStandardBlocks(KeyReader& keys, ModelSpec* spec,
                                    NormKind norm = NormKind::kRms);

// The window, in tokens; 0 where there is none, or the context does not outgrow it.
absl::StatusOr<int64_t> ReadWindow(KeyReader& keys, int64_t context_length);
absl::Status RefuseWindow(KeyReader& keys, int64_t context_length);
// Whether each block has the window: as the file says, or all of `period` but the last, or the
// first. Files may say nothing of blocks that are no layers.
absl::StatusOr<std::vector<bool>> ReadWindowPattern(KeyReader& keys, const ModelSpec& spec,
                                                    int64_t period, bool full_first = false);
// The layers that have a window, where the file declares one, turn by a rope without scaling, of
// this base (0: of the others'), even if the context does not outgrow the window.
// REQUIRES: ropes[0] is as the layers without a window need it.
absl::Status DescribeWindows(KeyReader& keys, int64_t period, double base, ModelSpec* spec);
// ropes[1]: that of layers with a window, as the file says, without scaling; of `base` (0: the
// others') where it does not say.
absl::Status AddWindowRope(KeyReader& keys, double base, ModelSpec* spec);
// The rope of layers with a window that turn by a base of their own, where the file says one, and
// else as ropes[0], scaling and all: its place in `ropes`.
absl::StatusOr<int32_t> AddWindowBase(KeyReader& keys, ModelSpec* spec);
// Of models that have one base, whatever their files say: llama.cpp reads another for the windows,
// and makes no use of it.
void IgnoreWindowBase(KeyReader& keys);
// As ReadWindowPattern, and the file must say it.
absl::StatusOr<std::vector<bool>> NeedWindowPattern(KeyReader& keys, const ModelSpec& spec);
// Both, of layers that differ in nothing else.
absl::Status DescribeStatedWindows(KeyReader& keys, double base, ModelSpec* spec);
// Layers from `own` on read what earlier ones, with a window or without as they are, keep.
absl::Status ShareKeysAndValues(KeyReader& keys, const std::vector<bool>& windowed, int64_t own,
                                ModelSpec* spec);
// The rope has LongRoPE's factors, where the file has them. (Not every converter wrote the type.)
void UseLongRope(RopeSpec* rope);

// The pairs of a head that are for an image's time, height, width and nothing; empty where the file
// does not say.
absl::StatusOr<std::vector<int64_t>> ReadRopeSections(KeyReader& keys);
// Those for nothing stand still; the others are of the token's position in a text. `interleaved`:
// pair i is of section i mod 3 as long as that has some left.
void UseRopeSections(const std::vector<int64_t>& sections, bool interleaved, RopeSpec* rope);

// What the ssm.* keys say: heads in groups, and a state of state_dim x head_dim values for each.
struct RecurrentSizes {
  int64_t heads = 0;
  int64_t groups = 0;  // divides heads
  int64_t state_dim = 0;
  int64_t head_dim = 0;
  int64_t conv_width = 0;
};
absl::StatusOr<RecurrentSizes> ReadRecurrentSizes(KeyReader& keys);
absl::StatusOr<StateSpaceSpec> ReadStateSpace(KeyReader& keys);

// What a file need not say of its experts.
struct ExpertDefaults {
  RouterGate gate = RouterGate::kSoftmax;
  bool normalised = true;
  bool one_is_none = false;  // a file that has one expert has a feed-forward
  bool shared = false;       // there may be an expert that sees every row
  bool shared_gate = false;
  int64_t shared_count = 0;
  // Where the file does not say how wide experts are:
  bool share_width = false;   // those chosen are so wide as feed_forward_length together, not each
  bool shared_whole = false;  // the one that sees every row is so wide
};
// Gives the layers behind leading_dense_block_count experts in the place of their feed-forward,
// where the file has some.
absl::Status DescribeExperts(KeyReader& keys, const ExpertDefaults& defaults, ModelSpec* spec);

// What a file says of how far its feed-forwards go (FeedForwardSpec::limit).
absl::Status DescribeLimits(KeyReader& keys, ModelSpec* spec);

// Latent attention of heads of `key_dim` and `value_dim`.
absl::StatusOr<AttentionSpec> ReadLatent(KeyReader& keys, const ModelSpec& spec, int64_t key_dim,
                                         int64_t value_dim);

absl::Status DescribeAfmoe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeArcee(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeBailingMoe3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeArwkv7(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeBert(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeCohere2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeCommandR(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeDeepSeek(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeDeepSeek2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeDeepSeek4(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeDeci(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeDots1(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeHyV3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeErnie45(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeEuroBert(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeExaone(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeExaone4(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeExaoneMoe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeFalcon(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeFalconH1(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemma(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemma2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemma3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemma3n(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemma4(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGemmaEmbedding(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeChatGlm(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGlm4(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGlm4Moe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGpt2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGptNeoX(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGptOss(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGranite(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGraniteHybrid(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGraniteMoe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeGraniteSwa(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeHunyuan(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeJamba(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeKimiLinear(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLaguna(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLfm2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeJinaBert2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeJinaBert3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLlama(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLlama4(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMaincoder(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMamba(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMamba2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeLlamaEmbed(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMellum(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMimo2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMiniCpm(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMiniCpm3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMiniMaxM2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMistral3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeMuseGlimmer(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeModernBert(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeNemotron(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeNemotronH(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeNomicBert(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeNomicBertMoe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeOlmo(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeOlmo2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeOlmoe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeOrion(KeyReader& keys, ModelSpec* spec);
absl::Status DescribePhi2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribePhi3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribePlamo2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen2Vl(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen2Moe(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen3Vl(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen35(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeQwen3Next(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeRwkv6(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeRwkv6Qwen2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeRwkv7(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeSeedOss(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeSmolLm3(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeStableLm(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeStarCoder2(KeyReader& keys, ModelSpec* spec);
absl::Status DescribeStep35(KeyReader& keys, ModelSpec* spec);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_FAMILIES_H_

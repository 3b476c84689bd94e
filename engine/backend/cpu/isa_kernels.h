// The kernels as a table. A kernels_*.cc includes this last: after a simd_*.h, the vectors that
// they are written in, and a dot_groups*.h, the sums of products.
//
// Only simd and kernel headers may be included here and there: an inline function of any other
// header could be compiled with that file's instructions and then serve the whole program.
#ifndef LM_ENGINE_BACKEND_CPU_ISA_KERNELS_H_
#define LM_ENGINE_BACKEND_CPU_ISA_KERNELS_H_

#include "engine/backend/cpu/elementwise_kernel.h"
#include "engine/backend/cpu/float_product_kernel.h"
#include "engine/backend/cpu/int16_product_kernel.h"
#include "engine/backend/cpu/kernel_tables.h"
#include "engine/backend/cpu/quantized_product_kernel.h"
#include "engine/backend/cpu/unpack_kernel.h"

namespace lm {
namespace {

constexpr CpuKernels kIsaKernels = {
    .float_accumulators = kFloatAccumulators,
    .float_panels = kFloatPanels,
    .panels = kTilePanels,
    .pair_tokens = kPairTokens,
    .quantized_tokens = kQuantizedTokens,
    .half_scale_tokens = kHalfScaleTokens,
    .packed_tokens = kPackedTokens,
    .streams = kStreams,
    .stream_tokens = kStreamTokens,
    .most_packed = {kMostPacked, kMostPackedHalfScale},
    .float_product = MultiplyFloat,
    .quantized_product = MultiplyQuantized,
    .int16_product = MultiplyInt16,
    .unpack_codes = UnpackCodes,
    .unpack_scales = UnpackScales,
    .quantize_activations = QuantizeActivations,
    .rms_norm = RmsNormRow,
    .layer_norm = LayerNormRow,
    .gated_activation = GatedActivationRow,
    .conv = ConvRow,
    .delta_rule = DeltaRulePanel,
    .to_float = ToFloat,
    .float_to_half = FloatToHalfRow,
    .quantize_to_int8 = QuantizeToInt8Row,
    .quantize_to_int16 = QuantizeToInt16Row,
    .quantize_weights = QuantizeWeights,
    .softcap = Softcap,
    .softmax = Softmax,
    .scale_and_add = ScaleAndAdd,
    .add_scaled = AddScaled,
    .scale = Scale,
    .clamp = Clamp,
    .dot = Dot,
    .weighted_sum = WeightedSum,
    .multiply = Multiply,
    .divide = Divide,
};

}  // namespace
}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CPU_ISA_KERNELS_H_

// The REQUIRES of backend.h about shapes and types, checked once for all backends. Each returns
// InvalidArgument naming the op, the argument, what was wanted and what arrived.
#ifndef LM_ENGINE_BACKEND_CHECK_ARGUMENTS_H_
#define LM_ENGINE_BACKEND_CHECK_ARGUMENTS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/backend/backend.h"

namespace lm {

absl::Status CheckLoadMatrix(DType dtype, int64_t rows, int64_t cols);
absl::Status CheckEmbed(const StepIndex& step, const WeightMatrix& w, Tensor out);
absl::Status CheckNormalize(Tensor x, const Norm& norm, Tensor out);
absl::Status CheckMatMul(const WeightMatrix& w, Tensor x, Tensor bias, Tensor out);
absl::Status CheckMatMulColumns(const WeightMatrix& w, Tensor x, absl::Span<const uint64_t> wanted,
                                Tensor out);
absl::Status CheckProject(const WeightMatrix& w, const ProductInput& input, Tensor bias,
                          Tensor out);
absl::Status CheckRopeAndStoreKv(const StepIndex& step, Tensor q, Tensor k, Tensor v,
                                 const Rope& rope, const KvLayer& layer);
absl::Status CheckAttention(const StepIndex& step, Tensor q, const KvLayer& layer,
                            const AttentionOptions& options, Tensor out);
absl::Status CheckCausalConv(const StepIndex& step, Tensor x, Tensor weight, Tensor bias,
                             Activation activation, const StateLayer& layer, Tensor out);
absl::Status CheckDeltaRule(const StepIndex& step, const DeltaRuleInputs& inputs,
                            const StateLayer& layer, Tensor out);
absl::Status CheckScaleRows(Tensor x, Tensor factors);
absl::Status CheckDot(Tensor x, Tensor y, Tensor out);
absl::Status CheckMixStreams(Tensor x, Tensor weights, int32_t streams, Tensor out);
absl::Status CheckBalanceStreams(Tensor x, int32_t streams, int32_t iterations, Tensor out);
absl::Status CheckTurn(const StepIndex& step, Tensor x, int64_t head_dim, const Rope& rope);
absl::Status CheckPoolRows(const StepIndex& step, const PoolInputs& inputs, const StateLayer& layer,
                           Tensor out);
absl::Status CheckStoreRows(const StepIndex& step, Tensor x, const RowLayer& layer);
absl::Status CheckScoreRows(const StepIndex& step, Tensor q, Tensor weights, const RowLayer& layer,
                            Tensor out);
absl::Status CheckChooseRows(const StepIndex& step, Tensor scores, const RowLayer& layer,
                             Tensor chosen);
absl::Status CheckAttendRows(const StepIndex& step, Tensor q, const RowAttention& attention,
                             Tensor out);
absl::Status CheckRoute(Tensor logits, const Router& router);
absl::Status CheckGroupMatrices(absl::Span<const GroupedMatrix> members);
absl::Status CheckProjectExperts(absl::Span<const ExpertProduct> products,
                                 const ExpertRoutes& routes);
absl::Status CheckMoveWeights(const ExpertRoutes& routes, Tensor out);
absl::Status CheckGatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out);
absl::Status CheckCombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out);
// Two or three F32 matrices of one shape.
absl::Status CheckSameShape(absl::string_view op, Tensor a, Tensor b);
absl::Status CheckGatherRows(const StepIndex& step, Tensor x, int32_t list, Tensor out);

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_CHECK_ARGUMENTS_H_

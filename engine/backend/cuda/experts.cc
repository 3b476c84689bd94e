// Mixtures of experts: routed, grouped and multiplied on the device, so that a step waits for
// nothing.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/backend/check_arguments.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// What fits a thread block's shared memory (experts.cu).
constexpr int64_t kMostExperts = 2048;

// Slots of a group: about as many as an expert has on average, so that its weights are read once,
// and few places are empty.
int32_t GroupSlots(int64_t slots, int64_t experts) {
  if (slots <= cuda::kGroupSlots[0] * experts) return cuda::kGroupSlots[0];
  if (slots <= 24 * experts) return cuda::kGroupSlots[1];
  return cuda::kGroupSlots[2];
}

cuda::SlotTables ToTables(const ExpertRoutes& routes) {
  return {routes.num_rows,   routes.experts,     routes.chosen,  routes.begin,
          routes.rows,       routes.slots,       routes.weights, routes.groups,
          routes.num_groups, routes.group_slots, routes.places};
}

const float* DataOf(Tensor vector) { return vector.empty() ? nullptr : vector.row<float>(0); }

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixGroup>> CudaBackend::GroupMatrices(
    std::vector<GroupedMatrix> members) {
  RETURN_IF_ERROR(CheckGroupMatrices(members));
  std::vector<cuda::ExpertMatrix> table;
  for (const GroupedMatrix& member : members) {
    table.push_back({static_cast<const CudaMatrix*>(member.w)->data(),
                     DataOf(member.w->row_scales()), DataOf(member.bias)});
  }
  const size_t bytes = table.size() * sizeof(table[0]);
  ASSIGN_OR_RETURN(Buffer memory, device_->Allocate(bytes));
  RETURN_IF_ERROR(device_->Upload(table.data(), memory.data(), bytes));
  return std::make_unique<CudaMatrixGroup>(std::move(members), std::move(memory));
}

absl::Status CudaBackend::Route(Tensor logits, const Router& router, ExpertRoutes* routes) {
  RETURN_IF_ERROR(CheckRoute(logits, router));
  if (logits.cols > kMostExperts) {
    return absl::InvalidArgumentError(absl::StrCat("Route: there can be ", kMostExperts,
                                                   " experts on ", name(), ", got ", logits.cols));
  }
  RETURN_IF_ERROR(device_->Begin());
  const int64_t experts = logits.cols, slots = logits.rows * router.chosen;
  const int32_t size = GroupSlots(slots, experts);
  // Each expert that is seen has one group that is not full at most.
  const int64_t num_groups = (slots + (size - 1) * std::min(experts, slots)) / size;
  const size_t groups_at = ExpertRoutes::BytesFor(logits.rows, experts, router.chosen);
  const size_t places_at = groups_at + num_groups * sizeof(SlotGroup);
  // As many as of groups of any size: a step of fewer rows needs no more.
  const int64_t most_groups =
      std::max(num_groups, (slots + (cuda::kGroupSlots[0] - 1) * std::min(experts, slots)) /
                               cuda::kGroupSlots[0]);
  const size_t bytes = groups_at + most_groups * sizeof(SlotGroup) + slots * sizeof(int32_t);
  if (bytes > routes->memory.bytes()) {
    RETURN_IF_ERROR(device_->Synchronize());  // what was put into the queue may use it
    ASSIGN_OR_RETURN(routes->memory,
                     device_->Allocate(std::max(bytes, 2 * routes->memory.bytes())));
  }
  routes->Place(logits.rows, experts, router.chosen);
  routes->group_slots = size;
  routes->num_groups = num_groups;
  char* const base = routes->memory.chars().data();
  routes->groups = reinterpret_cast<SlotGroup*>(base + groups_at);
  routes->places = reinterpret_cast<int32_t*>(base + places_at);
  if (logits.rows == 0) return absl::OkStatus();
  cuda::RouterRule rule = {.gate = router.gate,
                           .experts = static_cast<int32_t>(experts),
                           .chosen = router.chosen,
                           .groups = router.groups,
                           .chosen_groups = router.chosen_groups,
                           .normalised = router.normalised,
                           .scale = router.scale,
                           .bias = DataOf(router.bias),
                           .scales = DataOf(router.scales),
                           .given = nullptr};
  if (!router.given.empty()) {
    const size_t given_bytes = router.given.size() * sizeof(int32_t);
    ASSIGN_OR_RETURN(void* given, given_experts_.Reserve(device_.get(), given_bytes));
    RETURN_IF_ERROR(device_->Upload(router.given.data(), given, given_bytes));
    rule.given = static_cast<const int32_t*>(given);
  }
  return device_->Check(cuda::Route(device_->queue(), ToMatrix(logits), rule, ToTables(*routes)),
                        "Route");
}

absl::Status CudaBackend::ProjectExperts(absl::Span<const ExpertProduct> products,
                                         const ExpertRoutes& routes, ProductResult result) {
  RETURN_IF_ERROR(CheckProjectExperts(products, routes));
  for (const ExpertProduct& product : products) {
    RETURN_IF_ERROR(MultiplyExperts(product, routes, result));
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::MultiplyExperts(const ExpertProduct& product, const ExpertRoutes& routes,
                                          ProductResult result) {
  RETURN_IF_ERROR(device_->Begin());
  if (routes.num_slots() == 0) return absl::OkStatus();
  const auto& group = static_cast<const CudaMatrixGroup&>(*product.group);
  const auto& first = static_cast<const CudaMatrix&>(*group.members()[0].w);
  const ProductInput& input = product.input;
  const cuda::Queue& queue = device_->queue();
  const cuda::ExpertProducts experts = {group.table(), routes.groups, routes.num_groups,
                                        routes.group_slots, routes.num_rows};
  const bool adds = result == ProductResult::kIsAdded;
  const Tensor out = product.out;
  if (first.dtype() == DType::kF32) {
    ASSIGN_OR_RETURN(const Tensor x, PlainInput(input));
    return device_->Check(cuda::MultiplyFloat(queue, first.weights(), ToMatrix(x), nullptr, adds,
                                              ToMatrix(out), &experts),
                          "ProjectExperts");
  }
  cuda::InputRows rows = ToInputRows(input);
  rows.places = routes.places;
  rows.num_places = routes.num_groups * routes.group_slots;
  return MultiplyPacked(first.dtype(), first.weights(), rows, /*bias=*/nullptr, adds, ToMatrix(out),
                        &experts, "ProjectExperts");
}

// What the input stands for, in plain_input_ where it is not that already.
absl::StatusOr<Tensor> CudaBackend::PlainInput(const ProductInput& input) {
  if (input.kind == ProductInput::Kind::kPlain) return input.x;
  const size_t bytes = input.rows() * input.cols() * sizeof(float);
  ASSIGN_OR_RETURN(void* memory, plain_input_.Reserve(device_.get(), bytes));
  const Tensor plain(memory, DType::kF32, input.rows(), input.cols());
  if (input.kind == ProductInput::Kind::kNormed) {
    RETURN_IF_ERROR(Normalize(input.x, input.norm, plain));
  } else if (input.kind == ProductInput::Kind::kActivated) {
    RETURN_IF_ERROR(GatedActivation(input.activation, input.x, {}, plain));
  } else {
    RETURN_IF_ERROR(GatedActivation(input.activation, input.x.Cols(0, plain.cols),
                                    input.x.Cols(plain.cols, plain.cols), plain));
  }
  return plain;
}

absl::Status CudaBackend::MoveWeights(ExpertRoutes* routes, Tensor out) {
  RETURN_IF_ERROR(CheckMoveWeights(*routes, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0) return absl::OkStatus();
  return device_->Check(cuda::MoveWeights(device_->queue(), ToTables(*routes), ToMatrix(out)),
                        "MoveWeights");
}

absl::Status CudaBackend::GatherSlots(Tensor x, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckGatherSlots(x, routes, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(cuda::GatherRows(device_->queue(), ToMatrix(x), routes.rows, ToMatrix(out)),
                        "GatherSlots");
}

absl::Status CudaBackend::CombineSlots(Tensor y, const ExpertRoutes& routes, Tensor out) {
  RETURN_IF_ERROR(CheckCombineSlots(y, routes, out));
  RETURN_IF_ERROR(device_->Begin());
  if (out.rows == 0 || out.cols == 0) return absl::OkStatus();
  return device_->Check(
      cuda::CombineSlots(device_->queue(), ToMatrix(y), ToTables(routes), ToMatrix(out)),
      "CombineSlots");
}

}  // namespace lm

// Which layers of a model run on which device.
//
//   "cuda:0"           all of them
//   "cuda:0,cuda:1"    as many on each, one after the other
//   "cuda:0=20,cpu"    the first 20 on the GPU, the others on the CPU
//   "cuda:0+cuda:1"    all of them on both, which compute each layer together
//   "auto"             on the first GPU that can be used, else (or where it is too small or lost) on
//                      the CPU
#ifndef LM_ENGINE_MODEL_DEVICE_PLAN_H_
#define LM_ENGINE_MODEL_DEVICE_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tensor/dtype.h"

namespace lm {

// The layers [first, end) on a device (as BackendOptions::device), of which there are some.
struct DeviceLayers {
  std::string device;
  int64_t first = 0;
  int64_t end = 0;
};

// In the order of the layers, all of them once. InvalidArgument, with the numbers, where the text
// is no such list, or does not come out at `layers` layers. Devices are not looked at, except by
// "auto".
absl::StatusOr<std::vector<DeviceLayers>> PlanDevices(absl::string_view devices, int64_t layers);

// Why no GPU of those that there are can be used: of the first; where none can be looked at, why
// that is. Empty where one can, or nothing is there of any.
std::string WhyNoGpu();

// The type of keys and values for such layers where `asked` is asked for: without that kI16 on
// CPUs, which multiply its integers faster than floats, and kF16 where a GPU has some of the
// layers. InvalidArgument for kI16 there.
absl::StatusOr<DType> KvTypeOn(absl::Span<const DeviceLayers> plan, std::optional<DType> asked);

// Whether a GPU has some of the layers.
bool HasGpu(absl::Span<const DeviceLayers> plan);

// Whether such a list can be had here, before there is a model: InvalidArgument for a name that is
// no device's, and for devices of several kinds that are to compute together; FailedPrecondition,
// saying why, for a GPU that is not there or cannot be used.
absl::Status CheckDevices(absl::string_view devices);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_DEVICE_PLAN_H_

// A CUDA runtime with two devices, both of them the host, in the place of cuda_api.cc: what is put
// into a queue has run when the call returns. That a copy from page-locked memory might not have,
// is not forgotten: who changes such memory before he has waited is found when he does. A copy to
// such memory is not there until then. And of a graph each device's kernels run in turns as soon,
// or as late, as its edges let them.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cuda_api.h"
#include "engine/base/digest.h"
#include "tests/engine/backend/cuda_on_host/device_memory.h"
#include "tests/engine/backend/cuda_on_host/run_grid.h"
#include "tests/engine/backend/cuda_on_host/runtime_counts.h"
#include "tests/engine/backend/cuda_on_host/simulation.h"

namespace lm {
namespace {

on_host::RuntimeCounts counts;

constexpr int kNever = std::numeric_limits<int>::max();
std::atomic<int> waits_left{kNever};  // below 0: the device is lost,
std::atomic<int> which_is_lost{-1};   // this one; -1: all

constexpr int kDevices = 2;
thread_local int current_device = -1;
int Current() { return current_device < 0 ? 0 : current_device; }

// A stream, of a device; whose it is.
char streams[kDevices];
// Its device, and the copy before which it was recorded.
struct HostEvent {
  int device;
  int64_t copy;
};
bool IsCurrents(cudaStream_t stream) {
  return reinterpret_cast<char*>(stream) == &streams[Current()];
}

constexpr int64_t kDeviceBytes = int64_t{16} << 30;
constexpr cudaError_t kOthers = cudaErrorInvalidResourceHandle;  // another device's
std::atomic<bool> runs_kernels{true};
std::atomic<bool> peers_can_read{true};
std::atomic<int64_t> device_bytes{kDeviceBytes};
std::atomic<int64_t> multiprocessor_bytes{0};

bool MayBeLost(int device) { return which_is_lost < 0 || which_is_lost == device; }
cudaError_t Lost(int device) {
  return waits_left < 0 && MayBeLost(device) ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t Lost() { return Lost(Current()); }

// A kernel with arguments of its own.
struct HostNode {
  int device = Current();
  std::vector<const HostNode*> before;
  bool has_run = false;
  cudaKernelNodeParams params;
  std::vector<std::vector<char>> arguments;
  bool begins_early = false;

  explicit HostNode(const cudaKernelNodeParams& from) { Set(from); }
  void Set(const cudaKernelNodeParams& from) {
    params = from;
    arguments.clear();
    const on_host::Kernel& kernel = on_host::KnownKernel(from.func);
    for (size_t i = 0; i < kernel.argument_bytes.size(); ++i) {
      const auto* bytes = static_cast<const char*>(from.kernelParams[i]);
      arguments.emplace_back(bytes, bytes + kernel.argument_bytes[i]);
    }
  }
};
struct HostGraph {
  std::vector<std::unique_ptr<HostNode>> nodes;
};

HostGraph* GraphOf(cudaGraph_t graph) { return reinterpret_cast<HostGraph*>(graph); }
HostGraph* GraphOf(cudaGraphExec_t exec) { return reinterpret_cast<HostGraph*>(exec); }

cudaError_t RunKernel(int device, const void* kernel, dim3 grid, dim3 block, void** arguments,
                      size_t shared_bytes, bool begins_early) {
  ++counts.kernels;
  return on_host::RunGrid(device, kernel, grid, block, shared_bytes, arguments, begins_early)
             ? cudaSuccess
             : cudaErrorLaunchFailure;
}

// Runs the graph's kernels. Of those that could run one device's go first, at the next launch the
// other one's: what has no edge between may come in either order.
cudaError_t RunGraph(HostGraph* graph) {
  static std::atomic<int> turn{0};
  const int first = turn++ % kDevices;
  for (const auto& node : graph->nodes) node->has_run = false;
  size_t left = graph->nodes.size();
  while (left > 0) {
    const size_t before = left;
    for (int i = 0; i < kDevices; ++i) {
      const int device = (first + i) % kDevices;
      for (const auto& node : graph->nodes) {
        if (node->has_run || node->device != device) continue;
        if (!std::all_of(node->before.begin(), node->before.end(),
                         [](const HostNode* other) { return other->has_run; })) {
          break;
        }
        void* pointers[64];
        for (size_t k = 0; k < node->arguments.size(); ++k) pointers[k] = node->arguments[k].data();
        const cudaKernelNodeParams& params = node->params;
        const cudaError_t error = RunKernel(device, params.func, params.gridDim, params.blockDim,
                                            pointers, params.sharedMemBytes, node->begins_early);
        if (error != cudaSuccess) return error;
        node->has_run = true;
        --left;
        counts.joins +=
            device == 0 && std::any_of(node->before.begin(), node->before.end(),
                                       [](const HostNode* other) { return other->device != 0; });
      }
      if (left < before) break;  // as far as it goes, before the other one's turn
    }
    if (left == before) return cudaErrorUnknown;  // its edges go in a circle
  }
  return cudaSuccess;
}

// Whether the device's side of a copy is inside of an allocation of its own.
bool IsCopyInside(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && !on_host::IsAllocated(Current(), from, bytes)) return false;
  return kind == cudaMemcpyDeviceToHost || on_host::IsAllocated(Current(), to, bytes);
}

// Page-locked memory, and the copies from it that nobody has waited for. Thread-safe.
class PinnedMemory {
 public:
  void Add(const void* data, size_t bytes) {
    std::lock_guard lock(mutex_);
    sizes_[static_cast<const char*>(data)] = bytes;
  }
  void Remove(const void* data) {
    std::lock_guard lock(mutex_);
    const auto found = sizes_.find(static_cast<const char*>(data));
    if (found == sizes_.end()) return;
    std::erase_if(copies_, [&](const Copy& copy) { return Has(*found, copy.from); });
    std::erase_if(downloads_, [&](const CopyToHost& copy) { return Has(*found, copy.to); });
    sizes_.erase(found);
  }
  void BeginCopy(const void* from, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto* data = static_cast<const char*>(from);
    if (!IsPinned(data)) return;
    copies_.push_back({data, bytes, DigestOf({data, bytes}), next_copy_++});
  }
  void BeginDownload(void* to, const void* from, size_t bytes) {
    std::lock_guard lock(mutex_);
    auto* const data = static_cast<char*>(to);
    if (!IsPinned(data)) {
      std::memcpy(to, from, bytes);
      return;
    }
    constexpr int kGarbage = 0x5a;
    std::memset(to, kGarbage, bytes);
    downloads_.push_back({data, {static_cast<const char*>(from), bytes}, next_copy_++});
  }
  // Those before copy number `until`.
  void EndCopies(int64_t until = std::numeric_limits<int64_t>::max()) {
    std::lock_guard lock(mutex_);
    std::erase_if(copies_, [until](const Copy& copy) {
      if (copy.number >= until) return false;
      if (DigestOf({copy.from, copy.bytes}) != copy.digest) {
        on_host::Report(on_host::FaultKind::kChangedHost, "a copy to the device",
                        std::to_string(copy.bytes) + " bytes of the host", nullptr);
      }
      return true;
    });
    std::erase_if(downloads_, [until](const CopyToHost& copy) {
      if (copy.number >= until) return false;
      std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
      return true;
    });
  }
  int64_t num_copies() {
    std::lock_guard lock(mutex_);
    return next_copy_;
  }

 private:
  struct Copy {
    const char* from;
    size_t bytes;
    Digest digest;
    int64_t number;
  };
  struct CopyToHost {
    char* to;
    std::string bytes;
    int64_t number;
  };
  bool IsPinned(const char* data) const {
    const auto behind = sizes_.upper_bound(data);
    return behind != sizes_.begin() && Has(*std::prev(behind), data);
  }
  static bool Has(const std::pair<const char* const, size_t>& memory, const char* data) {
    return data >= memory.first && data < memory.first + memory.second;
  }

  std::mutex mutex_;
  std::map<const char*, size_t> sizes_;
  std::vector<Copy> copies_;
  std::vector<CopyToHost> downloads_;
  int64_t next_copy_ = 0;
};
PinnedMemory& Pinned() {
  static PinnedMemory& pinned = *new PinnedMemory;
  return pinned;
}

constexpr CudaApi kHost = {
    .GetDeviceCount =
        [](int* count) {
          *count = kDevices;
          return cudaSuccess;
        },
    .GetDeviceProperties =
        [](cudaDeviceProp* properties, int) {
          std::strcpy(properties->name, "the host");
          properties->major = 9;
          properties->sharedMemPerMultiprocessor = static_cast<size_t>(multiprocessor_bytes);
          return cudaSuccess;
        },
    .GetDevice =
        [](int* device) {
          *device = current_device;
          return cudaSuccess;
        },
    .SetDevice =
        [](int device) {
          if (Lost(device) == cudaSuccess) current_device = device;
          return Lost(device);
        },
    .StreamCreateWithFlags =
        [](cudaStream_t* stream, unsigned) {
          if (Lost() == cudaSuccess) *stream = reinterpret_cast<cudaStream_t>(&streams[Current()]);
          return Lost();
        },
    .StreamDestroy = [](cudaStream_t) { return cudaSuccess; },
    .StreamSynchronize =
        [](cudaStream_t) {
          ++counts.synchronisations;
          Pinned().EndCopies();
          if (waits_left != kNever && MayBeLost(Current())) --waits_left;
          return Lost();
        },
    .StreamWaitEvent = [](cudaStream_t stream,
                          cudaEvent_t) { return IsCurrents(stream) ? Lost() : kOthers; },
    .EventCreate =
        [](cudaEvent_t* event) {
          if (Lost() != cudaSuccess) return Lost();
          *event = reinterpret_cast<cudaEvent_t>(new HostEvent{Current(), 0});
          return cudaSuccess;
        },
    .EventRecord =
        [](cudaEvent_t event, cudaStream_t stream) {
          auto* const recorded = reinterpret_cast<HostEvent*>(event);
          if (!IsCurrents(stream) || recorded->device != Current()) return kOthers;
          recorded->copy = Pinned().num_copies();
          return Lost();
        },
    .EventSynchronize =
        [](cudaEvent_t event) {
          ++counts.synchronisations;
          Pinned().EndCopies(reinterpret_cast<const HostEvent*>(event)->copy);
          if (waits_left != kNever && MayBeLost(Current())) --waits_left;
          return Lost();
        },
    .EventDestroy =
        [](cudaEvent_t event) {
          delete reinterpret_cast<HostEvent*>(event);
          return cudaSuccess;
        },
    .DeviceCanAccessPeer =
        [](int* can, int, int) {
          *can = peers_can_read ? 1 : 0;
          return Lost();
        },
    .DeviceEnablePeerAccess =
        [](int peer) {
          if (on_host::MayRead(Current(), peer)) return cudaErrorPeerAccessAlreadyEnabled;
          on_host::LetRead(Current(), peer);
          return Lost();
        },
    .Malloc =
        [](void** data, size_t bytes) {
          if (Lost() != cudaSuccess) return Lost();
          ++counts.allocations;
          const int64_t before = on_host::BytesAllocated(Current());
          const bool fits = before + static_cast<int64_t>(bytes) <= device_bytes;
          *data = fits ? on_host::AllocateOnDevice(Current(), bytes) : nullptr;
          return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
        },
    .Free =
        [](void* data) {
          on_host::FreeOnDevice(data);
          return cudaSuccess;
        },
    .MemGetInfo =
        [](size_t* free, size_t* total) {
          if (Lost() != cudaSuccess) return Lost();
          *free = static_cast<size_t>(device_bytes - on_host::BytesAllocated(Current()));
          *total = static_cast<size_t>(device_bytes);
          return cudaSuccess;
        },
    .MemcpyAsync =
        [](void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
          if (Lost() != cudaSuccess) return Lost();
          if (!IsCurrents(stream)) return kOthers;
          if (!IsCopyInside(to, from, bytes, kind)) return cudaErrorInvalidValue;
          ++counts.copies;
          if (kind == cudaMemcpyHostToDevice) counts.bytes_to_device += bytes;
          if (kind == cudaMemcpyDeviceToHost) counts.bytes_to_host += bytes;
          if (kind == cudaMemcpyDeviceToHost) {
            Pinned().BeginDownload(to, from, bytes);
            return cudaSuccess;
          }
          std::memcpy(to, from, bytes);
          if (kind == cudaMemcpyHostToDevice) Pinned().BeginCopy(from, bytes);
          return cudaSuccess;
        },
    .MemsetAsync =
        [](void* data, int value, size_t bytes, cudaStream_t) {
          if (!on_host::IsAllocated(Current(), data, bytes)) return cudaErrorInvalidValue;
          std::memset(data, value, bytes);
          return cudaSuccess;
        },
    .LaunchKernel =
        [](const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
           cudaStream_t stream) {
          if (Lost() != cudaSuccess) return Lost();
          if (!IsCurrents(stream)) return kOthers;
          ++counts.launches;
          return RunKernel(Current(), kernel, grid, block, arguments, shared_bytes,
                           /*begins_early=*/false);
        },
    .FuncGetAttributes =
        [](cudaFuncAttributes* attributes, const void*) {
          attributes->ptxVersion = 90;
          return runs_kernels ? Lost() : cudaErrorNoKernelImageForDevice;
        },
    .FuncSetAttribute =
        [](const void* kernel, cudaFuncAttribute attribute, int value) {
          if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
            on_host::AllowSharedBytes(kernel, value);
          }
          return cudaSuccess;
        },
    .GraphCreate =
        [](cudaGraph_t* graph) {
          *graph = reinterpret_cast<cudaGraph_t>(new HostGraph);
          return cudaSuccess;
        },
    .GraphAddKernelNode =
        [](cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, size_t count,
           const cudaKernelNodeParams* params) {
          auto& nodes = GraphOf(graph)->nodes;
          nodes.push_back(std::make_unique<HostNode>(*params));
          for (size_t i = 0; i < count; ++i) {
            nodes.back()->before.push_back(reinterpret_cast<const HostNode*>(before[i]));
          }
          *node = reinterpret_cast<cudaGraphNode_t>(nodes.back().get());
          return cudaSuccess;
        },
    .GraphAddProgrammaticEdge =
        [](cudaGraph_t, cudaGraphNode_t from, cudaGraphNode_t to) {
          auto* const node = reinterpret_cast<HostNode*>(to);
          const auto* const other = reinterpret_cast<const HostNode*>(from);
          if (node->device != other->device) return cudaErrorInvalidValue;
          node->before.push_back(other);
          node->begins_early = true;
          return cudaSuccess;
        },
    .GraphInstantiate =
        [](cudaGraphExec_t* exec, cudaGraph_t graph) {
          *exec = reinterpret_cast<cudaGraphExec_t>(graph);
          return cudaSuccess;
        },
    .GraphExecKernelNodeSetParams =
        [](cudaGraphExec_t, cudaGraphNode_t node, const cudaKernelNodeParams* params) {
          if (reinterpret_cast<HostNode*>(node)->device != Current()) return kOthers;
          reinterpret_cast<HostNode*>(node)->Set(*params);
          return cudaSuccess;
        },
    .GraphLaunch =
        [](cudaGraphExec_t exec, cudaStream_t stream) {
          if (Lost() != cudaSuccess) return Lost();
          if (!IsCurrents(stream)) return kOthers;
          ++counts.graph_launches;
          return RunGraph(GraphOf(exec));
        },
    .GraphExecDestroy = [](cudaGraphExec_t) { return cudaSuccess; },  // it is the graph
    .GraphDestroy =
        [](cudaGraph_t graph) {
          delete GraphOf(graph);
          return cudaSuccess;
        },
    .MallocHost =
        [](void** data, size_t bytes) {
          *data = std::malloc(bytes);
          Pinned().Add(*data, bytes);
          return cudaSuccess;
        },
    .FreeHost =
        [](void* data) {
          Pinned().Remove(data);
          std::free(data);
          return cudaSuccess;
        },
    .GetLastError = [] { return cudaSuccess; },
};

std::atomic<int64_t> calls{0};
std::atomic<int64_t> first_failure{0}, last_failure{0};  // 0: none
std::atomic<cudaError_t> failure{cudaErrorUnknown};

// A call as kHost has it, unless it is its turn to fail. What is given back is given back in any
// case.
template <auto kCall, bool kGivesBack>
struct Counted;
template <typename... Arguments, cudaError_t (*CudaApi::*kCall)(Arguments...), bool kGivesBack>
struct Counted<kCall, kGivesBack> {
  static cudaError_t Call(Arguments... arguments) {
    const int64_t number = ++calls;
    const bool fails = number >= first_failure && number <= last_failure;
    if (fails && !kGivesBack) return failure;
    const cudaError_t error = (kHost.*kCall)(arguments...);
    return fails ? failure.load() : error;
  }
};

constexpr CudaApi CountedCalls() {
  CudaApi api = kHost;
#define LM_COUNT(name) api.name = Counted<&CudaApi::name, false>::Call
#define LM_COUNT_RETURN(name) api.name = Counted<&CudaApi::name, true>::Call
  LM_COUNT(GetDeviceCount);
  LM_COUNT(GetDeviceProperties);
  LM_COUNT(GetDevice);
  LM_COUNT(SetDevice);
  LM_COUNT(StreamCreateWithFlags);
  LM_COUNT(StreamSynchronize);
  LM_COUNT(StreamWaitEvent);
  LM_COUNT(EventCreate);
  LM_COUNT(EventRecord);
  LM_COUNT(EventSynchronize);
  LM_COUNT(DeviceCanAccessPeer);
  LM_COUNT(DeviceEnablePeerAccess);
  LM_COUNT(Malloc);
  LM_COUNT(MemGetInfo);
  LM_COUNT(MemcpyAsync);
  LM_COUNT(MemsetAsync);
  LM_COUNT(LaunchKernel);
  LM_COUNT(FuncGetAttributes);
  LM_COUNT(FuncSetAttribute);
  LM_COUNT(GraphCreate);
  LM_COUNT(GraphAddKernelNode);
  LM_COUNT(GraphInstantiate);
  LM_COUNT(GraphAddProgrammaticEdge);
  LM_COUNT(GraphExecKernelNodeSetParams);
  LM_COUNT(GraphLaunch);
  LM_COUNT(MallocHost);
  LM_COUNT_RETURN(StreamDestroy);
  LM_COUNT_RETURN(EventDestroy);
  LM_COUNT_RETURN(Free);
  LM_COUNT_RETURN(GraphExecDestroy);
  LM_COUNT_RETURN(GraphDestroy);
  LM_COUNT_RETURN(FreeHost);
#undef LM_COUNT
#undef LM_COUNT_RETURN
  return api;
}

}  // namespace

on_host::RuntimeCounts on_host::TakeRuntimeCounts() { return std::exchange(counts, {}); }
void on_host::LoseDeviceAfter(int synchronisations, int device) {
  which_is_lost = device;
  waits_left = synchronisations;
}
void on_host::SetMultiprocessorBytes(int64_t bytes) { multiprocessor_bytes = bytes; }
void on_host::SetDeviceBytes(int64_t bytes) { device_bytes = bytes > 0 ? bytes : kDeviceBytes; }
void on_host::SetRunsKernels(bool runs) { runs_kernels = runs; }
void on_host::SetPeersCanRead(bool can) { peers_can_read = can; }
void on_host::BringDeviceBack() {
  waits_left = kNever;
  first_failure = last_failure = 0;
}
void on_host::FailCalls(int64_t first, int64_t last, cudaError_t error) {
  calls = 0;
  failure = error;
  first_failure = first;
  last_failure = last;
}
int64_t on_host::CallsSeen() { return calls; }

const CudaApi& RuntimeApi() {
  static constexpr CudaApi kApi = CountedCalls();
  return kApi;
}

}  // namespace lm

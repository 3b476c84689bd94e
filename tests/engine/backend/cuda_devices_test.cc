// Several GPUs of one process, and threads whose current device is another one: a CUDA runtime made
// of host memory that says no to what is done with one GPU's things while another one is current.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cuda_collectives.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/tensor_parallel/tensor_parallel_backend.h"

namespace lm {
namespace {

constexpr int kDevices = 3;

thread_local int current = -1;

// Whose what is.
struct Devices {
  std::mutex mutex;
  std::map<const void*, int> owners;
  int wrong = 0;                           // calls with another device current
  std::set<int> begun;                     // devices that were ever chosen
  std::set<std::pair<int, int>> readers;   // who reads whose memory
  std::vector<std::pair<int, int>> waits;  // whose stream waits for whose event

  void NoteWait(const void* stream, const void* event) {
    const std::lock_guard<std::mutex> lock(mutex);
    waits.emplace_back(owners[stream], owners[event]);
  }
  void Own(const void* thing) {
    const std::lock_guard<std::mutex> lock(mutex);
    owners[thing] = std::max(current, 0);
  }
  cudaError_t Use(const void* thing) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto owner = owners.find(thing);
    const bool right = owner != owners.end() && owner->second == std::max(current, 0);
    wrong += !right;
    return right ? cudaSuccess : cudaErrorInvalidResourceHandle;
  }
  // A graph has nodes of several devices.
  cudaError_t UseForNode(const void* graph) {
    const std::lock_guard<std::mutex> lock(mutex);
    wrong += owners.count(graph) == 0;
    return owners.count(graph) > 0 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  }
  void Forget(const void* thing) {
    const std::lock_guard<std::mutex> lock(mutex);
    owners.erase(thing);
  }
};
Devices devices;

template <typename T>
cudaError_t Make(T* thing, size_t bytes = 1) {
  *thing = static_cast<T>(std::malloc(bytes));
  devices.Own(*thing);
  return cudaSuccess;
}
cudaError_t Drop(void* thing) {
  const cudaError_t error = devices.Use(thing);
  devices.Forget(thing);
  std::free(thing);
  return error;
}

constexpr CudaApi kDevicesApi = {
    .GetDeviceCount =
        [](int* count) {
          *count = kDevices;
          return cudaSuccess;
        },
    .GetDeviceProperties =
        [](cudaDeviceProp* properties, int) {
          std::strcpy(properties->name, "one of several");
          properties->major = 9;
          return cudaSuccess;
        },
    .GetDevice =
        [](int* device) {
          *device = current;
          return cudaSuccess;
        },
    .SetDevice =
        [](int device) {
          const std::lock_guard<std::mutex> lock(devices.mutex);
          devices.begun.insert(device);
          current = device;
          return cudaSuccess;
        },
    .StreamCreateWithFlags = [](cudaStream_t* stream, unsigned) { return Make(stream); },
    .StreamDestroy = [](cudaStream_t stream) { return Drop(stream); },
    .StreamSynchronize = [](cudaStream_t stream) { return devices.Use(stream); },
    .StreamWaitEvent =
        [](cudaStream_t stream, cudaEvent_t event) {
          devices.NoteWait(stream, event);
          return devices.Use(stream);
        },
    .EventCreate = [](cudaEvent_t* event) { return Make(event); },
    .EventRecord =
        [](cudaEvent_t event, cudaStream_t stream) {
          const cudaError_t error = devices.Use(event);
          return error == cudaSuccess ? devices.Use(stream) : error;
        },
    .EventSynchronize = [](cudaEvent_t event) { return devices.Use(event); },
    .EventDestroy = [](cudaEvent_t event) { return Drop(event); },
    .DeviceCanAccessPeer =
        [](int* can, int device, int peer) {
          *can = device != peer;
          return cudaSuccess;
        },
    .DeviceEnablePeerAccess =
        [](int peer) {
          const std::lock_guard<std::mutex> lock(devices.mutex);
          const bool is_new = devices.readers.insert({current, peer}).second;
          return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
        },
    .Malloc = [](void** data, size_t bytes) { return Make(data, bytes); },
    .Free = [](void* data) { return Drop(data); },
    .MemGetInfo =
        [](size_t* free, size_t* total) {
          *free = static_cast<size_t>(1000 * (current + 1));
          *total = 10000;
          return cudaSuccess;
        },
    .MemcpyAsync =
        [](void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
          std::memcpy(to, from, bytes);
          return devices.Use(stream);
        },
    .MemsetAsync =
        [](void* data, int value, size_t bytes, cudaStream_t stream) {
          std::memset(data, value, bytes);
          return devices.Use(stream);
        },
    .LaunchKernel = [](const void*, dim3, dim3, void**, size_t,
                       cudaStream_t stream) { return devices.Use(stream); },
    .FuncGetAttributes =
        [](cudaFuncAttributes* attributes, const void*) {
          attributes->ptxVersion = 90;
          return cudaSuccess;
        },
    .FuncSetAttribute = [](const void*, cudaFuncAttribute, int) { return cudaSuccess; },
    .GraphCreate = [](cudaGraph_t* graph) { return Make(graph); },
    .GraphAddKernelNode = [](cudaGraphNode_t*, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                             const cudaKernelNodeParams*) { return devices.UseForNode(graph); },
    .GraphAddProgrammaticEdge = [](cudaGraph_t graph, cudaGraphNode_t,
                                   cudaGraphNode_t) { return devices.UseForNode(graph); },
    .GraphInstantiate = [](cudaGraphExec_t* exec, cudaGraph_t) { return Make(exec); },
    .GraphExecKernelNodeSetParams =
        [](cudaGraphExec_t exec, cudaGraphNode_t, const cudaKernelNodeParams*) {
          return devices.UseForNode(exec);
        },
    .GraphLaunch = [](cudaGraphExec_t exec, cudaStream_t) { return devices.Use(exec); },
    .GraphExecDestroy = [](cudaGraphExec_t exec) { return Drop(exec); },
    .GraphDestroy = [](cudaGraph_t graph) { return Drop(graph); },
    .MallocHost = [](void** data, size_t bytes) { return Make(data, bytes); },
    .FreeHost = [](void* data) { return Drop(data); },
    .GetLastError = [] { return cudaSuccess; },
};

// Memory, copies, kernels one by one and as a graph.
void Work(Backend* backend) {
  constexpr int64_t kRows = 3, kCols = 64;
  Buffer memory = backend->Allocate(2 * kRows * kCols * sizeof(float)).value();
  const Tensor x(memory.data(), DType::kF32, kRows, kCols);
  const Tensor y(x.row<float>(0) + kRows * kCols, DType::kF32, kRows, kCols);
  std::vector<float> values(kRows * kCols, 2.0f);
  const size_t bytes = values.size() * sizeof(float);
  for (int round = 0; round < 4; ++round) {
    EXPECT_TRUE(backend->Upload(values.data(), x.data, bytes).ok());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(backend->Add(x, y, 1).ok());
    EXPECT_TRUE(backend->Synchronize().ok());
    EXPECT_TRUE(backend->Add(x, y, 1).ok());
    EXPECT_TRUE(backend->Copy(x.data, y.data, bytes).ok());
    EXPECT_TRUE(backend->Zero(y.data, bytes).ok());
    EXPECT_TRUE(backend->Download(x.data, values.data(), bytes).ok());
  }
  EXPECT_TRUE(backend->Add(x, y, 1).ok());  // waits when the memory is freed
}

class CudaDevicesTest : public testing::Test {
 protected:
  CudaDevicesTest() { Reset(); }
  ~CudaDevicesTest() override { Reset(); }
  static void Reset() {
    current = -1;
    devices.owners.clear();
    devices.begun.clear();
    devices.readers.clear();
    devices.waits.clear();
    devices.wrong = 0;
  }
};

TEST_F(CudaDevicesTest, AThreadKeepsTheDeviceThatItHad) {
  {
    auto backend = CudaBackend::Create(kDevicesApi, 1).value();
    Buffer memory = backend->Allocate(100).value();
    for (const int other : {0, 2, 1}) {
      current = other;
      Work(backend.get());
      EXPECT_EQ(current, other);
      EXPECT_EQ(backend->FreeBytes().value(), 2000);
      EXPECT_EQ(current, other);
    }
    current = 2;
    memory = Buffer();
    EXPECT_EQ(current, 2);
    // Memory that outlives its backend.
    memory = backend->Allocate(100).value();
    backend.reset();
    EXPECT_EQ(current, 2);
  }
  EXPECT_EQ(current, 2);
  EXPECT_EQ(devices.wrong, 0);
  EXPECT_TRUE(devices.owners.empty());
}

// To choose a device, back again too, begins work with it: that takes memory of it.
TEST_F(CudaDevicesTest, OtherDevicesAreLeftAlone) {
  {
    auto backend = CudaBackend::Create(kDevicesApi, 2).value();
    Work(backend.get());
  }
  EXPECT_EQ(devices.begun, std::set<int>{2});
}

// Each of them uses its own things, reads the other's memory, and waits for it.
TEST_F(CudaDevicesTest, DevicesThatComputeTogetherWaitForEachOther) {
  current = 1;
  {
    CudaGroup group = CreateCudaGroup(kDevicesApi, {0, 2}).value();
    EXPECT_EQ(devices.readers, (std::set<std::pair<int, int>>{{0, 2}, {2, 0}}));
    const std::unique_ptr<Backend> backend = std::make_unique<TensorParallelBackend>(
        std::move(group.members), std::move(group.collectives), /*least_split_bytes=*/0);
    Work(backend.get());
    constexpr int64_t kRows = 128, kCols = 64;
    const Buffer blocks = Buffer::AllocateHost(kRows * kCols * sizeof(float)).value();
    const auto w = backend->LoadMatrix(DType::kF32, kRows, kCols, blocks).value();
    Buffer memory = backend->Allocate((kRows + kCols) * sizeof(float)).value();
    const Tensor x(memory.data(), DType::kF32, 1, kCols);
    const Tensor out(x.row<float>(0) + kCols, DType::kF32, 1, kRows);
    for (int time = 0; time < 4; ++time) {
      devices.waits.clear();
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(backend->MatMul(*w, x, {}, out).ok());
      EXPECT_TRUE(backend->Synchronize().ok());
      // Each product waits for the others' parts, and for them to have read its own before it is
      // made anew: one by one, which is another list the second time, and then as a graph.
      const size_t meetings = time == 0 ? 2 * 4 : time == 1 ? 2 * 4 + 1 : 1;
      ASSERT_EQ(devices.waits.size(), 2 * meetings);
      for (size_t i = 0; i < meetings; ++i) {
        EXPECT_EQ(devices.waits[2 * i], std::pair(0, 2));
        EXPECT_EQ(devices.waits[2 * i + 1], std::pair(2, 0));
      }
    }
    memory = Buffer();
    EXPECT_EQ(current, 1);
  }
  EXPECT_EQ(current, 1);
  EXPECT_EQ(devices.wrong, 0);
  EXPECT_TRUE(devices.owners.empty());
}

TEST_F(CudaDevicesTest, EachOfManyThreadsUsesAllDevices) {
  {
    std::vector<std::unique_ptr<Backend>> backends;
    std::mutex locks[kDevices];
    for (int i = 0; i < kDevices; ++i) {
      backends.push_back(CudaBackend::Create(kDevicesApi, i).value());
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        current = t % (kDevices + 1) - 1;
        for (int i = 0; i < 30; ++i) {
          const int device = (t + i) % kDevices;
          const std::lock_guard<std::mutex> lock(locks[device]);  // one thread at a time
          Work(backends[device].get());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Given back by a thread that has worked with none of them.
    std::thread([&backends] { backends.clear(); }).join();
  }
  EXPECT_EQ(devices.wrong, 0);
  EXPECT_TRUE(devices.owners.empty());
}

}  // namespace
}  // namespace lm

// A CUDA runtime made of host memory, whose n-th call fails: every failure must come out as a
// Status, give back what it took, and leave the backend either usable or lost. Kernels are not run;
// only how they are launched is looked at.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "engine/backend/cuda/cuda_collectives.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/cuda/device_list.h"
#include "engine/backend/cuda/placed_step.h"
#include "engine/backend/tensor_parallel/tensor_parallel_backend.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

using ::testing::HasSubstr;

struct FakeCuda {
  int calls = 0;
  int fail_at = 0;  // 0: never
  cudaError_t error = cudaSuccess;
  bool sticky = false;
  int devices = 1;
  int current = -1;
  int compute_major = 9, second_major = 0;  // of the second device, where it is another
  int ptx_version = 90;
  int launches = 0;
  int allocations = 0;
  int graph_launches = 0;
  int edges = 0;  // of kernels that may begin early
  int waits = 0;  // of a stream for another one
  bool peers_can_read = true;
  cudaError_t fail_edges = cudaSuccess;
  std::map<void*, int> nodes = {};  // of a graph
  std::set<void*> memory = {};

  cudaError_t Call() {
    ++calls;
    bool fails = fail_at != 0 && (calls == fail_at || (sticky && calls > fail_at));
    return fails ? error : cudaSuccess;
  }
};

FakeCuda fake;

// `function`, unless it is this call's turn to fail.
template <typename Function>
cudaError_t Unless(Function function) {
  cudaError_t error = fake.Call();
  if (error == cudaSuccess) function();
  return error;
}

template <typename T>
T Handle() {
  const T handle = static_cast<T>(std::malloc(1));
  fake.memory.insert(handle);
  return handle;
}

cudaError_t Release(void* memory) {
  EXPECT_EQ(fake.memory.erase(memory), 1u);
  fake.nodes.erase(memory);
  std::free(memory);
  return cudaSuccess;
}

constexpr CudaApi kFakeApi = {
    .GetDeviceCount = [](int* count) { return Unless([&] { *count = fake.devices; }); },
    .GetDeviceProperties =
        [](cudaDeviceProp* properties, int device) {
          return Unless([&] {
            std::strcpy(properties->name, "Fake GPU");
            properties->totalGlobalMem = 1000;
            const bool other = device == 1 && fake.second_major > 0;
            properties->major = other ? fake.second_major : fake.compute_major;
          });
        },
    .GetDevice =
        [](int* device) {
          *device = fake.current;
          return cudaSuccess;
        },
    .SetDevice = [](int device) { return Unless([device] { fake.current = device; }); },
    .StreamCreateWithFlags =
        [](cudaStream_t* stream, unsigned) {
          return Unless([&] {
            *stream = static_cast<cudaStream_t>(std::malloc(1));
            fake.memory.insert(*stream);
          });
        },
    .StreamDestroy =
        [](cudaStream_t stream) {
          EXPECT_EQ(fake.memory.erase(stream), 1u);
          std::free(stream);
          return cudaSuccess;
        },
    .StreamSynchronize = [](cudaStream_t) { return fake.Call(); },
    .StreamWaitEvent = [](cudaStream_t, cudaEvent_t) { return Unless([] { ++fake.waits; }); },
    .EventCreate =
        [](cudaEvent_t* event) { return Unless([&] { *event = Handle<cudaEvent_t>(); }); },
    .EventRecord = [](cudaEvent_t, cudaStream_t) { return fake.Call(); },
    .EventSynchronize = [](cudaEvent_t) { return fake.Call(); },
    .EventDestroy = [](cudaEvent_t event) { return Release(event); },
    .DeviceCanAccessPeer = [](int* can, int,
                              int) { return Unless([can] { *can = fake.peers_can_read; }); },
    .DeviceEnablePeerAccess = [](int) { return fake.Call(); },
    .Malloc =
        [](void** data, size_t bytes) {
          return Unless([&] {
            ++fake.allocations;
            *data = std::malloc(bytes);
            fake.memory.insert(*data);
          });
        },
    .Free =
        [](void* data) {
          EXPECT_EQ(fake.memory.erase(data), 1u);
          std::free(data);
          return cudaSuccess;
        },
    .MemGetInfo =
        [](size_t* free, size_t* total) {
          return Unless([&] {
            *free = 7;
            *total = 1000;
          });
        },
    .MemcpyAsync = [](void* to, const void* from, size_t bytes, cudaMemcpyKind,
                      cudaStream_t) { return Unless([&] { std::memcpy(to, from, bytes); }); },
    .MemsetAsync = [](void* data, int value, size_t bytes,
                      cudaStream_t) { return Unless([&] { std::memset(data, value, bytes); }); },
    .LaunchKernel =
        [](const void*, dim3 grid, dim3 block, void**, size_t shared_bytes, cudaStream_t) {
          EXPECT_TRUE(grid.x >= 1 && grid.x <= 2147483647u && grid.y >= 1 && grid.y <= 65535u);
          EXPECT_TRUE(block.x >= 32 && block.x <= 1024);
          EXPECT_LE(shared_bytes, 99u << 10);  // what every GPU has that is supported
          return Unless([&] { ++fake.launches; });
        },
    .FuncGetAttributes =
        [](cudaFuncAttributes* attributes, const void*) {
          return Unless([&] { attributes->ptxVersion = fake.ptx_version; });
        },
    .FuncSetAttribute = [](const void*, cudaFuncAttribute, int) { return fake.Call(); },
    .GraphCreate =
        [](cudaGraph_t* graph) { return Unless([&] { *graph = Handle<cudaGraph_t>(); }); },
    .GraphAddKernelNode =
        [](cudaGraphNode_t*, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
           const cudaKernelNodeParams*) { return Unless([&] { ++fake.nodes[graph]; }); },
    .GraphAddProgrammaticEdge =
        [](cudaGraph_t, cudaGraphNode_t, cudaGraphNode_t) {
          if (fake.fail_edges != cudaSuccess) return fake.fail_edges;
          return Unless([] { ++fake.edges; });
        },
    .GraphInstantiate =
        [](cudaGraphExec_t* exec, cudaGraph_t graph) {
          return Unless([&] {
            *exec = Handle<cudaGraphExec_t>();
            fake.nodes[*exec] = fake.nodes[graph];
          });
        },
    .GraphExecKernelNodeSetParams = [](cudaGraphExec_t, cudaGraphNode_t,
                                       const cudaKernelNodeParams*) { return fake.Call(); },
    .GraphLaunch =
        [](cudaGraphExec_t exec, cudaStream_t) {
          return Unless([&] {
            ++fake.graph_launches;
            fake.launches += fake.nodes[exec];
          });
        },
    .GraphExecDestroy = [](cudaGraphExec_t exec) { return Release(exec); },
    .GraphDestroy = [](cudaGraph_t graph) { return Release(graph); },
    .MallocHost =
        [](void** data, size_t bytes) {
          return Unless([&] {
            *data = std::malloc(bytes);
            fake.memory.insert(*data);
          });
        },
    .FreeHost = [](void* data) { return Release(data); },
    .GetLastError = [] { return cudaSuccess; },
};

// A step of one sequence, with two classes of the cache and two ropes.
StepTables StepOf(int32_t tokens) {
  StepTables step;
  step.blocks = {{2, 1}, {0, 2}};
  step.blocks[0].resize(BlocksFor(20 + tokens));
  step.blocks[1].resize(BlocksFor(20 + tokens));
  step.Append(std::vector<int32_t>(tokens, 3).data(), tokens, /*first_position=*/20, /*state=*/1);
  for (int32_t dim : {64, 32}) step.ropes.push_back({dim, std::vector<float>(tokens * dim)});
  step.row_lists = {std::vector<int32_t>(tokens, 0), {}};
  return step;
}

// Every function of the interface once, over a batch of `tokens`, with matrices that two devices
// share.
absl::Status RunEveryOp(Backend* backend, int32_t tokens) {
  constexpr int64_t kCols = 256, kVocabulary = 130;
  ASSIGN_OR_RETURN(Buffer memory, backend->Allocate(8 * (tokens + 1) * kCols * sizeof(float)));
  auto matrix = [&](int64_t i) {
    return Tensor(static_cast<float*>(memory.data()) + i * (tokens + 1) * kCols, DType::kF32,
                  tokens, kCols);
  };
  const Tensor vector(memory.data(), DType::kF32, 1, kCols);
  const StepTables step = StepOf(tokens);
  RETURN_IF_ERROR(backend->BeginStep(&step));
  KvLayer layer{.num_blocks = 3, .kv_heads = 4, .key_dim = 64, .value_dim = 64, .cache_class = 1};
  layer.block_stride = 2 * layer.keys_bytes();
  ASSIGN_OR_RETURN(Buffer kv, backend->Allocate(3 * layer.block_stride));
  layer.keys = kv.data();
  layer.values = kv.chars().data() + layer.keys_bytes();
  for (DType dtype : {DType::kQ4_K, DType::kF16}) {
    ASSIGN_OR_RETURN(Buffer blocks, Buffer::AllocateHost(kVocabulary * RowBytes(dtype, kCols)));
    ASSIGN_OR_RETURN(auto w, backend->LoadMatrix(dtype, kVocabulary, kCols, std::move(blocks)));
    RETURN_IF_ERROR(backend->Embed(*w, 1, matrix(0)));
    RETURN_IF_ERROR(backend->MatMul(*w, matrix(0), vector.Cols(0, kVocabulary),
                                    matrix(1).Cols(0, kVocabulary)));
  }
  float weight = 1;
  RETURN_IF_ERROR(backend->Upload(&weight, memory.data(), sizeof(weight)));
  RETURN_IF_ERROR(backend->RmsNorm(matrix(0), vector, 1e-5f, matrix(1)));
  RETURN_IF_ERROR(backend->RopeAndStoreKv(matrix(1), matrix(2), matrix(3),
                                          {.table = 1, .pairing = RopePairing::kHalves}, layer));
  RETURN_IF_ERROR(backend->Attention(matrix(1), layer,
                                     {.window = {.size = 8},
                                      .softcap = 30,
                                      .slopes = vector.Cols(4, 4),
                                      .sinks = vector.Cols(0, 4)},
                                     matrix(5)));
  ASSIGN_OR_RETURN(Buffer state, backend->Allocate(2 * 64 * kCols * sizeof(float)));
  const StateLayer states = {static_cast<float*>(state.data()), 64 * kCols, 2};
  const Tensor conv(memory.data(), DType::kF32, 4, kCols);
  RETURN_IF_ERROR(
      backend->CausalConv(matrix(1), conv, vector, Activation::kSilu, states, matrix(5)));
  RETURN_IF_ERROR(backend->DeltaRule({.q = matrix(1).Cols(0, 128),
                                      .k = matrix(1).Cols(128, 128),
                                      .v = matrix(2),
                                      .alpha = matrix(3).Cols(0, 4),
                                      .beta = matrix(3).Cols(4, 4),
                                      .dt_bias = vector.Cols(0, 4),
                                      .a = vector.Cols(4, 4),
                                      .heads = 4,
                                      .key_heads = 2},
                                     states, matrix(5)));
  RETURN_IF_ERROR(backend->GatedActivation(Activation::kGeluTanh, matrix(5), matrix(6), matrix(7)));
  RETURN_IF_ERROR(backend->Add(matrix(0), matrix(7), 1));
  RETURN_IF_ERROR(backend->ScaleAndCap(matrix(7), 2, 3));
  RETURN_IF_ERROR(backend->Clamp(matrix(7), -1, 1));
  RETURN_IF_ERROR(backend->ScaleGroups(matrix(7), matrix(0).Cols(0, 1), Activation::kSigmoid));
  RETURN_IF_ERROR(backend->Dot(matrix(6), matrix(7), matrix(0).Cols(0, 2)));
  RETURN_IF_ERROR(
      backend->MixStreams(matrix(6), matrix(0).Cols(0, 4), 2, ProductResult::kIsAdded, matrix(7)));
  RETURN_IF_ERROR(backend->BalanceStreams(matrix(6).Cols(0, 4), 2, 3, 0.1f, matrix(7).Cols(0, 4)));
  RETURN_IF_ERROR(backend->RotateTails(matrix(6), 64, {.table = 1}));
  const RowLayer rows = {.data = static_cast<float*>(kv.data()),
                         .num_blocks = 3,
                         .dim = 64,
                         .block_stride = layer.block_stride / int64_t{sizeof(float)},
                         .cache_class = 1};
  RETURN_IF_ERROR(backend->PoolRows(
      {matrix(6).Cols(0, 64), matrix(6).Cols(64, 64), conv.Cols(0, 64), 4, /*overlaps=*/false},
      states, matrix(7).Cols(0, 64)));
  RETURN_IF_ERROR(backend->StoreRows(matrix(7).Cols(0, 64), rows));
  RETURN_IF_ERROR(backend->ScoreRows(matrix(6), matrix(7).Cols(0, 4), rows, matrix(5)));
  const Tensor chosen(matrix(3).data, DType::kI32, tokens, 1);
  RETURN_IF_ERROR(backend->ChooseRows(matrix(5), rows, chosen));
  RETURN_IF_ERROR(backend->AttendRows(
      matrix(6), {.near = rows, .window = {.size = 8}, .far = rows, .chosen = chosen}, matrix(7)));
  ExpertRoutes routes;
  RETURN_IF_ERROR(backend->Route(matrix(0).Cols(0, 8), {.chosen = 1}, &routes));
  RETURN_IF_ERROR(backend->MoveWeights(&routes, matrix(1).Cols(0, 1)));
  RETURN_IF_ERROR(backend->GatherSlots(matrix(6), routes, matrix(7)));
  for (DType dtype : {DType::kQ8_0, DType::kF32}) {
    ASSIGN_OR_RETURN(Buffer blocks, Buffer::AllocateHost(kVocabulary * RowBytes(dtype, kCols)));
    ASSIGN_OR_RETURN(auto w, backend->LoadMatrix(dtype, kVocabulary, kCols, std::move(blocks)));
    ASSIGN_OR_RETURN(const auto group,
                     backend->GroupMatrices(std::vector<GroupedMatrix>(8, {w.get()})));
    const ProductInput input = ProductInput::Activated(matrix(7), Activation::kSilu);
    RETURN_IF_ERROR(backend->ProjectExperts({{group.get(), input, matrix(1).Cols(0, kVocabulary)}},
                                            routes, ProductResult::kIsAdded));
  }
  RETURN_IF_ERROR(backend->CombineSlots(matrix(7), routes, matrix(6)));
  RETURN_IF_ERROR(backend->GatherRows(matrix(0), 0, matrix(6)));
  RETURN_IF_ERROR(backend->Copy(kv.data(), kv.chars().data() + 100, 100));
  RETURN_IF_ERROR(backend->Zero(kv.data(), layer.block_stride));
  RETURN_IF_ERROR(backend->Download(memory.data(), &weight, sizeof(weight)));
  return backend->Synchronize();
}

using Create = absl::StatusOr<std::unique_ptr<Backend>> (*)();

absl::StatusOr<std::unique_ptr<Backend>> CreateOne() { return CudaBackend::Create(kFakeApi, 0); }

// Two GPUs as one, which share every matrix that can be shared.
absl::StatusOr<std::unique_ptr<Backend>> CreateTwo() {
  ASSIGN_OR_RETURN(CudaGroup group, CreateCudaGroup(kFakeApi, {0, 1}));
  return std::make_unique<TensorParallelBackend>(
      std::move(group.members), std::move(group.collectives), /*least_split_bytes=*/0);
}

// Fails call 1, 2, ... of creating a backend and running every op, until none is left to fail.
// check(backend, status) looks at what came of a failure. `harmless` calls of one device may fail
// without one; of two as many as make a graph, in whose place kernels are launched one by one, or
// choose a device to give something back.
template <typename Check>
void FailEveryCall(Create create, cudaError_t error, bool sticky, int harmless, Check check) {
  int failures = 0;
  bool is_last = false;
  for (int n = 1; !is_last; ++n) {
    SCOPED_TRACE(n);
    fake = {.fail_at = n, .error = error, .sticky = sticky};
    fake.devices = create == CreateOne ? 1 : 2;
    {
      auto backend = create();
      if (!backend.ok()) {
        EXPECT_THAT(std::string(backend.status().message()), HasSubstr("CUDA"));
        if (create == CreateOne) {
          EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
        }
      } else {
        absl::Status status = RunEveryOp(backend->get(), 2);
        is_last = fake.calls < n;
        if (!status.ok()) {
          ++failures;
          check(backend->get(), status);
        } else if (!is_last) {
          --harmless;
        }
      }
    }
    EXPECT_TRUE(fake.memory.empty());
  }
  EXPECT_GT(failures, 50);
  if (create == CreateOne) {
    EXPECT_EQ(harmless, 0);
  }
  EXPECT_TRUE(fake.memory.empty());
}

class CudaFaultTest : public testing::TestWithParam<Create> {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaFaultTest, testing::Values(CreateOne, CreateTwo),
                         [](const testing::TestParamInfo<Create>& info) {
                           return info.param == CreateOne ? "One" : "Two";
                         });

TEST_P(CudaFaultTest, AFaultLosesTheDeviceAndNothingElse) {
  FailEveryCall(GetParam(), cudaErrorIllegalAddress, true, 0,
                [](Backend* backend, const absl::Status& status) {
                  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
                  EXPECT_THAT(std::string(status.message()), HasSubstr("device cuda:"));
                  EXPECT_THAT(std::string(status.message()), HasSubstr(" is lost after "));
                  EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 700)"));
                  // (Of two the other one is lost, too, by then.)
                  EXPECT_TRUE(absl::IsUnavailable(RunEveryOp(backend, 2)));
                  EXPECT_TRUE(absl::IsUnavailable(backend->Synchronize()));
                  if (backend->name() == "cuda:0") {
                    EXPECT_EQ(backend->Synchronize(), status);
                  }
                });
}

TEST_P(CudaFaultTest, NoMemoryIsAnErrorAndTheBackendGoesOn) {
  constexpr int kPinned = 2;  // page-locked memory, in whose place other memory does
  FailEveryCall(GetParam(), cudaErrorMemoryAllocation, false, kPinned,
                [](Backend* backend, const absl::Status& status) {
                  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
                  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:"));
                  EXPECT_TRUE(RunEveryOp(backend, 2).ok());
                });
}

TEST_P(CudaFaultTest, ARefusedCallIsAnErrorAndTheBackendGoesOn) {
  FailEveryCall(GetParam(), cudaErrorInvalidValue, false, 0,
                [](Backend* backend, const absl::Status& status) {
                  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
                  EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 1)"));
                  EXPECT_TRUE(RunEveryOp(backend, 2).ok());
                });
}

TEST(CudaGroupTest, DevicesOfOtherKindsSaySo) {
  fake = {.devices = 2, .second_major = 8};
  if (!FindCudaDevice(kFakeApi, 1).ok()) {
    GTEST_SKIP() << "this build has no kernels for 8.0, only for " << CudaArchitectures();
  }
  fake = {.devices = 2, .second_major = 8};
  const absl::Status status = CreateTwo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "GPUs that compute together must be alike, but cuda:0 is Fake GPU (compute 9.0) and "
            "cuda:1 Fake GPU (8.0); with ',' instead of '+' they share the layers");
  EXPECT_TRUE(fake.memory.empty());
}

// A GPU that is both of them has half of what is free for each.
TEST(CudaGroupTest, ADeviceThatIsNamedTwiceIsSharedOut) {
  fake = {};
  {
    CudaGroup group = CreateCudaGroup(kFakeApi, {0, 0}).value();
    TensorParallelBackend backend(std::move(group.members), std::move(group.collectives),
                                  /*least_split_bytes=*/0);
    EXPECT_EQ(backend.FreeBytes().value(), 7 / 2);
    EXPECT_TRUE(RunEveryOp(&backend, 2).ok());
  }
  EXPECT_TRUE(fake.memory.empty());
}

TEST(CudaGroupTest, DevicesThatCannotReadEachOtherSaySo) {
  fake = {.devices = 2, .peers_can_read = false};
  const absl::Status status = CreateTwo().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cuda:0 cannot read the memory of cuda:1 (no peer access), which devices that compute "
            "together must; with ',' instead of '+' they share the layers");
  EXPECT_TRUE(fake.memory.empty());
}

TEST(CudaBackendTest, NoMemorySaysHowMuchWasWantedAndHowMuchThereIs) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0).value();
  fake = {.fail_at = 2, .error = cudaErrorMemoryAllocation, .memory = fake.memory};
  absl::Status status = backend->Allocate(123456).status();
  EXPECT_EQ(std::string(status.message()),
            "cuda:0: cannot allocate 123456 bytes: 7 of 1000 are free");
}

TEST(CudaBackendTest, AnEmptyBatchLaunchesNothing) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0).value();
  EXPECT_TRUE(RunEveryOp(backend.get(), 0).ok());
  constexpr int kPacked = 3;  // matrices
  EXPECT_EQ(fake.launches, kPacked);
  EXPECT_TRUE(RunEveryOp(backend.get(), 1).ok());
  EXPECT_GT(fake.launches, 2 * kPacked);
}

TEST(CudaBackendTest, WhatAMatrixIsLoadedThroughIsGivenBack) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0).value();
  Buffer blocks = Buffer::AllocateHost(5 * RowBytes(DType::kQ8_0, 256)).value();
  const size_t before = fake.memory.size();
  auto w = backend->LoadMatrix(DType::kQ8_0, 5, 256, std::move(blocks)).value();
  EXPECT_EQ(fake.memory.size(), before + 3);  // the matrix, its raw rows here and there
  const StepTables none;
  ASSERT_TRUE(backend->BeginStep(&none).ok());
  EXPECT_EQ(fake.memory.size(), before + 1);
}

TEST(CudaBackendTest, ARehearsalTakesMemoryAndLaunchesNothing) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0).value();
  const StepBounds bounds = {.tokens = 60, .context = 200};
  backend->set_rehearsal(&bounds);
  ASSERT_TRUE(RunEveryOp(backend.get(), 60).ok());
  EXPECT_EQ(fake.launches, 0);
  EXPECT_EQ(fake.graph_launches, 0);
  backend->set_rehearsal(nullptr);
  const int before = fake.allocations;
  ASSERT_TRUE(RunEveryOp(backend.get(), 60).ok());
  EXPECT_GT(fake.launches, 0);
  const int first = fake.allocations - before;
  ASSERT_TRUE(RunEveryOp(backend.get(), 60).ok());
  EXPECT_EQ(fake.allocations - before, 2 * first);  // what RunEveryOp itself allocates
}

// It would be of all that the longest context has, on the host.
TEST(CudaBackendTest, ARehearsalChoosesNoRows) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0).value();
  const StepTables step = StepOf(3);
  const StepBounds bounds = {.tokens = 3, .context = 64};
  backend->set_rehearsal(&bounds);
  ASSERT_TRUE(backend->BeginStep(&step).ok());
  Buffer memory = backend->Allocate(1 << 10).value();
  RowLayer rows = {
      .data = static_cast<float*>(memory.data()), .num_blocks = 3, .dim = 64, .cache_class = 1};
  rows.block_stride = rows.block_values();
  const Tensor scores(memory.data(), DType::kF32, 3, int64_t{1} << 50);
  const Tensor chosen(memory.data(), DType::kI32, 3, 1);
  const absl::Status status = backend->ChooseRows(scores, rows, chosen);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CudaBackendTest, AStepThatIsNotPlacedHasNotBegun) {
  const StepTables small = StepOf(1), large = StepOf(40);
  for (int n = 1;; ++n) {
    SCOPED_TRACE(n);
    fake = {};
    auto backend = CudaBackend::Create(kFakeApi, 0).value();
    Buffer memory = backend->Allocate(40 * sizeof(float)).value();
    const Tensor rows(memory.data(), DType::kF32, 40, 1);
    ASSERT_TRUE(backend->BeginStep(&small).ok());
    fake = {.fail_at = n, .error = cudaErrorMemoryAllocation, .memory = fake.memory};
    const absl::Status status = backend->BeginStep(&large);
    if (status.ok()) {
      EXPECT_GT(n, 5);
      break;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(backend->GatherRows(rows, 0, rows).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(fake.launches, 0);
  }
}

// The values of a table in device memory, which is the host's here.
template <typename T>
std::vector<T> At(const T* values, size_t count) {
  return {values, values + count};
}

TEST(PlacedStepTest, TablesHoldTheStepAndStayWhereTheyAre) {
  fake = {};
  auto device = CudaDevice::Open(kFakeApi, 0).value();
  PlacedStep placed;
  auto place = [&](const StepTables& step) {
    StepIndex index;
    ASSERT_TRUE(IndexStep(&step, &index).ok());
    ASSERT_TRUE(placed.Place(device.get(), step, index, {}).ok());
    const size_t tokens = step.tokens.size();
    EXPECT_EQ(At(placed.tokens(), tokens), step.tokens);
    ASSERT_EQ(placed.rows().num_sequences, static_cast<int64_t>(step.sequences.size()));
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      const StepSequence& wanted = step.sequences[i];
      const cuda::Sequence& got = placed.rows().sequences[i];
      EXPECT_EQ(std::vector({got.first_row, got.num_tokens, got.first_position, got.first_block,
                             got.state}),
                std::vector({wanted.first_row, wanted.num_tokens, wanted.first_position,
                             wanted.first_block, wanted.state}));
      for (int32_t t = 0; t < wanted.num_tokens; ++t) {
        EXPECT_EQ(placed.rows().sequence_of_row[wanted.first_row + t], static_cast<int32_t>(i));
      }
    }
    for (int32_t c = 0; c < 2; ++c) {
      EXPECT_EQ(At(placed.slots(c), tokens), index.slots[c]);
      EXPECT_EQ(At(placed.blocks(c), step.blocks[c].size()), step.blocks[c]);
    }
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(At(placed.row_list(i), step.row_lists[i].size()), step.row_lists[i]);
      const cuda::Matrix rope = placed.rope(i);
      EXPECT_EQ(std::vector({rope.rows, rope.cols, rope.stride}),
                std::vector({int64_t(tokens), int64_t{step.ropes[i].dim}, rope.cols}));
      EXPECT_EQ(At(rope.data, tokens * rope.cols), step.ropes[i].angles);
    }
    EXPECT_EQ(placed.rope(-1).cols, 0);
  };
  auto addresses = [&] {
    return std::vector<const void*>{
        placed.tokens(),     placed.rows().sequences, placed.rows().sequence_of_row,
        placed.slots(0),     placed.blocks(0),        placed.slots(1),
        placed.blocks(1),    placed.row_list(0),      placed.row_list(1),
        placed.rope(0).data, placed.rope(1).data};
  };
  StepTables large = StepOf(70);
  std::iota(large.tokens.begin(), large.tokens.end(), 5);
  std::iota(large.ropes[1].angles.begin(), large.ropes[1].angles.end(), 0.5f);
  large.row_lists[1] = {7, 0, 9};
  StepTables two = StepOf(3);
  for (std::vector<int32_t>& blocks : two.blocks) blocks.push_back(0);
  two.Append(std::vector<int32_t>{8, 9}.data(), 2, 0);
  for (RopeTable& rope : two.ropes) rope.angles.resize(5 * rope.dim, -1.0f);
  place(StepOf(1));
  place(two);
  place(large);
  const std::vector<const void*> before = addresses();
  for (const StepTables& step : {two, StepOf(0), StepOf(69), large}) {
    const size_t buffers = fake.memory.size();
    place(step);
    EXPECT_EQ(addresses(), before);
    EXPECT_EQ(fake.memory.size(), buffers);
  }
  // One with fewer lists between them, and a prompt's rope.
  StepTables other = StepOf(69);
  other.row_lists.resize(1);
  StepIndex index;
  ASSERT_TRUE(IndexStep(&other, &index).ok());
  ASSERT_TRUE(placed.Place(device.get(), other, index, {}).ok());
  const cuda::Matrix rope = placed.rope(0);
  EXPECT_EQ(At(rope.data, 69 * rope.cols), other.ropes[0].angles);
  place(large);
  EXPECT_EQ(addresses(), before);
}

// Of a step that begins before the one before has been read: where the device has what that picks.
TEST(PlacedStepTest, TokensThatAreNotKnownAreThoseThatWerePicked) {
  fake = {};
  auto device = CudaDevice::Open(kFakeApi, 0).value();
  PlacedStep placed;
  StepTables step = StepOf(4);
  step.tokens = {5, ~1, ~0, ~2};
  StepIndex index;
  EXPECT_EQ(IndexStep(&step, &index).message(), "BeginStep: a token is -3, of 0 picked");
  step.num_picked = 3;
  ASSERT_TRUE(IndexStep(&step, &index).ok());
  const std::vector<int32_t> picked = {3, -1, 0};
  ASSERT_TRUE(placed.Place(device.get(), step, index, picked).ok());
  EXPECT_EQ(At(placed.tokens(), 4), std::vector<int32_t>({5, 0, ~3, ~0}));
}

// A list of kernels that comes again is a graph, and only what differs is told to it.
TEST(LaunchRecorderTest, AListThatComesAgainIsLaunchedAsAGraph) {
  fake = {};
  constexpr int kKernels = 10;
  static const char kKernel[kKernels] = {};
  {
    LaunchRecorder recorder(kFakeApi);
    const int queue = recorder.AddQueue(0, nullptr, /*overlaps=*/false);
    auto add = [&recorder, queue](int count, int64_t argument) {
      for (int i = 0; i < count; ++i) {
        void* arguments[] = {&argument};
        const size_t sizes[] = {sizeof(argument)};
        recorder.Add(queue, &kKernel[i], 1, 32, 0, arguments, sizes, 1);
      }
    };
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    EXPECT_EQ(fake.calls, 0);
    add(kKernels, 1);
    EXPECT_EQ(fake.launches, 0);  // they wait
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    EXPECT_EQ(fake.launches, kKernels);
    EXPECT_EQ(fake.graph_launches, 0);
    add(kKernels, 1);
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    add(kKernels, 1);
    const int calls = fake.calls;
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    EXPECT_EQ(fake.calls, calls + 1);  // the graph is launched
    EXPECT_EQ(fake.graph_launches, 2);
    add(kKernels, 2);
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    EXPECT_EQ(fake.calls, calls + 2 + kKernels);  // each node has been told
    EXPECT_EQ(fake.launches, 4 * kKernels);
    add(3, 1);  // too few for a graph
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
    EXPECT_EQ(fake.graph_launches, 3);

    add(kKernels, 2);
    fake.fail_at = fake.calls + 1;
    fake.error = cudaErrorLaunchFailure;
    recorder.FlushForNow();
    EXPECT_EQ(recorder.Flush(), cudaErrorLaunchFailure);  // it is not lost
    EXPECT_EQ(recorder.Flush(), cudaSuccess);
  }
  EXPECT_TRUE(fake.memory.empty());
}

// Where the device has no memory for a graph, or will not change it, each kernel is launched by
// itself; and the next time it is tried again.
TEST(LaunchRecorderTest, WithoutAGraphTheKernelsAreLaunchedOneByOne) {
  constexpr int kKernels = 10;
  static const char kKernel[kKernels] = {};
  // The calls of a graph: one to create it, one a node, one to instantiate it, one to launch it.
  for (int failing = 1; failing <= 1 + kKernels + 2; ++failing) {
    SCOPED_TRACE(failing);
    fake = {};
    {
      LaunchRecorder recorder(kFakeApi);
      const int queue = recorder.AddQueue(0, nullptr, /*overlaps=*/false);
      int64_t argument = 0;
      auto flush = [&] {
        for (int i = 0; i < kKernels; ++i) {
          void* arguments[] = {&argument};
          const size_t sizes[] = {sizeof(argument)};
          recorder.Add(queue, &kKernel[i], 1, 32, 0, arguments, sizes, 1);
        }
        return recorder.Flush();
      };
      EXPECT_EQ(flush(), cudaSuccess);
      fake.fail_at = fake.calls + failing;
      fake.error = cudaErrorMemoryAllocation;
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.launches, 2 * kKernels);
      EXPECT_EQ(fake.graph_launches, 0);
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.graph_launches, 1);
      ++argument;
      fake.fail_at = fake.calls + 2;  // the second node does not take it
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.launches, 4 * kKernels);
      EXPECT_EQ(fake.graph_launches, 1);
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.graph_launches, 2);
    }
    EXPECT_TRUE(fake.memory.empty());
  }
}

// A graph that was told other arguments, and then has no room: the kernels have these all the same.
TEST(LaunchRecorderTest, AGraphThatFindsNoMemoryLeavesItsKernelsTheirArguments) {
  static const char kKernel[4] = {};
  static std::vector<int64_t> seen;
  seen.clear();
  CudaApi api = kFakeApi;
  api.LaunchKernel = [](const void*, dim3, dim3, void** arguments, size_t, cudaStream_t) {
    seen.push_back(*static_cast<int64_t*>(arguments[0]));
    return cudaSuccess;
  };
  fake = {};
  {
    LaunchRecorder recorder(api);
    const int queue = recorder.AddQueue(0, nullptr, /*overlaps=*/false);
    auto flush = [&](int64_t argument) {
      for (const char& kernel : kKernel) {
        void* arguments[] = {&argument};
        const size_t sizes[] = {sizeof(argument)};
        recorder.Add(queue, &kernel, 1, 32, 0, arguments, sizes, 1);
      }
      return recorder.Flush();
    };
    EXPECT_EQ(flush(1), cudaSuccess);
    EXPECT_EQ(flush(1), cudaSuccess);
    EXPECT_EQ(fake.graph_launches, 1);
    fake.fail_at = fake.calls + 4 + 1;  // each node is told, and then it is launched
    fake.error = cudaErrorMemoryAllocation;
    EXPECT_EQ(flush(2), cudaSuccess);
    EXPECT_EQ(fake.graph_launches, 1);
    EXPECT_EQ(seen, std::vector<int64_t>({1, 1, 1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(flush(2), cudaSuccess);
    EXPECT_EQ(fake.graph_launches, 2);
  }
  EXPECT_TRUE(fake.memory.empty());
}

// Where kernels may begin early an edge of each says so. A driver that refuses that gets a graph
// without, at once and from then on; one that has no memory is asked again.
TEST(LaunchRecorderTest, KernelsBeginEarlyWhereTheDriverLetsThem) {
  constexpr int kKernels = 10;
  static const char kKernel[kKernels] = {};
  for (const cudaError_t error : {cudaSuccess, cudaErrorNotSupported, cudaErrorMemoryAllocation}) {
    SCOPED_TRACE(error);
    fake = {};
    {
      LaunchRecorder recorder(kFakeApi);
      const int queue = recorder.AddQueue(0, nullptr, /*overlaps=*/true);
      auto flush = [&] {
        for (int i = 0; i < kKernels; ++i) {
          recorder.Add(queue, &kKernel[i], 1, 32, 0, nullptr, nullptr, 0);
        }
        return recorder.Flush();
      };
      EXPECT_EQ(flush(), cudaSuccess);
      fake.fail_edges = error;
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.launches, 2 * kKernels);
      EXPECT_EQ(fake.graph_launches, error != cudaErrorMemoryAllocation);
      EXPECT_EQ(fake.edges, error == cudaSuccess ? kKernels - 1 : 0);
      fake.fail_edges = cudaSuccess;
      EXPECT_EQ(flush(), cudaSuccess);
      EXPECT_EQ(fake.launches, 3 * kKernels);
      EXPECT_EQ(fake.graph_launches, error != cudaErrorMemoryAllocation ? 2 : 1);
      EXPECT_EQ(fake.edges, error != cudaErrorNotSupported ? kKernels - 1 : 0);
    }
    EXPECT_TRUE(fake.memory.empty());
  }
}

// Queues that meet: without a graph each join, and the end, is a wait of one stream for the others,
// and of these for it; with one the streams meet before and behind it.
TEST(LaunchRecorderTest, QueuesMeetWhereTheyJoin) {
  constexpr int kRounds = 3;
  static const char kKernel[2] = {};
  for (const int queues : {1, 2, 3}) {
    SCOPED_TRACE(queues);
    fake = {};
    {
      LaunchRecorder recorder(kFakeApi);
      for (int q = 0; q < queues; ++q) recorder.AddQueue(q, nullptr, /*overlaps=*/false);
      for (int time = 0; time < 3; ++time) {
        fake.waits = fake.graph_launches = fake.launches = 0;
        for (int round = 0; round < kRounds; ++round) {
          for (int q = 0; q < queues; ++q) {
            for (const char& kernel : kKernel)
              recorder.Add(q, &kernel, 1, 32, 0, nullptr, nullptr, 0);
          }
          recorder.Join();
          for (int q = 0; q < queues; ++q)
            recorder.Add(q, &kKernel[0], 1, 32, 0, nullptr, nullptr, 0);
          if (round + 1 < kRounds) recorder.Join();
        }
        EXPECT_EQ(recorder.Flush(), cudaSuccess);
        EXPECT_EQ(fake.launches, kRounds * 3 * queues);
        EXPECT_EQ(fake.graph_launches, time > 0);
        const int meetings = time > 0 ? 1 : 2 * kRounds;
        EXPECT_EQ(fake.waits, meetings * 2 * (queues - 1));
      }
      // A join behind the last kernel is one all the same.
      fake.waits = 0;
      recorder.Add(0, &kKernel[0], 1, 32, 0, nullptr, nullptr, 0);
      recorder.Join();
      EXPECT_EQ(recorder.Flush(), cudaSuccess);
      EXPECT_EQ(fake.waits, 2 * (queues - 1));
    }
    EXPECT_TRUE(fake.memory.empty());
  }
}

// Kernels that were made for older devices do not wait for each other, whatever they run on.
TEST(LaunchRecorderTest, KernelsBeginEarlyWhereTheirCodeWaits) {
  struct Case {
    int compute_major, ptx_version;
    const char* serial;  // LM_CUDA_SERIAL, or null
    bool early, queues;
  };
  for (const Case& c : {Case{9, 90, nullptr, true, true}, Case{10, 90, nullptr, true, true},
                        Case{9, 80, nullptr, false, true}, Case{8, 80, nullptr, false, true},
                        Case{9, 90, "1", false, false}, Case{9, 90, "steps", true, false}}) {
    SCOPED_TRACE(absl::StrCat(c.compute_major, " ", c.ptx_version, " ", c.serial ? c.serial : ""));
    fake = {.compute_major = c.compute_major, .ptx_version = c.ptx_version};
    if (!FindCudaDevice(kFakeApi, 0).ok()) continue;  // this build has no kernels for it
    if (c.serial != nullptr) setenv("LM_CUDA_SERIAL", c.serial, 1);
    fake = {.compute_major = c.compute_major, .ptx_version = c.ptx_version};
    {
      const auto device = CudaDevice::Open(kFakeApi, 0).value();
      unsetenv("LM_CUDA_SERIAL");
      EXPECT_EQ(device->queues_steps(), c.queues);
      static const char kKernel = 0;
      for (int time = 0; time < 2; ++time) {
        for (int i = 0; i < 8; ++i) {
          device->queue().recorder->Add(0, &kKernel, 1, 32, 0, nullptr, nullptr, 0);
        }
        EXPECT_TRUE(device->Flush().ok());
      }
      EXPECT_EQ(fake.edges, c.early ? 7 : 0);
    }
    EXPECT_TRUE(fake.memory.empty());
  }
}

TEST(CudaDeviceListTest, SaysWhyADeviceIsNotUsed) {
  fake = {.fail_at = 1, .error = cudaErrorInsufficientDriver};
  absl::Status status = FindCudaDevice(kFakeApi, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(FindsCudaDriver() ? "the NVIDIA driver is older than this build's CUDA"
                                          : "libcuda.so.1, is not to be found"));
  fake = {.devices = 0};
  EXPECT_THAT(std::string(FindCudaDevice(kFakeApi, 0).status().message()), HasSubstr("no GPU"));
  fake = {};
  EXPECT_TRUE(FindCudaDevice(kFakeApi, 0).ok());
  EXPECT_THAT(std::string(FindCudaDevice(kFakeApi, 1).status().message()),
              HasSubstr("no CUDA device 1: there are 1"));
  fake = {.devices = 2, .compute_major = 7};
  EXPECT_THAT(std::string(FindCudaDevice(kFakeApi, 1).status().message()),
              HasSubstr(absl::StrCat("CUDA device 1 (Fake GPU) cannot be used: its compute "
                                     "capability is 7.0; this build's kernels are for ",
                                     CudaArchitectures())));
  auto devices = ListCudaDevices(kFakeApi).value();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "Fake GPU");
  EXPECT_EQ(devices[0].memory_bytes, 1000);
}

TEST(CudaDeviceListTest, AChildOfAProcessThatHasLookedIsToldSo) {
  fake = {};
  ASSERT_TRUE(ListCudaDevices(kFakeApi).ok());
  const pid_t child = fork();
  if (child == 0) {
    fake = {};
    const absl::Status status = CudaBackend::Create(kFakeApi, 0).status();
    _exit(absl::IsFailedPrecondition(status) &&
                  absl::StrContains(status.message(), "forked from one that had looked for GPUs") &&
                  fake.calls == 0
              ? 0
              : 1);
  }
  int exited = 0;
  ASSERT_EQ(waitpid(child, &exited, 0), child);
  EXPECT_TRUE(WIFEXITED(exited) && WEXITSTATUS(exited) == 0);
  EXPECT_TRUE(ListCudaDevices(kFakeApi).ok());  // here it works
}

TEST(CudaDeviceTest, AGpuThatHasNoKernelsIsNotOpened) {
  fake = {.fail_at = 4, .error = cudaErrorNoKernelImageForDevice};  // FuncGetAttributes
  const absl::Status status = CudaBackend::Create(kFakeApi, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("no CUDA device: cuda:0 cannot be used: Fake GPU has compute "
                                     "capability 9.0, and this build's kernels, which are for ",
                                     CudaArchitectures())));
  EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 209)"));
  EXPECT_TRUE(fake.memory.empty());
}

// An error before there is a queue is no fault of the device's.
TEST(CudaDeviceTest, WhatIsNotOpenedIsNotLost) {
  for (int n = 1; n <= 6; ++n) {
    for (const bool sticky : {false, true}) {
      fake = {.fail_at = n, .error = cudaErrorDevicesUnavailable, .sticky = sticky};
      const absl::Status status = CudaBackend::Create(kFakeApi, 0).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << n;
      EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 46)"));
      const bool opened = n == 6 && sticky;  // its queue is there, and does not answer
      EXPECT_EQ(absl::StrContains(status.message(), "is lost"), opened) << n << ": " << status;
      EXPECT_TRUE(fake.memory.empty());
    }
  }
}

TEST(CudaDeviceTest, ErrorsSayWhereOnlyANewProcessHelps) {
  struct Fault {
    cudaError_t error;
    bool ends_cuda;
  };
  for (const Fault fault :
       {Fault{cudaErrorIllegalAddress, true}, Fault{cudaErrorLaunchFailure, true},
        Fault{cudaErrorExternalDevice, true},
        Fault{static_cast<cudaError_t>(226), true},  // cudaErrorContained
        Fault{static_cast<cudaError_t>(721), true},  // cudaErrorTensorMemoryLeak
        Fault{cudaErrorECCUncorrectable, false}}) {
    fake = {};
    {
      auto backend = CudaBackend::Create(kFakeApi, 0).value();
      fake.fail_at = fake.calls + 1;
      fake.error = fault.error;
      fake.sticky = true;
      const absl::Status lost = backend->Synchronize();
      EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
      // Whoever opens it again hears the same.
      for (const absl::Status& status : {lost, CudaBackend::Create(kFakeApi, 0).status()}) {
        EXPECT_EQ(absl::StrContains(status.message(), "new process only: start this one anew"),
                  fault.ends_cuda)
            << status;
      }
    }
  }
}

}  // namespace
}  // namespace lm

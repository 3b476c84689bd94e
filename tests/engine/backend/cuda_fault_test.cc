// A CUDA runtime made of host memory, whose n-th call fails: every failure must come out as a
// Status, give back what it took, and leave the backend either usable or lost. Kernels are not run;
// only how they are launched is looked at.
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "engine/backend/cuda/cublas_lt.h"
#include "engine/backend/cuda/cuda_ops.h"
#include "engine/backend/cuda/device_list.h"
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
  int compute_major = 9;
  int launches = 0;
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

constexpr CudaApi kFakeApi = {
    .GetDeviceCount = [](int* count) { return Unless([&] { *count = fake.devices; }); },
    .GetDeviceProperties =
        [](cudaDeviceProp* properties, int) {
          return Unless([&] {
            std::strcpy(properties->name, "Fake GPU");
            properties->totalGlobalMem = 1000;
            properties->major = fake.compute_major;
          });
        },
    .SetDevice = [](int) { return fake.Call(); },
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
    .Malloc =
        [](void** data, size_t bytes) {
          return Unless([&] {
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
    .Memcpy2DAsync =
        [](void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
           size_t height, cudaMemcpyKind, cudaStream_t) {
          return Unless([&] {
            for (size_t i = 0; i < height; ++i) {
              std::memcpy(static_cast<char*>(to) + i * to_pitch,
                          static_cast<const char*>(from) + i * from_pitch, width);
            }
          });
        },
    .MemsetAsync = [](void* data, int value, size_t bytes,
                      cudaStream_t) { return Unless([&] { std::memset(data, value, bytes); }); },
    .LaunchKernel =
        [](const void*, dim3 grid, dim3 block, void**, size_t shared_bytes, cudaStream_t) {
          EXPECT_TRUE(grid.x >= 1 && grid.x <= 2147483647u && grid.y >= 1 && grid.y <= 65535u);
          EXPECT_TRUE(block.x >= 32 && block.x <= 1024);
          EXPECT_LE(shared_bytes, 16384u);  // the rest of 48 KiB is the kernels' own
          return Unless([&] { ++fake.launches; });
        },
    .GetLastError = [] { return cudaSuccess; },
};

// Every function of the interface once, over a batch of `tokens`.
absl::Status RunEveryOp(Backend* backend, int32_t tokens) {
  constexpr int64_t kCols = 256, kVocabulary = 5;
  ASSIGN_OR_RETURN(Buffer memory, backend->Allocate(8 * (tokens + 1) * kCols * sizeof(float)));
  auto matrix = [&](int64_t i) {
    return Tensor(static_cast<float*>(memory.data()) + i * (tokens + 1) * kCols, DType::kF32,
                  tokens, kCols);
  };
  KvLayer layer{.num_blocks = 3, .kv_heads = 4, .head_dim = 64};
  ASSIGN_OR_RETURN(Buffer kv, backend->Allocate(2 * 3 * layer.block_bytes()));
  layer.keys = kv.data();
  layer.values = kv.chars().data() + 3 * layer.block_bytes();
  for (DType dtype : {DType::kQ4_K, DType::kF16}) {
    ASSIGN_OR_RETURN(Buffer blocks, Buffer::AllocateHost(kVocabulary * RowBytes(dtype, kCols)));
    ASSIGN_OR_RETURN(auto w, backend->LoadMatrix(dtype, kVocabulary, kCols, std::move(blocks)));
    std::vector<int32_t> ids(tokens, 3);
    RETURN_IF_ERROR(backend->Embed(*w, ids, matrix(0)));
    RETURN_IF_ERROR(backend->MatMul(*w, matrix(0),
                                    Tensor(memory.data(), DType::kF32, 1, kVocabulary),
                                    matrix(1).Cols(0, kVocabulary)));
  }
  float weight = 1;
  RETURN_IF_ERROR(backend->Upload(&weight, memory.data(), sizeof(weight)));
  RETURN_IF_ERROR(
      backend->RmsNorm(matrix(0), Tensor(memory.data(), DType::kF32, 1, kCols), 1e-5f, matrix(1)));
  std::vector<int64_t> slots(tokens, 40);
  RETURN_IF_ERROR(backend->RopeAndStoreKv(matrix(1), matrix(2), matrix(3), matrix(4).Cols(0, 64),
                                          RopePairing::kHalves, slots, layer));
  std::vector<int32_t> blocks = {2, 1};
  RETURN_IF_ERROR(
      backend->Attention(matrix(1), {SequenceSpan{0, tokens, 20, blocks}}, layer, 1, matrix(5)));
  RETURN_IF_ERROR(backend->SwiGlu(matrix(5), matrix(6), matrix(7)));
  RETURN_IF_ERROR(backend->Add(matrix(0), matrix(7)));
  std::vector<int32_t> rows(tokens, 0);
  RETURN_IF_ERROR(backend->GatherRows(matrix(0), rows, matrix(6)));
  RETURN_IF_ERROR(backend->CopyKvBlock(layer, 0, 1, 13));
  RETURN_IF_ERROR(backend->ZeroKvBlock(layer, 1));
  RETURN_IF_ERROR(backend->Download(memory.data(), &weight, sizeof(weight)));
  return backend->Synchronize();
}

// Fails call 1, 2, ... of creating a backend and running every op, until none is left to fail.
// check(backend, status) looks at what came of a failure.
template <typename Check>
void FailEveryCall(cudaError_t error, bool sticky, Check check) {
  int failures = 0;
  for (int n = 1;; ++n) {
    SCOPED_TRACE(n);
    fake = {.fail_at = n, .error = error, .sticky = sticky};
    {
      auto backend = CudaBackend::Create(kFakeApi, 0, false);
      if (!backend.ok()) {
        EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(backend.status().message()), HasSubstr("CUDA"));
      } else {
        absl::Status status = RunEveryOp(backend->get(), 2);
        if (status.ok()) {
          EXPECT_LT(fake.calls, n);
          break;
        }
        ++failures;
        check(backend->get(), status);
      }
    }
    EXPECT_TRUE(fake.memory.empty());
  }
  EXPECT_GT(failures, 50);
  EXPECT_TRUE(fake.memory.empty());
}

TEST(CudaFaultTest, AFaultLosesTheDeviceAndNothingElse) {
  FailEveryCall(cudaErrorIllegalAddress, true, [](Backend* backend, const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("device cuda:0 is lost after "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 700)"));
    EXPECT_EQ(RunEveryOp(backend, 2), status);
    EXPECT_EQ(backend->Synchronize(), status);
  });
}

TEST(CudaFaultTest, NoMemoryIsAnErrorAndTheBackendGoesOn) {
  FailEveryCall(cudaErrorMemoryAllocation, false, [](Backend* backend, const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0: "));
    EXPECT_TRUE(RunEveryOp(backend, 2).ok());
  });
}

TEST(CudaFaultTest, ARefusedCallIsAnErrorAndTheBackendGoesOn) {
  FailEveryCall(cudaErrorInvalidValue, false, [](Backend* backend, const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("(CUDA error 1)"));
    EXPECT_TRUE(RunEveryOp(backend, 2).ok());
  });
}

TEST(CudaFaultTest, NoMemorySaysHowMuchWasWantedAndHowMuchThereIs) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0, false).value();
  fake = {.fail_at = 2, .error = cudaErrorMemoryAllocation, .memory = fake.memory};
  absl::Status status = backend->Allocate(123456).status();
  EXPECT_EQ(std::string(status.message()),
            "cuda:0: cannot allocate 123456 bytes: 7 of 1000 are free");
}

TEST(CudaFaultTest, AnEmptyBatchLaunchesNothing) {
  fake = {};
  auto backend = CudaBackend::Create(kFakeApi, 0, false).value();
  EXPECT_TRUE(RunEveryOp(backend.get(), 0).ok());
  EXPECT_EQ(fake.launches, 0);
  EXPECT_TRUE(RunEveryOp(backend.get(), 1).ok());
  EXPECT_GT(fake.launches, 0);
}

TEST(CudaDeviceListTest, SaysWhyADeviceIsNotUsed) {
  fake = {.fail_at = 1, .error = cudaErrorInsufficientDriver};
  absl::Status status = CheckCudaDevice(kFakeApi, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the NVIDIA driver is missing, or older"));
  fake = {.devices = 0};
  EXPECT_THAT(std::string(CheckCudaDevice(kFakeApi, 0).message()), HasSubstr("no GPU"));
  fake = {};
  EXPECT_TRUE(CheckCudaDevice(kFakeApi, 0).ok());
  EXPECT_THAT(std::string(CheckCudaDevice(kFakeApi, 1).message()),
              HasSubstr("no CUDA device 1: there are 1"));
  fake = {.devices = 2, .compute_major = 7};
  EXPECT_THAT(std::string(CheckCudaDevice(kFakeApi, 1).message()),
              HasSubstr("CUDA device 1 (Fake GPU) cannot be used: its compute capability is 7.0"));
  auto devices = ListCudaDevices(kFakeApi).value();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "Fake GPU");
  EXPECT_EQ(devices[0].memory_bytes, 1000);
}

TEST(CublasLtTest, SaysWhatWasTried) {
  absl::Status status = CublasLt::Open({"libno-such-thing.so.1", "libc.so.6"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libno-such-thing.so.1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cublasLtCreate"));
}

}  // namespace
}  // namespace lm

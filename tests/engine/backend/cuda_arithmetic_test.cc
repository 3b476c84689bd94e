// The arithmetic of the CUDA kernels, compiled for the host: each inline function of
// engine/backend/cuda/*.cuh, put together as its kernel does, against the reference. What only a
// GPU can show (indices, barriers, launches) is the business of the suite over AvailableBackends().
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "engine/backend/cuda/float_product.cuh"
#include "engine/backend/cuda/kv_value.cuh"
#include "engine/backend/cuda/loaded_blocks.h"
#include "engine/backend/cuda/op_arithmetic.cuh"
#include "engine/backend/cuda/quantize_value.cuh"
#include "engine/backend/cuda/weight_block.cuh"
#include "engine/backend/mix_head.h"
#include "engine/backend/quantize_to_codes.h"
#include "engine/backend/quantized_block.h"
#include "engine/gguf/block_format.h"
#include "engine/gguf/coded_blocks.h"
#include "tests/engine/backend/kv_fixture.h"

namespace lm {
namespace {

template <DType kType>
using Type = std::integral_constant<DType, kType>;

// Calls function(a type, the integral_constant of that or of what it is on a device).
template <typename Function>
void ForEachQuantizedType(Function function) {
  auto one = [&](DType dtype, auto type) {
    SCOPED_TRACE(Traits(dtype).name);
    function(dtype, type);
  };
  auto call = [&](auto... types) { (one(types(), types), ...); };
  for (DType dtype : WeightTypes()) {
    if (IsCoded(dtype)) one(dtype, Type<cuda::kExpanded>());
  }
  call(Type<DType::kQ4_0>(), Type<DType::kQ4_1>(), Type<DType::kQ5_0>(), Type<DType::kQ5_1>(),
       Type<DType::kQ8_0>(), Type<DType::kQ2_K>(), Type<DType::kQ3_K>(), Type<DType::kQ4_K>(),
       Type<DType::kQ5_K>(), Type<DType::kQ6_K>(), Type<DType::kIQ4_NL>(), Type<DType::kIQ4_XS>(),
       Type<DType::kMXFP4>());
}

uint32_t MaxBits(const float* x, int64_t count) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  return bits;
}

TEST(CudaArithmeticTest, FormatsAreTheOnesOfTheFile) {
  ForEachQuantizedType([](DType dtype, auto type) {
    if (IsCoded(dtype)) return;
    constexpr cuda::WeightFormat kFormat = cuda::kWeightFormat<type()>;
    const QuantizedTraits& traits = GetQuantizedTraits(dtype);
    EXPECT_EQ(kFormat.values, Traits(dtype).block_size);
    // Those of MXFP4 are made even.
    EXPECT_EQ(kFormat.bytes, (Traits(dtype).block_bytes + 1) / 2 * 2);
    EXPECT_EQ(kFormat.half_scales, traits.half_scales);
    EXPECT_EQ(kFormat.minima, traits.minima);
  });
}

TEST(CudaArithmeticTest, ActivationsAreQuantisedAsDefined) {
  Random random(42);
  for (float size : {1.0f, 1e-30f, 3e-37f, 1e-42f, 0.0f, 1e38f, INFINITY, NAN}) {
    Matrix x = random.Normals(1, 32);
    for (int i = 0; i < 32; ++i) x.row(0)[i] *= 0.5f;
    x.row(0)[0] = 254.0f;  // so that the halves below are ties
    x.row(0)[1] = 1.0f;
    x.row(0)[2] = -3.0f;
    for (float& value : x.values) value *= size;
    int8_t wanted[32];
    float s = QuantizeToInt8(x.row(0), kActivationBlock, wanted);
    const cuda::ActivationScale scale = cuda::ScaleActivations(MaxBits(x.row(0), 32));
    EXPECT_TRUE(std::bit_cast<uint32_t>(s) == std::bit_cast<uint32_t>(scale.s) ||
                (std::isnan(s) && std::isnan(scale.s)))
        << size;
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(wanted[i], cuda::QuantizeActivation(x.row(0)[i], scale)) << size;
    }
  }
}

// As MultiplyFloatKernel, 64 columns at a time.
TEST(CudaArithmeticTest, FloatProductsAreTheReferencesToTheBit) {
  static_assert(cuda::kSumChunk == kFloatChunk);
  Random random(47);
  auto reference = CreateBackend({.device = "reference"}).value();
  for (int64_t cols : {1, 63, 255, 256, 257, 512, 700, 1025}) {
    Buffer weights = RandomWeights(DType::kF32, 1, cols, &random);
    Matrix x = random.Normals(1, cols);
    auto w = reference->LoadMatrix(DType::kF32, 1, cols, CopyOf(weights)).value();
    DeviceMatrix device_x(reference.get(), x), device_out(reference.get(), 1, 1);
    ASSERT_TRUE(reference->MatMul(*w, device_x.tensor(), {}, device_out.tensor()).ok());
    cuda::ChunkedSum sum = {};
    for (int64_t begin = 0; begin < cols; begin += 64) {
      const int64_t end = begin + 64;
      for (int64_t i = begin; i < std::min(end, cols); ++i) {
        const float weight = static_cast<const float*>(weights.data())[i];
        sum.chunk = fmaf(weight, x.row(0)[i], sum.chunk);
      }
      if (end % cuda::kSumChunk == 0 || end >= cols) {
        cuda::EndChunk(end <= cuda::kSumChunk, &sum);
      }
    }
    EXPECT_EQ(device_out.Download().row(0)[0], sum.total) << cols;
  }
}

// As RopeAndStoreKvKernel, on one row, in both pairings and all types of cache.
template <DType kType>
void CheckRopeAndStore(RopePairing pairing) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 24, kRopeDim = 16, kSlot = 37;
  Random random(44);
  auto reference = CreateBackend({.device = "reference"}).value();
  Matrix q = random.Normals(1, kHeads * kDim), k = random.Normals(1, kKvHeads * kDim);
  Matrix v = random.Normals(1, kKvHeads * kDim), rope = random.Normals(1, kRopeDim);
  KvLayer layer{
      .dtype = kType, .num_blocks = 2, .kv_heads = kKvHeads, .key_dim = kDim, .value_dim = kDim};
  layer.block_stride = layer.keys_bytes();
  Buffer memory[4];  // the reference's keys and values, then ours
  for (Buffer& buffer : memory) buffer = Buffer::AllocateHost(2 * layer.keys_bytes()).value();
  layer.keys = memory[0].data();
  layer.values = memory[1].data();
  Matrix wanted_q = q;
  Matrix wanted_k = k;
  const StepTables step = StepAt({kSlot}, {kRopeDim, rope.values});
  ASSERT_TRUE(reference->BeginStep(&step).ok());
  ASSERT_TRUE(reference
                  ->RopeAndStoreKv(Tensor(wanted_q.row(0), DType::kF32, 1, wanted_q.cols),
                                   Tensor(wanted_k.row(0), DType::kF32, 1, k.cols),
                                   Tensor(v.row(0), DType::kF32, 1, v.cols),
                                   {.table = 0, .pairing = pairing}, layer)
                  .ok());
  for (Matrix* row : {&q, &k}) {
    for (int64_t i = 0; i < row->cols / kDim * (kRopeDim / 2); ++i) {
      const int64_t pair = i % (kRopeDim / 2);
      const cuda::PairPlace place =
          cuda::PlaceOfPair(pairing == RopePairing::kHalves, pair, kRopeDim);
      float* first = row->row(0) + i / (kRopeDim / 2) * kDim + place.first;
      cuda::RotatePair(rope.row(0)[2 * pair], rope.row(0)[2 * pair + 1], first, first + place.step);
    }
  }
  if constexpr (kType == DType::kI8) {
    for (int64_t h = 0; h < kHeads; ++h) MixHead(kDim, MixedQueryScale(kDim), q.row(0) + h * kDim);
    for (int64_t h = 0; h < kKvHeads; ++h) MixHead(kDim, 1, k.row(0) + h * kDim);
  }
  ExpectSameBits(wanted_q, q);
  ExpectSameBits(wanted_k, k);
  constexpr int64_t kBlock = kSlot / kKvBlockTokens, kToken = kSlot % kKvBlockTokens;
  for (int64_t h = 0; h < kKvHeads; ++h) {
    const int64_t offset = cuda::KvHeadOffset<kType>(layer.block_stride, kDim, kBlock, h);
    for (auto [part, row, data] : {std::tuple(cuda::KvPart::kKeys, &k, &memory[2]),
                                   std::tuple(cuda::KvPart::kValues, &v, &memory[3])}) {
      const float* values = row->row(0) + h * kDim;
      char* head = data->chars().data() + offset;
      if constexpr (kType == DType::kI8) {
        uint32_t max_bits = 0;
        for (int64_t i = 0; i < kDim; ++i) {
          max_bits = std::max(max_bits, cuda::FloatToBits(values[i]) & 0x7fffffffu);
        }
        const cuda::ActivationScale scale = cuda::ScaleActivations(max_bits);
        for (int64_t i = 0; i < kDim; ++i) {
          cuda::StoreKvCode(part, values[i], scale, kDim, kToken, i, head);
        }
        cuda::StoreKvScale(scale, kDim, kToken, head);
      } else {
        for (int64_t i = 0; i < kDim; ++i) {
          cuda::StoreKv<kType>(part, values[i], kDim, kToken, i, head);
        }
      }
    }
  }
  EXPECT_EQ(memory[0].chars(), memory[2].chars());
  EXPECT_EQ(memory[1].chars(), memory[3].chars());
}

TEST(CudaArithmeticTest, RotatedPairsAndStoredValuesAreTheReferences) {
  static_assert(cuda::kBlockTokens == kKvBlockTokens);
  for (RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    CheckRopeAndStore<DType::kF16>(pairing);
    CheckRopeAndStore<DType::kF32>(pairing);
    CheckRopeAndStore<DType::kI8>(pairing);
  }
}

// As AttentionKernel. (The host's expf is the reference's, so even the bits agree here.)
template <DType kType>
void CheckAttention() {
  constexpr int64_t kDim = 20, kContext = 700;
  constexpr float kScale = 0.3f;
  Random random(45);
  auto reference = CreateBackend({.device = "reference"}).value();
  constexpr int32_t kBlocks = (kContext + kKvBlockTokens - 1) / kKvBlockTokens;
  DeviceKv kv(reference.get(), kType, kBlocks, 1, kDim);
  std::vector<int64_t> slots(kBlocks * kKvBlockTokens);
  std::iota(slots.begin(), slots.end(), 0);
  kv.Store(random.Normals(slots.size(), kDim), random.Normals(slots.size(), kDim), slots);
  Matrix q = random.Normals(1, kDim), wanted(1, kDim), got(1, kDim);
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i < kBlocks; ++i) blocks.push_back(kBlocks - 1 - i);
  StepTables step;
  AppendSequence(1, kContext - 1, blocks, &step);
  ASSERT_TRUE(reference->BeginStep(&step).ok());
  ASSERT_TRUE(reference
                  ->Attention(Tensor(q.row(0), DType::kF32, 1, kDim), kv.layer(), {.scale = kScale},
                              Tensor(wanted.row(0), DType::kF32, 1, kDim))
                  .ok());
  const char* keys = static_cast<const char*>(kv.layer().keys);
  const char* values = static_cast<const char*>(kv.layer().values);
  auto offset = [&](int64_t p) {
    return cuda::KvHeadOffset<kType>(kv.layer().block_stride, kDim, blocks[p / kKvBlockTokens], 0);
  };
  for (int64_t i = 0; i < kDim; ++i) {
    cuda::SoftmaxPartial total = {};
    for (int64_t begin = 0; begin < kContext; begin += kAttentionChunk) {
      const int64_t end = std::min<int64_t>(begin + kAttentionChunk, kContext);
      std::vector<float> scores;
      for (int64_t p = begin; p < end; ++p) {
        const int64_t token = p % kKvBlockTokens;
        float dot = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          dot =
              fmaf(q.row(0)[d],
                   cuda::LoadKv<kType>(cuda::KvPart::kKeys, keys + offset(p), kDim, token, d), dot);
        }
        scores.push_back(dot * cuda::LoadKvScale<kType>(keys + offset(p), kDim, token) * kScale);
      }
      cuda::SoftmaxPartial chunk = {*std::max_element(scores.begin(), scores.end()), 0, 0};
      for (int64_t p = begin; p < end; ++p) {
        const int64_t token = p % kKvBlockTokens;
        const float weight = expf(scores[p - begin] - chunk.max);
        cuda::AddPosition(
            weight, weight * cuda::LoadKvScale<kType>(values + offset(p), kDim, token),
            cuda::LoadKv<kType>(cuda::KvPart::kValues, values + offset(p), kDim, token, i), &chunk);
      }
      if (begin == 0) {
        total = chunk;
      } else {
        cuda::MergePartial(chunk, &total);
      }
    }
    got.row(0)[i] = total.value / total.sum;
  }
  ExpectSameBits(wanted, got);
}

TEST(CudaArithmeticTest, AttentionInChunksIsTheReferences) {
  CheckAttention<DType::kF32>();
  CheckAttention<DType::kF16>();
  CheckAttention<DType::kI8>();
}

TEST(CudaArithmeticTest, ActivationsAreTheReferences) {
  Random random(46);
  auto reference = CreateBackend({.device = "reference"}).value();
  Matrix gate = random.Normals(1, 200), up = random.Normals(1, 200), wanted(1, 200), got(1, 200);
  for (float& value : gate.values) value *= 40;
  auto tensor = [](Matrix& matrix) { return Tensor(matrix.row(0), DType::kF32, 1, matrix.cols); };
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kSigmoid}) {
    ASSERT_TRUE(
        reference->GatedActivation(activation, tensor(gate), tensor(up), tensor(wanted)).ok());
    for (int i = 0; i < 200; ++i) {
      got.row(0)[i] = cuda::Activate(activation, gate.row(0)[i]) * up.row(0)[i];
    }
    ExpectSameBits(wanted, got);
  }
}

TEST(CudaArithmeticTest, RowFactorsArePowersOfTwoThatMakeRoomInF16) {
  for (float largest : {1e-45f, 1e-38f, 1e-20f, 0.5f, 1.0f, 1.9f, 65504.0f, 1e6f, 3e38f}) {
    float factor = cuda::RowFactor(std::bit_cast<uint32_t>(largest));
    int exponent;
    EXPECT_EQ(std::frexp(factor, &exponent), 0.5f) << largest;
    EXPECT_LT(largest * factor, 4.0f) << largest;
    EXPECT_EQ(largest * factor / factor, largest);
    if (largest > 1e-37f) {
      EXPECT_GE(largest * factor, 1.0f) << largest;
    }
  }
  for (float odd : {0.0f, INFINITY, NAN}) {
    EXPECT_EQ(cuda::RowFactor(std::bit_cast<uint32_t>(odd)), 1.0f);
  }
}

TEST(CudaArithmeticTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(cuda::StoreBf16(1.0f), 0x3f80);
  EXPECT_EQ(cuda::StoreBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, to even
  EXPECT_EQ(cuda::StoreBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // a tie, to even
  EXPECT_EQ(cuda::StoreBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(cuda::StoreBf16(-3.4e38f), 0xff80);  // overflow
  EXPECT_EQ(cuda::StoreBf16(INFINITY), 0x7f80);
  EXPECT_TRUE(std::isnan(cuda::LoadBf16(cuda::StoreBf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace lm

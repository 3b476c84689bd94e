#include "tests/engine/backend/backend_fixture.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_replace.h"
#include "engine/base/float16.h"
#include "engine/base/random.h"

namespace lm {
namespace {

constexpr float kPaddingValue = 1234.5f;

// The binary16 numbers of a block: byte offset, and how large to make them.
struct HalfField {
  DType dtype;
  int offset;
  float size;
};
constexpr HalfField kHalfFields[] = {
    {DType::kQ4_0, 0, 0.2f},    {DType::kQ4_1, 0, 0.2f},     {DType::kQ4_1, 2, -1.0f},
    {DType::kQ5_0, 0, 0.1f},    {DType::kQ5_1, 0, 0.1f},     {DType::kQ5_1, 2, -1.0f},
    {DType::kQ8_0, 0, 0.01f},   {DType::kQ2_K, 80, 0.05f},   {DType::kQ2_K, 82, 0.05f},
    {DType::kQ3_K, 108, 0.02f}, {DType::kQ4_K, 0, 0.004f},   {DType::kQ4_K, 2, 0.02f},
    {DType::kQ5_K, 0, 0.002f},  {DType::kQ5_K, 2, 0.02f},    {DType::kQ6_K, 208, 0.001f},
    {DType::kIQ4_NL, 0, 0.01f}, {DType::kIQ4_XS, 0, 0.001f}, {DType::kIQ3_XXS, 0, 0.005f},
    {DType::kIQ3_S, 0, 0.005f}, {DType::kIQ2_XXS, 0, 0.01f}, {DType::kIQ2_XS, 0, 0.01f},
    {DType::kIQ2_S, 0, 0.01f},  {DType::kIQ1_S, 0, 0.1f},    {DType::kTQ1_0, 52, 1.0f},
    {DType::kTQ2_0, 64, 1.0f},  {DType::kQ1_0, 0, 1.0f},     {DType::kQ2_0, 0, 1.0f},
};

}  // namespace

Matrix Matrix::Rows(int64_t begin, int64_t count) const {
  Matrix part(count, cols);
  std::copy_n(values.begin() + begin * cols, count * cols, part.values.begin());
  return part;
}

int64_t Random::Int(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(RandomBits(seed_, counter_++) %
                                    (static_cast<uint64_t>(high) - low + 1));
}

// Of a table, since most of the suite's inputs are such, and times something near 1.
float Random::Normal() {
  static const auto* const normals = [] {
    auto* table = new std::array<float, 4096>;
    uint64_t counter = 0;
    for (float& value : *table) {
      const double u = 1.0 - RandomUniform(0, counter++);
      const double angle = 6.283185307179586 * RandomUniform(0, counter++);
      value = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
    return table;
  }();
  const uint64_t bits = RandomBits(seed_, counter_++);
  const auto fraction = static_cast<float>(static_cast<uint32_t>(bits >> 40));  // 24 bits
  return (*normals)[bits % normals->size()] * (0.875f + 0.25f * 0x1p-24f * fraction);
}

Matrix Random::Normals(int64_t rows, int64_t cols) {
  Matrix matrix(rows, cols);
  for (float& value : matrix.values) value = Normal();
  return matrix;
}

std::vector<DType> WeightTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dtype != DType::kI8 && dtype != DType::kI16 && dtype != DType::kI32) types.push_back(dtype);
  }
  return types;
}

Buffer RandomWeights(DType dtype, int64_t rows, int64_t cols, Random* random) {
  Buffer buffer = Buffer::AllocateHost(rows * RowBytes(dtype, cols)).value();
  char* data = buffer.chars().data();
  if (!Traits(dtype).quantised) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      float value = random->Normal();
      uint16_t half = dtype == DType::kF16
                          ? FloatToHalf(value)
                          : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      if (dtype == DType::kF32) {
        std::memcpy(data + 4 * i, &value, 4);
      } else {
        std::memcpy(data + 2 * i, &half, 2);
      }
    }
    return buffer;
  }
  for (size_t i = 0; i < buffer.bytes(); ++i) data[i] = static_cast<char>(random->Int(0, 255));
  int block_bytes = Traits(dtype).block_bytes;
  for (size_t block = 0; block < buffer.bytes() / block_bytes; ++block) {
    for (const HalfField& field : kHalfFields) {
      if (field.dtype != dtype) continue;
      uint16_t half = FloatToHalf(field.size * (1 + 0.2f * random->Normal()));
      std::memcpy(data + block * block_bytes + field.offset, &half, 2);
    }
  }
  if (dtype == DType::kMXFP4) {  // a power of two: e stands for 2^(e - 128)
    for (size_t at = 0; at < buffer.bytes(); at += block_bytes) {
      data[at] = static_cast<char>(random->Int(122, 126));
    }
  }
  if (dtype == DType::kIQ1_M) {  // its d has four bits at the end of each of the last four words
    constexpr uint16_t kD = 0x2e00;
    for (size_t at = 0; at < buffer.bytes(); at += block_bytes) {
      for (int i = 0; i < 4; ++i) {
        char& byte = data[at + 49 + 2 * i];
        byte = static_cast<char>((byte & 15) | (kD >> 4 * i & 15) << 4);
      }
    }
  }
  return buffer;
}

Buffer CopyOf(const Buffer& buffer) {
  Buffer copy = Buffer::AllocateHost(buffer.bytes()).value();
  std::memcpy(copy.data(), buffer.data(), buffer.bytes());
  return copy;
}

DeviceMatrix::DeviceMatrix(Backend* backend, const Matrix& matrix, int64_t padding)
    : backend_(backend) {
  int64_t wide = matrix.cols + padding;
  std::vector<float> values(std::max<int64_t>(matrix.rows * wide, 1), kPaddingValue);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    std::copy_n(matrix.values.begin() + i * matrix.cols, matrix.cols, values.begin() + i * wide);
  }
  buffer_ = backend->Allocate(values.size() * sizeof(float)).value();
  EXPECT_TRUE(backend->Upload(values.data(), buffer_.data(), buffer_.bytes()).ok());
  tensor_ = Tensor(buffer_.data(), DType::kF32, matrix.rows, wide).Cols(0, matrix.cols);
}

Matrix DeviceMatrix::Download() const {
  Matrix matrix(tensor_.rows, tensor_.cols);
  int64_t wide = tensor_.row_bytes / static_cast<int64_t>(sizeof(float));
  std::vector<float> values(buffer_.bytes() / sizeof(float));
  EXPECT_TRUE(backend_->Download(buffer_.data(), values.data(), buffer_.bytes()).ok());
  for (int64_t i = 0; i < tensor_.rows; ++i) {
    std::copy_n(values.begin() + i * wide, tensor_.cols, matrix.row(i));
    for (int64_t j = tensor_.cols; j < wide; ++j) {
      EXPECT_EQ(values[i * wide + j], kPaddingValue) << "written beside row " << i;
    }
  }
  return matrix;
}

double Tolerance(absl::string_view op) {
  static constexpr struct {
    absl::string_view op;
    double tolerance;
  } kTolerances[] = {
      {"RmsNorm", 5e-7},         {"Normalize", 5e-7},       {"ScaleAndCap", 5e-7},
      {"ScaleGroups", 5e-7},     {"CombineSlots", 5e-7},    {"Attention", 2e-6},
      {"CappedAttention", 2e-5}, {"GatedActivation", 5e-7}, {"CausalConv", 5e-7},
      {"DeltaRule", 5e-6},       {"MixStreams", 2e-6},      {"PoolRows", 5e-6},
      {"ScoreRows", 2e-6},       {"AttendRows", 2e-6},      {"BalanceStreams", 2e-6}};
  for (const auto& entry : kTolerances) {
    if (entry.op == op) return entry.tolerance;
  }
  return 0;
}

namespace {

void ExpectWithin(double tolerance, absl::string_view op, const Matrix& wanted, const Matrix& got) {
  ASSERT_EQ(wanted.values.size(), got.values.size());
  double largest = 0;
  for (float value : wanted.values) largest = std::max(largest, std::abs(double{value}));
  double worst = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    double difference = std::abs(double{wanted.values[i]} - got.values[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  EXPECT_LE(worst, tolerance * largest) << op;
}

}  // namespace

void ExpectMatches(absl::string_view op, const Matrix& wanted, const Matrix& got) {
  if (Tolerance(op) == 0) return ExpectSameBits(wanted, got);
  ExpectWithin(Tolerance(op), op, wanted, got);
}

void ExpectAttention(const Backend& backend, DType cache, absl::string_view op,
                     const Matrix& wanted, const Matrix& got) {
  const bool rounds = (cache == DType::kF16 || cache == DType::kI8) &&
                      backend.numeric_contract() == NumericContract::kRowInvariant;
  const double coded = cache == DType::kI16 ? 5e-5 : 0;
  ExpectWithin(rounds ? 5e-4 : std::max(coded, Tolerance(op)), op, wanted, got);
}

double ProductTolerance(const Backend& backend, DType weights) {
  if (backend.numeric_contract() == NumericContract::kExactBlocks) return 0;
  if (weights == DType::kF32) return 0;
  if (weights == DType::kF16) return 1e-3;   // its activations have 11 bits
  if (weights == DType::kBF16) return 1e-4;  // 16
  return 2e-6;                               // sums of the same terms
}

void ExpectProduct(const Backend& backend, DType weights, const Matrix& wanted, const Matrix& got) {
  const double tolerance = ProductTolerance(backend, weights);
  if (tolerance == 0) return ExpectSameBits(wanted, got);
  ASSERT_EQ(wanted.values.size(), got.values.size());
  double largest_of_all = 0;  // of one sum alone the terms can be much greater than what is left
  for (const float value : wanted.values) {
    largest_of_all = std::max(largest_of_all, std::abs(double{value}));
  }
  for (int64_t t = 0; t < wanted.rows; ++t) {
    const float* row = wanted.values.data() + t * wanted.cols;
    double largest = wanted.cols < 8 ? largest_of_all : 0;
    for (int64_t n = 0; n < wanted.cols; ++n) largest = std::max(largest, std::abs(double{row[n]}));
    for (int64_t n = 0; n < wanted.cols; ++n) {
      ASSERT_NEAR(got.values[t * wanted.cols + n], row[n], tolerance * largest)
          << "row " << t << ", column " << n;
    }
  }
}

void ExpectSameBits(const Matrix& wanted, const Matrix& got) {
  ASSERT_EQ(wanted.values.size(), got.values.size());
  for (size_t i = 0; i < got.values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wanted.values[i]), std::bit_cast<uint32_t>(got.values[i]))
        << "row " << i / wanted.cols << ", column " << i % wanted.cols << ": wanted "
        << wanted.values[i] << ", got " << got.values[i];
  }
}

void BackendTest::SetUp() {
  backend_ = WithThreads(2);
  reference_ = CreateBackend({.device = "reference"}).value();
  if (GetParam().device == "cpu" && GetParam().isa != Isa::kPortable) {
    portable_ = CreateBackend({.device = "cpu", .threads = 2, .isa = Isa::kPortable}).value();
  }
}

std::unique_ptr<Backend> BackendTest::WithThreads(int threads) {
  BackendOptions options = GetParam();
  options.threads = threads;
  return CreateBackend(options).value();
}

std::vector<BackendOptions> TestedBackends() {
  std::vector<BackendOptions> all = AvailableBackends();
  all.push_back({.device = "cpu+cpu", .least_split_bytes = 0});
  // One GPU alone can be two of them.
  for (const char* device : {"cuda:0+cuda:1", "cuda:0+cuda:0"}) {
    const BackendOptions gpus = {.device = device, .least_split_bytes = 0};
    if (!CreateBackend(gpus).ok()) continue;
    all.push_back(gpus);
    break;
  }
  return all;
}

std::string BackendName(const testing::TestParamInfo<BackendOptions>& info) {
  if (info.param.device != "cpu") {
    return absl::StrReplaceAll(info.param.device, {{":", "_"}, {"+", "_and_"}});
  }
  return info.param.device + "_" + std::string(IsaName(info.param.isa).data());
}

}  // namespace lm

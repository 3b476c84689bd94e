#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

class MatMulTest : public BackendTest {
 protected:
  static std::unique_ptr<WeightMatrix> Load(Backend* backend, DType dtype, int64_t n, int64_t k,
                                            const Buffer& blocks) {
    return backend->LoadMatrix(dtype, n, k, CopyOf(blocks)).value();
  }

  static std::unique_ptr<WeightMatrix> LoadScaled(Backend* backend, DType dtype, int64_t n,
                                                  int64_t k, const Buffer& blocks,
                                                  const Matrix& scales) {
    std::unique_ptr<WeightMatrix> w = Load(backend, dtype, n, k, blocks);
    Buffer buffer = backend->Allocate(n * sizeof(float)).value();
    EXPECT_TRUE(backend->Upload(scales.values.data(), buffer.data(), buffer.bytes()).ok());
    w->set_row_scales(std::move(buffer));
    return w;
  }

  static Matrix Multiply(Backend* backend, const WeightMatrix& w, const Matrix& x,
                         const Matrix* bias = nullptr, int64_t padding = 0) {
    DeviceMatrix device_x(backend, x, padding);
    DeviceMatrix device_out(backend, x.rows, w.rows(), padding);
    DeviceMatrix device_bias(backend, bias != nullptr ? *bias : Matrix(1, w.rows()));
    absl::Status status =
        backend->MatMul(w, device_x.tensor(), bias != nullptr ? device_bias.tensor() : Tensor(),
                        device_out.tensor());
    EXPECT_TRUE(status.ok()) << status;
    return device_out.Download();
  }
};

TEST_P(MatMulTest, EveryTypeMatchesReference) {
  Random random(2);
  for (DType dtype : WeightTypes()) {
    int64_t block = std::max(Traits(dtype).block_size, 32);
    for (int round = 0; round < 6; ++round) {
      int64_t n = random.Int(1, 70);
      int64_t k = block * random.Int(1, 1024 / block);
      int64_t t = round == 0 ? 1 : random.Int(1, 40);
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " n=", n, " k=", k, " t=", t));
      Buffer blocks = RandomWeights(dtype, n, k, &random);
      Matrix x = random.Normals(t, k);
      Matrix bias = random.Normals(1, n);
      Matrix* bias_or_none = round % 2 == 0 ? &bias : nullptr;
      auto wanted = Multiply(reference(), *Load(reference(), dtype, n, k, blocks), x, bias_or_none);
      auto got = Multiply(backend(), *Load(backend(), dtype, n, k, blocks), x, bias_or_none, round);
      ExpectProduct(*backend(), dtype, wanted, got);
    }
  }
}

// As soon as they are loaded, with some of them laid out, and with all.
TEST_P(MatMulTest, LastingMatricesHaveTheirBitsAtAnyTime) {
  Random random(12);
  for (DType dtype : WeightTypes()) {
    SCOPED_TRACE(std::string(Traits(dtype).name));
    // So many bytes are laid out in two turns; a device has them laid out at once.
    const bool on_host = backend()->uses_host_memory();
    const bool by_turns = on_host && (dtype == DType::kQ8_0 || dtype == DType::kF16);
    const int64_t k = on_host ? 1024 : 256;
    const int64_t n = by_turns ? (3 << 20) / RowBytes(dtype, k) + 13 : on_host ? 141 : 35;
    const Buffer blocks = RandomWeights(dtype, n, k, &random);
    const int64_t row_bytes = RowBytes(dtype, k);
    std::atomic<int64_t> reads{0};
    auto read = [&](int64_t first, int64_t count, char* to) {
      reads += count;
      std::memcpy(to, blocks.chars().data() + first * row_bytes, count * row_bytes);
      return absl::OkStatus();
    };
    const auto wanted = Load(backend(), dtype, n, k, blocks);
    const auto w = backend()->LoadLastingMatrix(dtype, n, k, read).value();
    EXPECT_EQ(reads, backend()->lays_out_later() ? 0 : n);
    EXPECT_EQ(w->bytes(), wanted->bytes());
    const Matrix one = random.Normals(1, k);
    const Matrix some = random.Normals(!on_host ? 9 : Traits(dtype).quantised ? 26 : 130, k);
    const std::vector<int32_t> tokens = {0, static_cast<int32_t>(n - 1), 17};
    StepTables tables;
    tables.Append(tokens.data(), 3, 0);
    ASSERT_TRUE(backend()->BeginStep(&tables).ok());
    auto expect_same = [&] {
      ExpectSameBits(Multiply(backend(), *wanted, one), Multiply(backend(), *w, one));
      ExpectSameBits(Multiply(backend(), *wanted, some), Multiply(backend(), *w, some));
      DeviceMatrix rows(backend(), 3, k), wanted_rows(backend(), 3, k);
      ASSERT_TRUE(backend()->Embed(*wanted, 1, wanted_rows.tensor()).ok());
      ASSERT_TRUE(backend()->Embed(*w, 1, rows.tensor()).ok());
      ExpectSameBits(wanted_rows.Download(), rows.Download());
    };
    expect_same();
    if (backend()->LayOutMore(absl::ZeroDuration()).value()) {
      EXPECT_TRUE(by_turns);
      expect_same();
      EXPECT_FALSE(backend()->LayOutMore(absl::InfiniteDuration()).value());
    }
    const int64_t before = reads;
    expect_same();
    EXPECT_EQ(reads, before);
  }
}

TEST_P(MatMulTest, WhatALastingMatrixCannotReadIsAnError) {
  Random random(13);
  for (const DType dtype : {DType::kQ8_0, DType::kF16}) {
    const Buffer blocks = RandomWeights(dtype, 200, 64, &random);
    const int64_t row_bytes = RowBytes(dtype, 64);
    bool gone = false;
    auto read = [&](int64_t first, int64_t count, char* to) {
      if (gone && first <= 150 && 150 < first + count) {
        return absl::DataLossError("row 150 is gone");
      }
      std::memcpy(to, blocks.chars().data() + first * row_bytes, count * row_bytes);
      return absl::OkStatus();
    };
    auto w = backend()->LoadLastingMatrix(dtype, 200, 64, read).value();
    gone = true;
    const absl::StatusOr<bool> lays_out_later = backend()->LayOutMore(absl::ZeroDuration());
    if (lays_out_later.ok()) continue;  // it was laid out at once
    EXPECT_EQ(lays_out_later.status().message(), "row 150 is gone");
    for (const int64_t t : {1, 130}) {
      DeviceMatrix x(backend(), random.Normals(t, 64)), out(backend(), t, 200);
      const absl::Status status = backend()->MatMul(*w, x.tensor(), {}, out.tensor());
      EXPECT_EQ(status.message(), "row 150 is gone") << t;
    }
    const int32_t token = 150;
    StepTables tables;
    tables.Append(&token, 1, 0);
    ASSERT_TRUE(backend()->BeginStep(&tables).ok());
    DeviceMatrix row(backend(), 1, 64);
    EXPECT_EQ(backend()->Embed(*w, 1, row.tensor()).message(), "row 150 is gone");
    w = nullptr;
    EXPECT_FALSE(backend()->LayOutMore(absl::ZeroDuration()).value());  // of nothing
  }
}

// Sums that a kernel keeps in few bits are no greater than these.
TEST_P(MatMulTest, TheGreatestIntegerSumsMatchReference) {
  struct Codes {
    DType dtype;
    int begin, end;  // of a block's bytes
  };
  constexpr Codes kTypes[] = {
      {DType::kQ4_0, 2, 18},  {DType::kQ4_1, 4, 20},   {DType::kQ5_0, 2, 22},
      {DType::kQ5_1, 4, 24},  {DType::kQ8_0, 2, 34},   {DType::kQ2_K, 16, 80},
      {DType::kQ3_K, 0, 96},  {DType::kQ4_K, 16, 144}, {DType::kQ5_K, 16, 176},
      {DType::kQ6_K, 0, 192}, {DType::kIQ4_NL, 2, 18}, {DType::kIQ4_XS, 8, 136},
      {DType::kMXFP4, 1, 17},
  };
  constexpr int64_t kRows = 35;
  Random random(7);
  for (const Codes& codes : kTypes) {
    const int64_t k = std::max(Traits(codes.dtype).block_size, 64);
    Buffer blocks = RandomWeights(codes.dtype, kRows, k, &random);
    // The greatest codes, the smallest, of tables and of signed bytes the ends of both signs.
    constexpr uint8_t kEnds[] = {0xff, 0x00, 0x77, 0x80};
    const int64_t block_bytes = Traits(codes.dtype).block_bytes;
    const int64_t row_bytes = RowBytes(codes.dtype, k);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t at = 0; at < row_bytes; at += block_bytes) {
        char* block = blocks.chars().data() + row * row_bytes + at;
        std::fill(block + codes.begin, block + codes.end, static_cast<char>(kEnds[row % 4]));
      }
    }
    for (const int64_t tokens : {1, 2, 4, 11, 17, 25}) {
      SCOPED_TRACE(absl::StrCat(Traits(codes.dtype).name, " t=", tokens));
      Matrix x(tokens, k);
      for (int64_t i = 0; i < tokens * k; ++i) x.values[i] = i / k % 2 == 0 ? 1.0f : -1.0f;
      ExpectProduct(*backend(), codes.dtype,
                    Multiply(reference(), *Load(reference(), codes.dtype, kRows, k, blocks), x),
                    Multiply(backend(), *Load(backend(), codes.dtype, kRows, k, blocks), x));
    }
  }
}

TEST_P(MatMulTest, RowScalesMatchReferenceAndMultiplyWhatIsWithoutThem) {
  Random random(6);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kNVFP4}) {
    for (int64_t t : {1, 9, 300}) {
      const int64_t n = random.Int(60, 70), k = 512;
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " n=", n, " t=", t));
      const Buffer blocks = RandomWeights(dtype, n, k, &random);
      const Matrix x = random.Normals(t, k), scales = random.Normals(1, n);
      const Matrix bias = random.Normals(1, n);
      const auto w = LoadScaled(backend(), dtype, n, k, blocks, scales);
      const auto wanted = LoadScaled(reference(), dtype, n, k, blocks, scales);
      const Matrix biased = Multiply(backend(), *w, x, &bias);
      ExpectProduct(*backend(), dtype, Multiply(reference(), *wanted, x, &bias), biased);
      Matrix plain = Multiply(backend(), *Load(backend(), dtype, n, k, blocks), x);
      for (int64_t i = 0; i < t * n; ++i) plain.values[i] *= scales.values[i % n];
      ExpectSameBits(plain, Multiply(backend(), *w, x));
      for (int64_t i = 0; i < t * n; ++i) plain.values[i] += bias.values[i % n];
      ExpectSameBits(plain, biased);
    }
  }
}

TEST_P(MatMulTest, FloatWeightsTakeAnyWidth) {
  Random random(3);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    // The last two end in parts of a chunk: of its first half, and of its second.
    for (int64_t k : {1, 7, 33, 129, 300, 450}) {
      int64_t n = random.Int(1, 40);
      Buffer blocks = RandomWeights(dtype, n, k, &random);
      Matrix x = random.Normals(k < 256 ? random.Int(1, 9) : 40, k);
      ExpectProduct(*backend(), dtype,
                    Multiply(reference(), *Load(reference(), dtype, n, k, blocks), x),
                    Multiply(backend(), *Load(backend(), dtype, n, k, blocks), x));
    }
  }
}

TEST_P(MatMulTest, LongRowsMatchReference) {
  Random random(4);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    constexpr int64_t kCols = 8192;
    Buffer blocks = RandomWeights(dtype, 5, kCols, &random);
    Matrix x = random.Normals(3, kCols);
    ExpectProduct(*backend(), dtype,
                  Multiply(reference(), *Load(reference(), dtype, 5, kCols, blocks), x),
                  Multiply(backend(), *Load(backend(), dtype, 5, kCols, blocks), x));
  }
}

// More panels of rows than a device's thread blocks have two of each, an odd number; and more
// tokens than one of them makes.
TEST_P(MatMulTest, TallMatricesMatchReference) {
  Random random(17);
  struct Shape {
    int64_t rows, t, k;
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    for (const auto& [rows, t, k] :
         {Shape{8453, 1, 768}, {8453, 5, 256}, {8453, 11, 256}, {70, 61, 768}}) {
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " rows=", rows, " t=", t));
      const Buffer blocks = RandomWeights(dtype, rows, k, &random);
      const Matrix x = random.Normals(t, k);
      ExpectProduct(*backend(), dtype,
                    Multiply(reference(), *Load(reference(), dtype, rows, k, blocks), x),
                    Multiply(backend(), *Load(backend(), dtype, rows, k, blocks), x));
    }
  }
}

// Large enough for few tokens' products to read several places side by side: chunks of a row, five
// and a part of one, or pairs of panels. 95 of these are items of eight for two threads, and one of
// seven.
TEST_P(MatMulTest, PlacesReadSideBySideHaveTheBitsOfOne) {
  constexpr int64_t kRows = 3030, kFew = 4;
  Random random(23);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                            DType::kQ5_1, DType::kQ2_K, DType::kQ4_K, DType::kQ6_K}) {
    const int64_t cols = Traits(dtype).quantised ? 2048 : 5 * 256 + 72;
    const auto w = Load(backend(), dtype, kRows, cols, RandomWeights(dtype, kRows, cols, &random));
    const Matrix x = random.Normals(10, cols), bias = random.Normals(1, kRows);
    const Matrix all = Multiply(backend(), *w, x), biased = Multiply(backend(), *w, x, &bias);
    for (int64_t count = 1, begin = 0; count <= kFew; begin += count++) {
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " tokens=", count));
      const Matrix few = x.Rows(begin, count);
      ExpectSameBits(all.Rows(begin, count), Multiply(backend(), *w, few));
      ExpectSameBits(biased.Rows(begin, count), Multiply(backend(), *w, few, &bias));
    }
  }
}

// What waits to be launched on a device with others of its kind keeps the memory that it needs.
TEST_P(MatMulTest, ProductsOfSeveralWidthsInTurnMatchReference) {
  constexpr int64_t kRows = 16;
  Random random(18);
  std::vector<std::unique_ptr<DeviceMatrix>> inputs, outs;
  std::vector<std::unique_ptr<WeightMatrix>> weights;
  std::vector<Matrix> wanted;
  for (const int64_t k : {14336, 4096, 256}) {
    const Buffer blocks = RandomWeights(DType::kQ4_K, kRows, k, &random);
    const Matrix x = random.Normals(1, k);
    wanted.push_back(Multiply(reference(), *Load(reference(), DType::kQ4_K, kRows, k, blocks), x));
    weights.push_back(Load(backend(), DType::kQ4_K, kRows, k, blocks));
    inputs.push_back(std::make_unique<DeviceMatrix>(backend(), x));
    outs.push_back(std::make_unique<DeviceMatrix>(backend(), 1, kRows));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_TRUE(backend()->MatMul(*weights[i], inputs[i]->tensor(), {}, outs[i]->tensor()).ok());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    ExpectProduct(*backend(), DType::kQ4_K, wanted[i], outs[i]->Download());
  }
}

TEST_P(MatMulTest, ARowHasTheSameBitsInEveryBatchOnAnyThreads) {
  Random random(5);
  constexpr int64_t kRows = 150;
  for (DType dtype : WeightTypes()) {
    SCOPED_TRACE(Traits(dtype).name);
    int64_t n = 2 * 33;
    int64_t k = 512;
    Buffer blocks = RandomWeights(dtype, n, k, &random);
    Matrix x = random.Normals(kRows, k);
    auto w = Load(backend(), dtype, n, k, blocks);
    Matrix all = Multiply(backend(), *w, x);
    for (int64_t begin = 0, count; begin < kRows; begin += count) {
      count = std::min<int64_t>(random.Int(1, 25), kRows - begin);
      ExpectSameBits(all.Rows(begin, count), Multiply(backend(), *w, x.Rows(begin, count)));
    }
    for (int threads : {1, 3}) {
      auto other = WithThreads(threads);
      ExpectSameBits(all, Multiply(other.get(), *Load(other.get(), dtype, n, k, blocks), x));
    }
  }
}

// So many that a GPU takes larger blocks.
TEST_P(MatMulTest, ManyTokensOfALargeMatrixHaveTheBitsOfFew) {
  constexpr int64_t kMatrixRows = 2100, kTokens = 1930, kCols = 72;
  Random random(22);
  const Buffer blocks = RandomWeights(DType::kF16, kMatrixRows, kCols, &random);
  const Matrix x = random.Normals(kTokens, kCols);
  const auto w = Load(backend(), DType::kF16, kMatrixRows, kCols, blocks);
  const Matrix all = Multiply(backend(), *w, x);
  for (const auto& [begin, count] : {std::pair{0, 33}, {1000, 140}, {1929, 1}}) {
    ExpectSameBits(all.Rows(begin, count), Multiply(backend(), *w, x.Rows(begin, count)));
  }
}

// Of every kind of input and result, in batches of every size, with and without bias.
TEST_P(MatMulTest, ProjectHasTheBitsOfTheOpsItIsMadeOf) {
  Random random(9);
  for (DType dtype : WeightTypes()) {
    for (int round = 0; round < 12; ++round) {
      const int64_t block = std::max(Traits(dtype).block_size, 32);
      const int64_t n = round % 2 == 0 ? 32 : random.Int(1, 40);
      const int64_t k = block * random.Int(1, 512 / block);
      // So many that oneDNN multiplies floats.
      const bool many = round == 5 && !Traits(dtype).quantised;
      const int64_t t = many ? 140 : round < 2 ? 1 : round % 6 == 3 ? 27 : random.Int(1, 20);
      const auto kind = static_cast<ProductInput::Kind>((round + round / 4) % 4);
      const bool adds = round % 4 >= 2, has_bias = round >= 8;
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " n=", n, " k=", k, " t=", t, " kind ",
                                static_cast<int>(kind), adds ? " added" : "",
                                has_bias ? " bias" : ""));
      auto w = Load(backend(), dtype, n, k, RandomWeights(dtype, n, k, &random));
      const bool gated = kind == ProductInput::Kind::kGated;
      const auto activation = round % 2 == 0 ? Activation::kSilu : Activation::kGeluTanh;
      DeviceMatrix x(backend(), random.Normals(t, gated ? 2 * k : k), round);
      DeviceMatrix gain(backend(), random.Normals(1, k)), bias(backend(), random.Normals(1, n));
      const Tensor bias_or_none = has_bias ? bias.tensor() : Tensor();
      const Matrix before = random.Normals(t, n);
      DeviceMatrix wanted(backend(), before, round), got(backend(), before, round);

      DeviceMatrix made(backend(), t, k), product(backend(), t, n);
      const Norm norm = {.kind = round % 8 < 5 ? NormKind::kRms : NormKind::kLayer,
                         .weight = gain.tensor(),
                         .bias = has_bias ? gain.tensor() : Tensor(),
                         .eps = 1e-5f};
      Tensor input = made.tensor();
      if (kind == ProductInput::Kind::kPlain) input = x.tensor();
      if (kind == ProductInput::Kind::kNormed) {
        ASSERT_TRUE(backend()->Normalize(x.tensor(), norm, input).ok());
      } else if (kind == ProductInput::Kind::kActivated) {
        ASSERT_TRUE(backend()->GatedActivation(activation, x.tensor(), {}, input).ok());
      } else if (gated) {
        ASSERT_TRUE(
            backend()
                ->GatedActivation(activation, x.tensor().Cols(0, k), x.tensor().Cols(k, k), input)
                .ok());
      }
      if (adds) {
        ASSERT_TRUE(backend()->MatMul(*w, input, bias_or_none, product.tensor()).ok());
        ASSERT_TRUE(backend()->Add(wanted.tensor(), product.tensor(), 1).ok());
      } else {
        ASSERT_TRUE(backend()->MatMul(*w, input, bias_or_none, wanted.tensor()).ok());
      }

      const absl::Status status = backend()->Project(
          *w, {.kind = kind, .x = x.tensor(), .norm = norm, .activation = activation}, bias_or_none,
          adds ? ProductResult::kIsAdded : ProductResult::kReplaces, got.tensor());
      ASSERT_TRUE(status.ok()) << status;
      ExpectSameBits(wanted.Download(), got.Download());
    }
  }
}

TEST_P(MatMulTest, ProductsMadeAtOnceHaveTheBitsOfOneAfterTheOther) {
  Random random(21);
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_K, DType::kF16, DType::kIQ2_S};
  constexpr int kProducts = 11;
  for (ProductResult result : {ProductResult::kReplaces, ProductResult::kIsAdded}) {
    std::vector<std::unique_ptr<WeightMatrix>> weights;
    std::vector<DeviceMatrix> inputs, biases, wanted, got;
    std::vector<MatrixProduct> products;
    for (int i = 0; i < kProducts; ++i) {
      const DType dtype = kTypes[i % 4];
      const int64_t n = random.Int(1, 200), k = 256 * random.Int(1, 4),
                    t = random.Int(0, 3) * 9 / 2;
      const bool gated = i % 3 == 0;
      weights.push_back(Load(backend(), dtype, n, k, RandomWeights(dtype, n, k, &random)));
      const Matrix out = random.Normals(t, n);
      inputs.emplace_back(backend(), random.Normals(t, gated ? 2 * k : k));
      biases.emplace_back(backend(), random.Normals(1, n));
      wanted.emplace_back(backend(), out);
      got.emplace_back(backend(), out);
      const Tensor x = inputs.back().tensor();
      products.push_back(
          {weights.back().get(),
           gated ? ProductInput::Gated(x, Activation::kSilu) : ProductInput::Plain(x),
           i % 2 == 0 ? biases.back().tensor() : Tensor(), got.back().tensor()});
    }
    for (int i = 0; i < kProducts; ++i) {
      const MatrixProduct& product = products[i];
      const absl::Status status =
          backend()->Project(*product.w, product.input, product.bias, result, wanted[i].tensor());
      ASSERT_TRUE(status.ok()) << status;
    }
    const absl::Status status = backend()->ProjectAll(products, result);
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < kProducts; ++i) ExpectSameBits(wanted[i].Download(), got[i].Download());
  }
}

TEST_P(MatMulTest, WantedColumnsHaveTheBitsOfTheWholeProduct) {
  Random random(10);
  for (DType dtype : WeightTypes()) {
    for (int64_t t : {1, 9, Traits(dtype).quantised ? 26 : 130}) {
      SCOPED_TRACE(absl::StrCat(Traits(dtype).name, " t=", t));
      constexpr int64_t kRows = 5 * 64 + 17, kCols = 256;
      auto w = Load(backend(), dtype, kRows, kCols, RandomWeights(dtype, kRows, kCols, &random));
      const Matrix x = random.Normals(t, kCols);
      const std::vector<uint64_t> wanted = {0, 1, 0, uint64_t{1} << 63, 0, 4};
      DeviceMatrix device_x(backend(), x), out(backend(), t, kRows);
      ASSERT_TRUE(backend()->MatMulColumns(*w, device_x.tensor(), wanted, out.tensor()).ok());
      Matrix all = Multiply(backend(), *w, x), got = out.Download();
      for (int64_t row = 0; row < t; ++row) {
        for (int64_t n = 0; n < kRows; ++n) {
          if (wanted[n / 64] == 0) got.row(row)[n] = all.row(row)[n];
        }
      }
      ExpectSameBits(all, got);
      EXPECT_FALSE(backend()->MatMulColumns(*w, device_x.tensor(), {}, out.tensor()).ok());
    }
  }
}

TEST_P(MatMulTest, PoisonStaysInItsRow) {
  Random random(6);
  for (DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_1, DType::kQ2_K}) {
    Buffer blocks = RandomWeights(dtype, 20, 256, &random);
    auto w = Load(backend(), dtype, 20, 256, blocks);
    Matrix x = random.Normals(8, 256);
    Matrix clean = Multiply(backend(), *w, x);
    x.row(3)[77] = NAN;
    x.row(5)[200] = INFINITY;
    Matrix got = Multiply(backend(), *w, x);
    for (int64_t t = 0; t < 8; ++t) {
      if (t == 3 || t == 5) {
        for (int64_t n = 0; n < 20; ++n) EXPECT_FALSE(std::isfinite(got.row(t)[n]));
      } else {
        ExpectSameBits(clean.Rows(t, 1), got.Rows(t, 1));
      }
    }
  }
}

TEST_P(MatMulTest, NoRowsAreNoWork) {
  Random random(7);
  auto w = Load(backend(), DType::kQ8_0, 8, 32, RandomWeights(DType::kQ8_0, 8, 32, &random));
  EXPECT_EQ(Multiply(backend(), *w, Matrix(0, 32)).values.size(), 0u);
}

TEST_P(MatMulTest, RefusesWrongShapesByName) {
  Random random(8);
  auto w = Load(backend(), DType::kQ8_0, 8, 64, RandomWeights(DType::kQ8_0, 8, 64, &random));
  DeviceMatrix x(backend(), 2, 64), narrow(backend(), 2, 32), out(backend(), 2, 8);
  absl::Status status = backend()->MatMul(*w, narrow.tensor(), {}, out.tensor());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("x must be F32 (any, 64)"));
  EXPECT_FALSE(backend()->MatMul(*w, x.tensor(), narrow.tensor(), out.tensor()).ok());
  EXPECT_FALSE(backend()->MatMul(*w, x.tensor(), {}, narrow.tensor()).ok());
  auto project = [&](const ProductInput& input) {
    return backend()->Project(*w, input, {}, ProductResult::kIsAdded, out.tensor()).ok();
  };
  EXPECT_TRUE(project(ProductInput::Plain(x.tensor())));
  EXPECT_FALSE(project(ProductInput::Gated(x.tensor(), Activation::kSilu)));
  EXPECT_FALSE(project(ProductInput::Normed(x.tensor(), {.weight = narrow.tensor(), .eps = 1})));
  EXPECT_TRUE(project(ProductInput::Activated(x.tensor(), Activation::kRelu)));
  Buffer few = Buffer::AllocateHost(100).value();
  EXPECT_FALSE(backend()->LoadMatrix(DType::kQ8_0, 8, 64, CopyOf(few)).ok());
  EXPECT_FALSE(backend()->LoadMatrix(DType::kI8, 10, 10, CopyOf(few)).ok());
  EXPECT_FALSE(backend()->LoadMatrix(DType::kQ8_0, 4, 33, CopyOf(few)).ok());
  EXPECT_FALSE(backend()->LoadMatrix(DType::kF32, 0, 0, Buffer()).ok());
}

INSTANTIATE_BACKEND_TESTS(MatMulTest);

}  // namespace
}  // namespace lm

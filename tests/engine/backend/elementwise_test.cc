// Ops that treat every row by itself.
#include <algorithm>
#include <functional>

#include "engine/gguf/block_format.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

class ElementwiseTest : public BackendTest {
 protected:
  // Runs op(backend, a, b, out) on shapes of all kinds: against the reference, in pieces, and with
  // other numbers of threads.
  using Op = std::function<absl::Status(Backend*, Tensor a, Tensor b, Tensor out)>;
  static Matrix Run(Backend* backend, const Op& op, const Matrix& a, const Matrix& b,
                    int64_t padding = 0) {
    DeviceMatrix device_a(backend, a, padding), device_b(backend, b, padding);
    DeviceMatrix out(backend, a.rows, a.cols, padding);
    absl::Status status = op(backend, device_a.tensor(), device_b.tensor(), out.tensor());
    EXPECT_TRUE(status.ok()) << status;
    return out.Download();
  }

  void Check(absl::string_view name, bool b_is_vector, float size, const Op& op) {
    Random random(9);
    for (int64_t cols : {1, 15, 16, 33, 576, 1000, 8192}) {
      int64_t rows = random.Int(2, 20);
      Matrix a = random.Normals(rows, cols);
      for (float& value : a.values) value *= size;
      Matrix b = random.Normals(b_is_vector ? 1 : rows, cols);
      Matrix got = Run(backend(), op, a, b, cols % 7);
      ExpectMatches(name, Run(reference(), op, a, b), got);
      if (portable() != nullptr) ExpectSameBits(Run(portable(), op, a, b), got);
      for (int64_t i = 0; i < rows; i += 3) {
        Matrix b_row = b_is_vector ? b : b.Rows(i, 1);
        ExpectSameBits(got.Rows(i, 1), Run(backend(), op, a.Rows(i, 1), b_row));
      }
      for (int threads : {1, 3}) {
        ExpectSameBits(got, Run(WithThreads(threads).get(), op, a, b));
      }
    }
  }
};

TEST_P(ElementwiseTest, RmsNormMatchesReference) {
  Check("RmsNorm", true, 10, [](Backend* backend, Tensor x, Tensor weight, Tensor out) {
    return backend->RmsNorm(x, weight, 1e-5f, out);
  });
}

TEST_P(ElementwiseTest, RmsNormWorksInPlace) {
  Random random(10);
  Matrix x = random.Normals(5, 100), weight = random.Normals(1, 100);
  DeviceMatrix in_place(backend(), x), gain(backend(), weight), out(backend(), 5, 100);
  ASSERT_TRUE(backend()->RmsNorm(in_place.tensor(), gain.tensor(), 1e-6f, out.tensor()).ok());
  ASSERT_TRUE(backend()->RmsNorm(in_place.tensor(), gain.tensor(), 1e-6f, in_place.tensor()).ok());
  ExpectSameBits(out.Download(), in_place.Download());
}

TEST_P(ElementwiseTest, RmsNormOfGroupsIsThatOfEachAlone) {
  Random random(12);
  for (int64_t n : {1, 16, 80, 128}) {
    const int64_t rows = 4, groups = 3;
    Matrix x = random.Normals(rows, groups * n), weight = random.Normals(1, n);
    DeviceMatrix device_x(backend(), x, 5), gain(backend(), weight),
        out(backend(), rows, x.cols, 9);
    ASSERT_TRUE(backend()->RmsNorm(device_x.tensor(), gain.tensor(), 1e-6f, out.tensor()).ok());
    const Matrix got = out.Download();
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t g = 0; g < groups; ++g) {
        Matrix part(1, n), one(1, n);
        std::copy_n(&x.values[t * x.cols + g * n], n, part.values.begin());
        std::copy_n(&got.values[t * x.cols + g * n], n, one.values.begin());
        DeviceMatrix alone(backend(), part), result(backend(), 1, n);
        ASSERT_TRUE(backend()->RmsNorm(alone.tensor(), gain.tensor(), 1e-6f, result.tensor()).ok());
        ExpectSameBits(one, result.Download());
      }
    }
  }
}

TEST_P(ElementwiseTest, LayerNormMatchesReference) {
  Check("Normalize", true, 10, [](Backend* backend, Tensor x, Tensor weight, Tensor out) {
    const Norm norm = {.kind = NormKind::kLayer, .weight = weight, .bias = weight, .eps = 1e-5f};
    return backend->Normalize(x, norm, out);
  });
}

TEST_P(ElementwiseTest, NormsOfEveryKindMatchTheFormula) {
  Random random(14);
  constexpr int64_t kRows = 3, kWeights = 48, kGroup = 24;  // two groups a run of weights
  for (NormKind kind : {NormKind::kRms, NormKind::kLayer, NormKind::kNone}) {
    Matrix x = random.Normals(kRows, 3 * kWeights);
    for (float& value : x.values) value += 2;
    const Matrix weight = random.Normals(1, kWeights), bias = random.Normals(1, kWeights);
    DeviceMatrix device_x(backend(), x, 3), gain(backend(), weight), shift(backend(), bias);
    const Norm norm = {.kind = kind,
                       .weight = gain.tensor(),
                       .bias = shift.tensor(),
                       .eps = 0.01f,
                       .group = kGroup};
    ASSERT_TRUE(backend()->Normalize(device_x.tensor(), norm, device_x.tensor()).ok());
    Matrix wanted = x;
    for (size_t begin = 0; begin < x.values.size(); begin += kGroup) {
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < kGroup && kind == NormKind::kLayer; ++i) {
        mean += x.values[begin + i] / kGroup;
      }
      for (int64_t i = 0; i < kGroup; ++i) {
        squares += (x.values[begin + i] - mean) * (x.values[begin + i] - mean) / kGroup;
      }
      for (int64_t i = 0; i < kGroup; ++i) {
        const int64_t of = (begin + i) % kWeights;
        const double scale = kind == NormKind::kNone ? 1 : 1 / std::sqrt(squares + 0.01);
        const double y = (x.values[begin + i] - mean) * scale;
        wanted.values[begin + i] = static_cast<float>(y * weight.values[of] + bias.values[of]);
      }
    }
    ExpectMatches("Normalize", wanted, device_x.Download());
  }
}

TEST_P(ElementwiseTest, RmsNormRefusesWhatIsNoGroups) {
  Matrix x(2, 10), weight(1, 4);
  DeviceMatrix device_x(backend(), x), gain(backend(), weight);
  const absl::Status status =
      backend()->RmsNorm(device_x.tensor(), gain.tensor(), 1e-6f, device_x.tensor());
  EXPECT_EQ(status.message(), "Normalize: a row of 10 values is not groups of 4 with weights of 4");
}

constexpr Activation kActivations[] = {
    Activation::kSilu,     Activation::kGeluTanh, Activation::kSigmoid,
    Activation::kIdentity, Activation::kRelu,     Activation::kRelu2,
    Activation::kSoftplus, Activation::kExp,      Activation::kSwigluOai};

// In F64, and how much the rounding of its exponent grows.
double ActivationOf(Activation activation, double x, double up, double* slope) {
  *slope = 1;
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x)) * up;
    case Activation::kGeluTanh: {
      const double z = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      *slope = 1 + std::min(std::abs(z), 90.0);
      return x / (1 + std::exp(-z)) * up;
    }
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x)) * up;
    case Activation::kIdentity:
      return x * up;
    case Activation::kRelu:
      return std::max(x, 0.0) * up;
    case Activation::kRelu2:
      return std::max(x, 0.0) * std::max(x, 0.0) * up;
    case Activation::kSoftplus:
      return (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))) * up;
    case Activation::kExp:
      return std::exp(std::min(x, 88.0)) * up;
    case Activation::kSwigluOai:
      break;
  }
  x = std::min(x, 7.0);
  *slope = 1 + std::min(std::abs(x), 90.0);
  return x / (1 + std::exp(-1.702 * x)) * (std::clamp(up, -7.0, 7.0) + 1);
}

TEST_P(ElementwiseTest, GatedActivationMatchesReference) {
  for (Activation activation : kActivations) {
    for (float size : {1.0f, 30.0f}) {
      Check("GatedActivation", false, size,
            [activation](Backend* backend, Tensor gate, Tensor up, Tensor out) {
              return backend->GatedActivation(activation, gate, up, out);
            });
    }
  }
}

TEST_P(ElementwiseTest, GatedActivationIsAccurateEverywhere) {
  std::vector<float> gates;
  for (float g = -120; g <= 120; g += 0.037f) gates.push_back(g);
  for (float g : {0.0f, -0.0f, 1e-30f, -1e-30f, 3e38f, -3e38f}) gates.push_back(g);
  Matrix gate(1, gates.size()), up(1, gates.size());
  gate.values = gates;
  for (float& value : up.values) value = 1;
  for (Activation activation : kActivations) {
    DeviceMatrix g(backend(), gate), u(backend(), up), out(backend(), 1, gate.cols);
    ASSERT_TRUE(backend()->GatedActivation(activation, g.tensor(), u.tensor(), out.tensor()).ok());
    Matrix got = out.Download();
    for (size_t i = 0; i < gates.size(); ++i) {
      double slope;
      const double wanted = ActivationOf(activation, gates[i], 1, &slope);
      if (std::abs(wanted) > 3.4e38) continue;
      EXPECT_NEAR(got.values[i], wanted, 3e-7 * slope * std::abs(wanted) + 1e-35)
          << static_cast<int>(activation) << " of " << gates[i];
    }
  }
}

TEST_P(ElementwiseTest, SwigluOfOpenAiBoundsBoth) {
  Random random(15);
  Matrix gate = random.Normals(3, 50), up = random.Normals(3, 50);
  for (float& value : gate.values) value *= 8;
  for (float& value : up.values) value *= 8;
  DeviceMatrix g(backend(), gate), u(backend(), up), out(backend(), 3, 50);
  ASSERT_TRUE(backend()
                  ->GatedActivation(Activation::kSwigluOai, g.tensor(), u.tensor(), out.tensor())
                  .ok());
  Matrix wanted = gate;
  double slope;
  for (size_t i = 0; i < gate.values.size(); ++i) {
    wanted.values[i] = static_cast<float>(
        ActivationOf(Activation::kSwigluOai, gate.values[i], up.values[i], &slope));
  }
  ExpectMatches("GatedActivation", wanted, out.Download());
}

TEST_P(ElementwiseTest, AnActivationWithoutAFactorIsThatWithOne) {
  Random random(16);
  Matrix gate = random.Normals(3, 50), ones(3, 50);
  for (float& value : ones.values) value = 1;
  for (Activation activation : kActivations) {
    if (activation == Activation::kSwigluOai) continue;
    DeviceMatrix g(backend(), gate, 2), one(backend(), ones), with(backend(), 3, 50);
    ASSERT_TRUE(
        backend()->GatedActivation(activation, g.tensor(), one.tensor(), with.tensor()).ok());
    ASSERT_TRUE(backend()->GatedActivation(activation, g.tensor(), {}, g.tensor()).ok());
    ExpectSameBits(with.Download(), g.Download());
  }
}

TEST_P(ElementwiseTest, EveryInstructionSetActivatesAndCapsToTheSameBits) {
  if (portable() == nullptr) return;
  const Matrix x = Random(20).Normals(7, 333), up = Random(21).Normals(7, 333);
  for (Activation activation : kActivations) {
    auto run = [&](Backend* backend) {
      DeviceMatrix gate(backend, x), factor(backend, up), out(backend, 7, 333);
      absl::Status status =
          backend->GatedActivation(activation, gate.tensor(), factor.tensor(), out.tensor());
      if (status.ok()) status = backend->ScaleAndCap(out.tensor(), 3, 0.5f);
      EXPECT_TRUE(status.ok()) << status;
      return out.Download();
    };
    ExpectSameBits(run(portable()), run(backend()));
  }
}

TEST_P(ElementwiseTest, GatedActivationWorksInPlaceAndKeepsPoison) {
  Matrix gate(1, 20), up(1, 20);
  for (float& value : up.values) value = 1;
  gate.values[3] = NAN;
  up.values[17] = NAN;
  for (Activation activation : kActivations) {
    DeviceMatrix g(backend(), gate), u(backend(), up);
    ASSERT_TRUE(backend()->GatedActivation(activation, g.tensor(), u.tensor(), u.tensor()).ok());
    Matrix got = u.Download();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(got.values[i]), i == 3 || i == 17) << i;
  }
}

TEST_P(ElementwiseTest, AddMatchesReference) {
  Random random(11);
  for (int64_t cols : {1, 17, 576}) {
    Matrix x = random.Normals(7, cols), y = random.Normals(7, cols);
    DeviceMatrix device_x(backend(), x, 3), device_y(backend(), y, 5);
    const float scale = cols == 17 ? 0.3f : 1.0f;
    ASSERT_TRUE(backend()->Add(device_x.tensor(), device_y.tensor(), scale).ok());
    for (size_t i = 0; i < x.values.size(); ++i) {
      const float scaled = scale * y.values[i];
      x.values[i] += scaled;
    }
    ExpectSameBits(x, device_x.Download());
  }
}

TEST_P(ElementwiseTest, ScalesAndCapsMatchTheFormula) {
  Random random(17);
  for (float cap : {0.0f, 4.0f}) {
    Matrix x = random.Normals(5, 70);
    for (float& value : x.values) value *= 10;
    DeviceMatrix device_x(backend(), x, 3);
    ASSERT_TRUE(backend()->ScaleAndCap(device_x.tensor(), 0.7f, cap).ok());
    for (float& value : x.values) {
      const double scaled = 0.7f * value;
      value = static_cast<float>(cap > 0 ? cap * std::tanh(scaled / cap) : scaled);
    }
    ExpectMatches("ScaleAndCap", x, device_x.Download());
  }
}

TEST_P(ElementwiseTest, ScaleRowsMultipliesEachGroupByItsOwn) {
  Random random(18);
  for (int64_t groups : {1, 5, 70}) {
    for (Activation activation : {Activation::kIdentity, Activation::kSigmoid}) {
      Matrix x = random.Normals(5, 70);
      const Matrix factors = random.Normals(5, groups);
      DeviceMatrix device_x(backend(), x, 3), device_factors(backend(), factors, 2);
      ASSERT_TRUE(
          backend()->ScaleGroups(device_x.tensor(), device_factors.tensor(), activation).ok());
      double slope;
      for (int64_t i = 0; i < 5 * 70; ++i) {
        const float factor = factors.values[i / (70 / groups)];
        x.values[i] *= static_cast<float>(ActivationOf(activation, factor, 1, &slope));
      }
      ExpectMatches("ScaleGroups", x, device_x.Download());
    }
  }
  DeviceMatrix x(backend(), 5, 70), factors(backend(), 5, 4);
  EXPECT_EQ(backend()->ScaleGroups(x.tensor(), factors.tensor(), Activation::kIdentity).message(),
            "ScaleGroups: a row of 70 values is not 4 groups");
}

TEST_P(ElementwiseTest, ClampKeepsWhatIsWithin) {
  Random random(19);
  for (float low : {-0.5f, -INFINITY}) {
    Matrix x = random.Normals(3, 45);
    x.values[7] = NAN;
    DeviceMatrix device_x(backend(), x, 3);
    ASSERT_TRUE(backend()->Clamp(device_x.tensor(), low, 0.7f).ok());
    const Matrix got = device_x.Download();
    for (size_t i = 0; i < x.values.size(); ++i) {
      if (i == 7) {
        EXPECT_TRUE(std::isnan(got.values[i]));
      } else {
        EXPECT_EQ(got.values[i], std::clamp(x.values[i], low, 0.7f));
      }
    }
  }
}

TEST_P(ElementwiseTest, DotSumsTheProductsOfEachGroup) {
  Random random(20);
  for (int64_t groups : {1, 3, 96}) {
    for (int64_t n : {1, 16, 33, 64}) {
      const Matrix x = random.Normals(4, groups * n), y = random.Normals(4, groups * n);
      DeviceMatrix device_x(backend(), x, 3), device_y(backend(), y, 1);
      DeviceMatrix out(backend(), 4, groups, 2);
      ASSERT_TRUE(backend()->Dot(device_x.tensor(), device_y.tensor(), out.tensor()).ok());
      const Matrix got = out.Download();
      for (int64_t i = 0; i < 4 * groups; ++i) {
        double sum = 0, size = 0;
        for (int64_t j = i * n; j < (i + 1) * n; ++j) {
          sum += double{x.values[j]} * y.values[j];
          size += std::abs(double{x.values[j]} * y.values[j]);
        }
        EXPECT_NEAR(got.values[i], sum, 4e-7 * size);
      }
      // A row by itself has the same bits.
      DeviceMatrix one_x(backend(), x.Rows(2, 1)), one_y(backend(), y.Rows(2, 1));
      DeviceMatrix one(backend(), 1, groups);
      ASSERT_TRUE(backend()->Dot(one_x.tensor(), one_y.tensor(), one.tensor()).ok());
      ExpectSameBits(got.Rows(2, 1), one.Download());
    }
  }
  DeviceMatrix x(backend(), 4, 10), out(backend(), 4, 3);
  EXPECT_EQ(backend()->Dot(x.tensor(), x.tensor(), out.tensor()).message(),
            "Dot: a row of 10 values is not 3 groups");
}

TEST_P(ElementwiseTest, MixStreamsMatchesTheFormula) {
  Random random(21);
  for (const auto& [streams, mixed] : {std::pair(1, 4), std::pair(4, 4), std::pair(3, 1)}) {
    for (ProductResult result : {ProductResult::kReplaces, ProductResult::kIsAdded}) {
      constexpr int64_t kRows = 5, kCols = 37;
      const Matrix x = random.Normals(kRows, streams * kCols);
      const Matrix weights = random.Normals(kRows, mixed * streams);
      Matrix wanted = random.Normals(kRows, mixed * kCols);
      DeviceMatrix device_x(backend(), x, 3), device_weights(backend(), weights, 1);
      DeviceMatrix out(backend(), wanted, 2);
      ASSERT_TRUE(backend()
                      ->MixStreams(device_x.tensor(), device_weights.tensor(), streams, result,
                                   out.tensor())
                      .ok());
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t i = 0; i < mixed * kCols; ++i) {
          float sum = 0;
          for (int64_t s = 0; s < streams; ++s) {
            sum = std::fma(weights.values[(t * mixed + i / kCols) * streams + s],
                           x.values[(t * streams + s) * kCols + i % kCols], sum);
          }
          float& value = wanted.values[t * mixed * kCols + i];
          value = result == ProductResult::kIsAdded ? value + sum : sum;
        }
      }
      ExpectMatches("MixStreams", wanted, out.Download());
    }
  }
  DeviceMatrix x(backend(), 4, 10), out(backend(), 4, 10);
  EXPECT_EQ(backend()
                ->MixStreams(x.tensor(), x.tensor(), 3, ProductResult::kReplaces, out.tensor())
                .message(),
            "MixStreams: 10 columns with 10 weights are not those of 3 streams");
}

TEST_P(ElementwiseTest, BalanceStreamsMatchesReferenceRowByRow) {
  Random random(22);
  for (const int32_t streams : {1, 2, 4, 7}) {
    for (const int32_t iterations : {1, 3, 20}) {
      constexpr int64_t kRows = 300;
      const Matrix x = random.Normals(kRows, streams * streams);
      auto balance = [&](Backend* backend, const Matrix& in) {
        DeviceMatrix device_x(backend, in, 3), out(backend, in.rows, in.cols, 2);
        EXPECT_TRUE(
            backend->BalanceStreams(device_x.tensor(), streams, iterations, 0.01f, out.tensor())
                .ok());
        return out.Download();
      };
      const Matrix got = balance(backend(), x);
      ExpectMatches("BalanceStreams", balance(reference(), x), got);
      if (portable() != nullptr) ExpectSameBits(balance(portable(), x), got);
      ExpectSameBits(got.Rows(299, 1), balance(backend(), x.Rows(299, 1)));
      if (streams != 4 || iterations < 20) continue;
      // Column j of the stream that is mixed: its weights have the sum 1.
      Matrix balanced = got;
      for (int64_t j = 0; j < 4; ++j) {
        const float* weights = balanced.row(7) + j * 4;
        EXPECT_NEAR(weights[0] + weights[1] + weights[2] + weights[3], 1, 0.02);
      }
    }
  }
  DeviceMatrix x(backend(), 4, 10), out(backend(), 4, 10);
  EXPECT_EQ(backend()->BalanceStreams(x.tensor(), 17, 1, 0, out.tensor()).message(),
            "BalanceStreams: streams must be 1 to 16 and iterations 1 or more, got 17 and 1");
}

TEST_P(ElementwiseTest, GatherRowsCopiesRows) {
  Random random(12);
  Matrix x = random.Normals(9, 37);
  const std::vector<int32_t> rows = {8, 0, 3, 3, 7};
  const StepTables step = {.row_lists = {{0}, rows, {9, 0, 0, 0, 0}}};
  ASSERT_TRUE(backend()->BeginStep(&step).ok());
  DeviceMatrix device_x(backend(), x, 2), out(backend(), rows.size(), 37, 4);
  ASSERT_TRUE(backend()->GatherRows(device_x.tensor(), 1, out.tensor()).ok());
  Matrix got = out.Download();
  for (size_t i = 0; i < rows.size(); ++i) ExpectSameBits(x.Rows(rows[i], 1), got.Rows(i, 1));
  for (int32_t list : {-1, 0, 2, 3}) {  // 0 is of another length, 2 has row 9
    EXPECT_FALSE(backend()->GatherRows(device_x.tensor(), list, out.tensor()).ok()) << list;
  }
  const StepTables negative = {.row_lists = {{-1}}};
  EXPECT_FALSE(backend()->BeginStep(&negative).ok());
}

TEST_P(ElementwiseTest, EmbedReadsRowsOfEveryType) {
  Random random(13);
  for (DType dtype : WeightTypes()) {
    SCOPED_TRACE(Traits(dtype).name);
    int64_t cols = Traits(dtype).block_size > 32 ? 512 : 96;
    constexpr int64_t kVocabulary = 53;
    Buffer blocks = RandomWeights(dtype, kVocabulary, cols, &random);
    auto w = backend()->LoadMatrix(dtype, kVocabulary, cols, CopyOf(blocks)).value();
    std::vector<int32_t> ids = {52, 0, 17, 17, 31, 48};
    auto embed = [&](std::vector<int32_t> tokens, float scale, Tensor out) {
      StepTables step;
      step.Append(tokens.data(), static_cast<int32_t>(tokens.size()), 0);
      const absl::Status status = backend()->BeginStep(&step);
      return status.ok() ? backend()->Embed(*w, scale, out) : status;
    };
    DeviceMatrix out(backend(), ids.size(), cols, 3);
    ASSERT_TRUE(embed(ids, 1, out.tensor()).ok());
    Matrix wanted(ids.size(), cols);
    for (size_t i = 0; i < ids.size(); ++i) {
      DequantizeRow(dtype, blocks.chars().data() + ids[i] * RowBytes(dtype, cols), cols,
                    wanted.row(i));
    }
    ExpectMatches("Embed", wanted, out.Download());
    ASSERT_TRUE(embed(ids, 2.5f, out.tensor()).ok());
    for (float& value : wanted.values) value *= 2.5f;
    ExpectMatches("Embed", wanted, out.Download());
    EXPECT_FALSE(embed({0, 0, 0, 0, 0, 53}, 1, out.tensor()).ok());
    EXPECT_FALSE(embed({0, 0, 0, 0, 0, -1}, 1, out.tensor()).ok());
  }
}

INSTANTIATE_BACKEND_TESTS(ElementwiseTest);

}  // namespace
}  // namespace lm

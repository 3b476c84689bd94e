// Mixtures of experts: who is chosen, and that slots bring every row's results back to it.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

using ExpertsTest = BackendTest;

// Routes, brought to the host.
struct HostRoutes {
  std::vector<int32_t> begin, rows, slots;
  std::vector<float> weights;

  HostRoutes(Backend* backend, const ExpertRoutes& routes)
      : begin(routes.experts + 1),
        rows(routes.num_slots()),
        slots(rows.size()),
        weights(rows.size()) {
    auto bring = [backend](const auto* from, auto* to) {
      EXPECT_TRUE(backend->Download(from, to->data(), to->size() * sizeof((*to)[0])).ok());
    };
    bring(routes.begin, &begin);
    bring(routes.rows, &rows);
    bring(routes.slots, &slots);
    bring(routes.weights, &weights);
  }
};

// Where they are.
HostRoutes RouteOn(Backend* backend, const DeviceMatrix& logits, const Router& router,
                   ExpertRoutes* routes) {
  EXPECT_TRUE(backend->Route(logits.tensor(), router, routes).ok());
  return HostRoutes(backend, *routes);
}
HostRoutes RouteOn(Backend* backend, const DeviceMatrix& logits, const Router& router) {
  ExpertRoutes routes;
  return RouteOn(backend, logits, router, &routes);
}

// The rows' experts and their weights by the definition: all sorted.
struct Choice {
  int32_t expert;
  double weight;
};
std::vector<Choice> Choose(const float* logits, int64_t experts, const Router& router,
                           const std::vector<float>& bias, const std::vector<float>& scales) {
  std::vector<double> p(logits, logits + experts);
  if (router.gate == RouterGate::kSoftmax) {
    const double max = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - max);
    for (double& x : p) x /= sum;
  } else if (router.gate == RouterGate::kSigmoid) {
    for (double& x : p) x = 1 / (1 + std::exp(-x));
  } else if (router.gate == RouterGate::kSqrtSoftplus) {
    for (double& x : p) x = std::sqrt(std::log1p(std::exp(x)));
  }
  std::vector<double> score = p;
  for (int64_t e = 0; e < experts && !bias.empty(); ++e) score[e] += bias[e];
  const int64_t size = experts / router.groups;
  std::vector<std::pair<double, int64_t>> groups;
  for (int64_t g = 0; g < router.groups; ++g) {
    std::vector<double> own(score.begin() + g * size, score.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.emplace_back(-(own[0] + (size > 1 ? own[1] : 0)), g);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t i = router.chosen_groups; i < groups.size(); ++i) {
    std::fill_n(score.begin() + groups[i].second * size, size, -INFINITY);
  }
  std::vector<int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return score[a] > score[b]; });
  std::vector<Choice> choices;
  double sum = 0;
  for (int32_t j = 0; j < router.chosen; ++j) {
    const double raw = p[order[j]];
    const bool of_chosen = router.gate == RouterGate::kSoftmaxOfChosen;
    choices.push_back({order[j], of_chosen ? std::exp(raw - p[order[0]]) : raw});
    sum += choices.back().weight;
  }
  for (Choice& choice : choices) {
    if (router.normalised || router.gate == RouterGate::kSoftmaxOfChosen) choice.weight /= sum;
    choice.weight *= router.scale;
    if (!scales.empty()) choice.weight *= scales[choice.expert];
  }
  return choices;
}

TEST_P(ExpertsTest, RoutesAsTheDefinitionSays) {
  Random random(50);
  for (int64_t experts : {12, 40}) {
    const Matrix bias = random.Normals(1, experts), scales = random.Normals(1, experts);
    const DeviceMatrix device_bias(backend(), bias), device_scales(backend(), scales);
    for (int kind = 0; kind < 40; ++kind) {
      Router router;
      router.gate = static_cast<RouterGate>(kind % 4);
      router.chosen = static_cast<int32_t>(random.Int(1, 4));
      if (kind / 4 % 2 == 1) {
        router.groups = 4;
        router.chosen_groups = 2;
      }
      router.normalised = kind % 3 == 1;
      router.scale = kind % 5 == 2 ? 2.5f : 1.0f;
      if (kind % 7 < 3) router.bias = device_bias.tensor();
      if (kind % 2 == 0) router.scales = device_scales.tensor();
      SCOPED_TRACE(absl::StrCat(experts, ", ", kind));
      const int64_t rows = kind == 39 ? 150 : random.Int(1, 20);
      const Matrix logits = random.Normals(rows, experts);
      const HostRoutes routes =
          RouteOn(backend(), DeviceMatrix(backend(), logits, kind % 3), router);
      ASSERT_EQ(routes.begin.size(), experts + 1u);
      EXPECT_EQ(routes.begin.front(), 0);
      EXPECT_EQ(routes.begin.back(), rows * router.chosen);
      for (int64_t t = 0; t < rows; ++t) {
        const std::vector<Choice> wanted =
            Choose(&logits.values[t * experts], experts, router,
                   router.bias.empty() ? std::vector<float>() : bias.values,
                   router.scales.empty() ? std::vector<float>() : scales.values);
        for (int32_t j = 0; j < router.chosen; ++j) {
          const int32_t slot = routes.slots[t * router.chosen + j];
          EXPECT_GE(slot, routes.begin[wanted[j].expert]) << t << ", " << j;
          EXPECT_LT(slot, routes.begin[wanted[j].expert + 1]) << t << ", " << j;
          EXPECT_EQ(routes.rows[slot], t);
          EXPECT_NEAR(routes.weights[t * router.chosen + j], wanted[j].weight,
                      1e-6 * std::abs(wanted[j].weight) + 1e-7);
        }
      }
    }
  }
}

TEST_P(ExpertsTest, RoutesAreTheReferences) {
  Random random(57);
  for (int kind = 0; kind < 16; ++kind) {
    SCOPED_TRACE(kind);
    const int64_t experts = kind % 2 == 0 ? 128 : 60, rows = 1 + kind * kind;
    const Matrix bias = random.Normals(1, experts), logits = random.Normals(rows, experts);
    auto route = [&](Backend* on) {
      const DeviceMatrix device_bias(on, bias);
      Router router;
      router.gate = static_cast<RouterGate>(kind / 2 % 4);
      router.chosen = 6;
      router.normalised = kind / 4 % 2 == 1;
      if (kind >= 8) router.bias = device_bias.tensor();
      if (kind % 3 == 0) router.groups = router.chosen_groups = 4;
      if (kind % 3 == 0) router.chosen_groups = 2;
      return RouteOn(on, DeviceMatrix(on, logits), router);
    };
    const HostRoutes wanted = route(reference()), got = route(backend());
    EXPECT_EQ(got.begin, wanted.begin);
    EXPECT_EQ(got.rows, wanted.rows);
    EXPECT_EQ(got.slots, wanted.slots);
    // Their expf is its C library's, which is not always the nearest float.
    for (size_t i = 0; i < wanted.weights.size(); ++i) {
      EXPECT_NEAR(got.weights[i], wanted.weights[i], 3e-7f * wanted.weights[i]) << i;
    }
  }
}

TEST_P(ExpertsTest, EqualLogitsGoToTheFirstExperts) {
  const HostRoutes routes = RouteOn(backend(), DeviceMatrix(backend(), 2, 6), {.chosen = 2});
  EXPECT_EQ(routes.begin, (std::vector<int32_t>{0, 2, 4, 4, 4, 4, 4}));
  EXPECT_EQ(routes.rows, (std::vector<int32_t>{0, 1, 0, 1}));
  EXPECT_EQ(routes.slots, (std::vector<int32_t>{0, 2, 1, 3}));
}

TEST_P(ExpertsTest, GivenExpertsAreWeighedByTheirLogits) {
  const Matrix logits = Random(52).Normals(3, 5);
  DeviceMatrix device_logits(backend(), logits);
  const std::vector<int32_t> given = {4, 1, 0, 3, 1, 2};
  Router router = {.gate = RouterGate::kSqrtSoftplus, .chosen = 2, .normalised = true, .scale = 3};
  router.given = given;
  const HostRoutes routes = RouteOn(backend(), device_logits, router);
  EXPECT_EQ(routes.begin, (std::vector<int32_t>{0, 1, 3, 4, 5, 6}));
  for (int64_t t = 0; t < 3; ++t) {
    auto p = [&](int64_t j) {
      return std::sqrt(std::log1p(std::exp(double{logits.values[t * 5 + given[t * 2 + j]]})));
    };
    EXPECT_NEAR(routes.weights[t * 2], 3 * p(0) / (p(0) + p(1)), 1e-6);
    EXPECT_NEAR(routes.weights[t * 2 + 1], 3 * p(1) / (p(0) + p(1)), 1e-6);
  }
  router.given = absl::MakeConstSpan(given).first(4);
  ExpertRoutes refused;
  EXPECT_EQ(backend()->Route(device_logits.tensor(), router, &refused).message(),
            "Route: 3 rows need 2 experts each, got 4 in all");
}

TEST_P(ExpertsTest, ARowThatIsNotANumberSpoilsNoOther) {
  Random random(51);
  for (RouterGate gate : {RouterGate::kSoftmax, RouterGate::kSigmoid, RouterGate::kSoftmaxOfChosen,
                          RouterGate::kSqrtSoftplus}) {
    Matrix logits = random.Normals(3, 8);
    const Router router = {.gate = gate, .chosen = 3, .normalised = true};
    const HostRoutes before = RouteOn(backend(), DeviceMatrix(backend(), logits), router);
    logits.row(1)[5] = NAN;
    const HostRoutes after = RouteOn(backend(), DeviceMatrix(backend(), logits), router);
    for (int64_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(before.weights[i], after.weights[i]);
    for (int64_t i : {3, 4, 5}) {
      EXPECT_TRUE(std::isnan(after.weights[i])) << static_cast<int>(gate);
      const int32_t slot = after.slots[i], expert = static_cast<int32_t>(i) - 3;
      EXPECT_TRUE(slot >= after.begin[expert] && slot < after.begin[expert + 1]) << i;
    }
  }
}

TEST_P(ExpertsTest, InfiniteLogitsChooseExpertsThatThereAre) {
  for (RouterGate gate : {RouterGate::kSoftmax, RouterGate::kSoftmaxOfChosen}) {
    for (float value : {INFINITY, -INFINITY}) {
      Matrix logits(1, 8);
      std::fill(logits.values.begin(), logits.values.end(), value);
      const HostRoutes routes = RouteOn(backend(), DeviceMatrix(backend(), logits),
                                        {.gate = gate, .chosen = 3, .normalised = true});
      EXPECT_EQ(routes.begin.back(), 3);
      EXPECT_EQ(routes.rows, (std::vector<int32_t>{0, 0, 0}));
      for (const int32_t slot : routes.slots) EXPECT_TRUE(slot >= 0 && slot < 3) << slot;
    }
  }
}

// Each slot's product has the bits of a product by itself with its expert's matrix.
// `padding` values lie between the slots' rows.
void ExpectProductsOfExperts(Backend* backend, DType dtype, int64_t rows, int64_t experts,
                             int32_t chosen, Random* random, int64_t padding = 3,
                             absl::Span<const int32_t> given = {}) {
  constexpr int64_t kCols = 256, kWidth = 40;
  SCOPED_TRACE(absl::StrCat(Traits(dtype).name, ", ", rows, " rows, ", experts, " experts"));
  std::vector<std::unique_ptr<WeightMatrix>> first, second;
  std::vector<std::unique_ptr<DeviceMatrix>> biases;
  std::vector<GroupedMatrix> of_first, of_second;
  for (int64_t e = 0; e < experts; ++e) {
    auto load = [&](int64_t of_rows, int64_t of_cols) {
      return backend
          ->LoadMatrix(dtype, of_rows, of_cols, RandomWeights(dtype, of_rows, of_cols, random))
          .value();
    };
    first.push_back(load(kWidth, kCols));
    second.push_back(load(24, kCols));
    biases.push_back(std::make_unique<DeviceMatrix>(backend, random->Normals(1, kWidth)));
    of_first.push_back({first.back().get(), biases.back()->tensor()});
    of_second.push_back({second.back().get()});
    const Matrix scales = random->Normals(1, 24);
    Buffer memory = backend->Allocate(24 * sizeof(float)).value();
    ASSERT_TRUE(backend->Upload(scales.values.data(), memory.data(), memory.bytes()).ok());
    second.back()->set_row_scales(std::move(memory));
  }
  const auto first_group = backend->GroupMatrices(std::move(of_first)).value();
  const auto second_group = backend->GroupMatrices(std::move(of_second)).value();

  ExpertRoutes routes;
  const HostRoutes host = RouteOn(backend, DeviceMatrix(backend, random->Normals(rows, experts)),
                                  {.chosen = chosen, .given = given}, &routes);
  const int64_t slots = rows * chosen;
  const Matrix x = random->Normals(slots, 2 * kCols), before = random->Normals(slots, 70);
  const DeviceMatrix device_x(backend, x, padding);
  for (ProductResult result : {ProductResult::kReplaces, ProductResult::kIsAdded}) {
    const DeviceMatrix got(backend, before, 1), wanted(backend, before, 1);
    const ProductInput plain = ProductInput::Plain(device_x.tensor().Cols(0, kCols)),
                       gated = ProductInput::Gated(device_x.tensor(), Activation::kSilu);
    auto outs = [](const Tensor& out) {
      return std::pair(out.Cols(0, kWidth), out.Cols(kWidth, 24));
    };
    const auto [first_out, second_out] = outs(got.tensor());
    ASSERT_TRUE(backend
                    ->ProjectExperts({{first_group.get(), plain, first_out},
                                      {second_group.get(), gated, second_out}},
                                     routes, result)
                    .ok());
    const auto [first_wanted, second_wanted] = outs(wanted.tensor());
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t begin = host.begin[e], count = host.begin[e + 1] - begin;
      if (count == 0) continue;
      auto own = [&](ProductInput input) {
        input.x = input.x.Rows(begin, count);
        return input;
      };
      ASSERT_TRUE(backend
                      ->Project(*first[e], own(plain), biases[e]->tensor(), result,
                                first_wanted.Rows(begin, count))
                      .ok());
      ASSERT_TRUE(
          backend->Project(*second[e], own(gated), {}, result, second_wanted.Rows(begin, count))
              .ok());
    }
    ExpectSameBits(wanted.Download(), got.Download());
  }
}

TEST_P(ExpertsTest, ProductsOfExpertsHaveTheBitsOfEach) {
  Random random(58);
  for (DType dtype : WeightTypes()) {
    ExpectProductsOfExperts(backend(), dtype, 1, 7, 3, &random);
    ExpectProductsOfExperts(backend(), dtype, 1, 7, 3, &random, /*padding=*/0);
    ExpectProductsOfExperts(backend(), dtype, 9, 4, 2, &random);
  }
  // A row that has an expert twice.
  ExpectProductsOfExperts(backend(), DType::kQ4_K, 1, 7, 3, &random, /*padding=*/0, {5, 2, 5});
  // Groups of each size that a device has.
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kMXFP4,
                      DType::kQ4_K, DType::kIQ2_XXS}) {
    for (int64_t rows : {20, 70, 150}) {
      ExpectProductsOfExperts(backend(), dtype, rows, 5, 2, &random);
    }
  }
}

TEST_P(ExpertsTest, WeightsAreMovedToTheSlots) {
  Random random(59);
  ExpertRoutes routes;
  const DeviceMatrix logits(backend(), random.Normals(11, 6));
  const HostRoutes before = RouteOn(backend(), logits, {.chosen = 3}, &routes);
  const DeviceMatrix column(backend(), 33, 1, /*padding=*/2);
  ASSERT_TRUE(backend()->MoveWeights(&routes, column.tensor()).ok());
  const Matrix moved = column.Download();
  for (size_t i = 0; i < 33; ++i) EXPECT_EQ(moved.values[before.slots[i]], before.weights[i]);
  EXPECT_EQ(HostRoutes(backend(), routes).weights, std::vector<float>(33, 1.0f));
}

TEST_P(ExpertsTest, SlotsGatherRowsAndCombineTheirResults) {
  Random random(52);
  for (int64_t rows : {1, 7, 40}) {
    for (int32_t chosen : {1, 3, 8}) {
      constexpr int64_t kCols = 70;
      ExpertRoutes on_backend, on_reference;
      const Matrix logits = random.Normals(rows, 10);
      const HostRoutes routes =
          RouteOn(backend(), DeviceMatrix(backend(), logits), {.chosen = chosen}, &on_backend);
      RouteOn(reference(), DeviceMatrix(reference(), logits), {.chosen = chosen}, &on_reference);
      Matrix x = random.Normals(rows, kCols), y = random.Normals(rows * chosen, kCols);
      DeviceMatrix device_x(backend(), x, 3), gathered(backend(), rows * chosen, kCols, 2);
      ASSERT_TRUE(backend()->GatherSlots(device_x.tensor(), on_backend, gathered.tensor()).ok());
      Matrix got = gathered.Download();
      for (int64_t slot = 0; slot < rows * chosen; ++slot) {
        ExpectSameBits(x.Rows(routes.rows[slot], 1), got.Rows(slot, 1));
      }
      auto combine = [&](Backend* on, const ExpertRoutes& routes) {
        DeviceMatrix device_y(on, y, 1), out(on, rows, kCols, 4);
        EXPECT_TRUE(on->CombineSlots(device_y.tensor(), routes, out.tensor()).ok());
        return out.Download();
      };
      const Matrix wanted = combine(reference(), on_reference);
      const Matrix combined = combine(backend(), on_backend);
      ExpectMatches("CombineSlots", wanted, combined);
      const auto other = WithThreads(3);
      ExpertRoutes on_other;
      RouteOn(other.get(), DeviceMatrix(other.get(), logits), {.chosen = chosen}, &on_other);
      ExpectSameBits(combined, combine(other.get(), on_other));
      for (int64_t t = 0; t < rows; ++t) {
        double sum = 0;
        for (int32_t j = 0; j < chosen; ++j) {
          const int64_t at = t * chosen + j;
          sum += double{routes.weights[at]} * y.values[routes.slots[at] * kCols + 5];
        }
        EXPECT_NEAR(wanted.values[t * kCols + 5], sum, 1e-6);
      }
    }
  }
}

TEST_P(ExpertsTest, RefusesWhatDoesNotFit) {
  DeviceMatrix logits(backend(), 2, 6), x(backend(), 3, 6), out(backend(), 4, 6);
  ExpertRoutes routes;
  auto refused = [&](const Router& router) {
    return absl::IsInvalidArgument(backend()->Route(logits.tensor(), router, &routes));
  };
  const DeviceMatrix five(backend(), 1, 5);
  EXPECT_TRUE(refused({.chosen = 0}));
  EXPECT_TRUE(refused({.chosen = 7}));
  EXPECT_TRUE(refused({.chosen = 3, .groups = 3, .chosen_groups = 1}));
  EXPECT_TRUE(refused({.groups = 4}));
  EXPECT_TRUE(refused({.groups = 2, .chosen_groups = 3}));
  EXPECT_TRUE(refused({.bias = five.tensor()}));
  EXPECT_TRUE(refused({.scales = five.tensor()}));
  ASSERT_FALSE(refused({.chosen = 2}));
  EXPECT_FALSE(backend()->GatherSlots(x.tensor(), routes, out.tensor()).ok());
  EXPECT_FALSE(backend()->CombineSlots(x.tensor(), routes, logits.tensor()).ok());
  EXPECT_TRUE(backend()->CombineSlots(out.tensor(), routes, logits.tensor()).ok());
  EXPECT_FALSE(backend()->MoveWeights(&routes, out.tensor()).ok());

  Random random(60);
  auto matrix = [&](int64_t rows) {
    return backend()
        ->LoadMatrix(DType::kQ8_0, rows, 32, RandomWeights(DType::kQ8_0, rows, 32, &random))
        .value();
  };
  const auto two = matrix(2), three = matrix(3);
  EXPECT_FALSE(backend()->GroupMatrices({}).ok());
  EXPECT_THAT(
      std::string(backend()->GroupMatrices({{two.get()}, {three.get()}}).status().message()),
      testing::HasSubstr("all must be Q8_0 (2, 32), got Q8_0 (3, 32)"));
  const auto group = backend()->GroupMatrices({{two.get()}, {two.get()}}).value();
  const DeviceMatrix in(backend(), 4, 32), result(backend(), 4, 2);
  EXPECT_THAT(std::string(backend()
                              ->ProjectExperts({{group.get(), ProductInput::Plain(in.tensor()),
                                                 result.tensor()}},
                                               routes, ProductResult::kReplaces)
                              .message()),
              testing::HasSubstr("a matrix for each of 6 experts, got 2"));
}

INSTANTIATE_BACKEND_TESTS(ExpertsTest);

}  // namespace
}  // namespace lm

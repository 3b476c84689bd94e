// Mixtures of experts: who is chosen, and that slots bring every row's results back to it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

using ExpertsTest = BackendTest;

// The rows' experts and their weights by the definition: all sorted.
struct Choice {
  int32_t expert;
  double weight;
};
std::vector<Choice> Choose(const float* logits, int64_t experts, const Router& router) {
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
  for (int64_t e = 0; e < experts && !router.bias.empty(); ++e) score[e] += router.bias[e];
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
    if (!router.scales.empty()) choice.weight *= router.scales[choice.expert];
  }
  return choices;
}

TEST_P(ExpertsTest, RoutesAsTheDefinitionSays) {
  Random random(50);
  constexpr int64_t kExperts = 12;
  const Matrix bias = random.Normals(1, kExperts);
  Matrix scales = random.Normals(1, kExperts);
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
    if (kind % 7 < 3) router.bias = bias.values;
    if (kind % 2 == 0) router.scales = scales.values;
    SCOPED_TRACE(kind);
    const int64_t rows = random.Int(1, 20);
    const Matrix logits = random.Normals(rows, kExperts);
    DeviceMatrix device_logits(backend(), logits, kind % 3);
    ExpertRoutes routes;
    ASSERT_TRUE(backend()->Route(device_logits.tensor(), router, &routes).ok());
    ASSERT_EQ(routes.num_rows(), rows);
    ASSERT_EQ(routes.begin.size(), kExperts + 1u);
    EXPECT_EQ(routes.begin.front(), 0);
    EXPECT_EQ(routes.begin.back(), rows * router.chosen);
    for (int64_t t = 0; t < rows; ++t) {
      const std::vector<Choice> wanted = Choose(&logits.values[t * kExperts], kExperts, router);
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

TEST_P(ExpertsTest, EqualLogitsGoToTheFirstExperts) {
  const Matrix logits(2, 6);
  DeviceMatrix device_logits(backend(), logits);
  ExpertRoutes routes;
  ASSERT_TRUE(backend()->Route(device_logits.tensor(), {.chosen = 2}, &routes).ok());
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
  ExpertRoutes routes;
  ASSERT_TRUE(backend()->Route(device_logits.tensor(), router, &routes).ok());
  EXPECT_EQ(routes.begin, (std::vector<int32_t>{0, 1, 3, 4, 5, 6}));
  for (int64_t t = 0; t < 3; ++t) {
    auto p = [&](int64_t j) {
      return std::sqrt(std::log1p(std::exp(double{logits.values[t * 5 + given[t * 2 + j]]})));
    };
    EXPECT_NEAR(routes.weights[t * 2], 3 * p(0) / (p(0) + p(1)), 1e-6);
    EXPECT_NEAR(routes.weights[t * 2 + 1], 3 * p(1) / (p(0) + p(1)), 1e-6);
  }
  router.given = absl::MakeConstSpan(given).first(4);
  EXPECT_EQ(backend()->Route(device_logits.tensor(), router, &routes).message(),
            "Route: 3 rows need 2 experts each, got 4 in all");
}

TEST_P(ExpertsTest, ARowThatIsNotANumberSpoilsNoOther) {
  Random random(51);
  for (RouterGate gate : {RouterGate::kSoftmax, RouterGate::kSigmoid, RouterGate::kSoftmaxOfChosen,
                          RouterGate::kSqrtSoftplus}) {
    Matrix logits = random.Normals(3, 8);
    const Router router = {.gate = gate, .chosen = 3, .normalised = true};
    ExpertRoutes before, after;
    ASSERT_TRUE(backend()->Route(DeviceMatrix(backend(), logits).tensor(), router, &before).ok());
    std::fill_n(logits.row(1), 8, NAN);
    ASSERT_TRUE(backend()->Route(DeviceMatrix(backend(), logits).tensor(), router, &after).ok());
    for (int64_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(before.weights[i], after.weights[i]);
    for (int64_t i : {3, 4, 5}) EXPECT_TRUE(std::isnan(after.weights[i])) << static_cast<int>(gate);
  }
}

TEST_P(ExpertsTest, SlotsGatherRowsAndCombineTheirResults) {
  Random random(52);
  for (int64_t rows : {1, 7, 40}) {
    for (int32_t chosen : {1, 3, 8}) {
      constexpr int64_t kCols = 70;
      ExpertRoutes routes;
      DeviceMatrix logits(backend(), random.Normals(rows, 10));
      ASSERT_TRUE(backend()->Route(logits.tensor(), {.chosen = chosen}, &routes).ok());
      Matrix x = random.Normals(rows, kCols), y = random.Normals(rows * chosen, kCols);
      DeviceMatrix device_x(backend(), x, 3), gathered(backend(), rows * chosen, kCols, 2);
      ASSERT_TRUE(backend()->GatherSlots(device_x.tensor(), routes, gathered.tensor()).ok());
      Matrix got = gathered.Download();
      for (int64_t slot = 0; slot < rows * chosen; ++slot) {
        ExpectSameBits(x.Rows(routes.rows[slot], 1), got.Rows(slot, 1));
      }
      auto combine = [&](Backend* on) {
        DeviceMatrix device_y(on, y, 1), out(on, rows, kCols, 4);
        EXPECT_TRUE(on->CombineSlots(device_y.tensor(), routes, out.tensor()).ok());
        return out.Download();
      };
      const Matrix wanted = combine(reference());
      const Matrix combined = combine(backend());
      ExpectMatches("CombineSlots", wanted, combined);
      ExpectSameBits(combined, combine(WithThreads(3).get()));
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
  const std::vector<float> five(5);
  EXPECT_TRUE(refused({.chosen = 0}));
  EXPECT_TRUE(refused({.chosen = 7}));
  EXPECT_TRUE(refused({.chosen = 3, .groups = 3, .chosen_groups = 1}));
  EXPECT_TRUE(refused({.groups = 4}));
  EXPECT_TRUE(refused({.groups = 2, .chosen_groups = 3}));
  EXPECT_TRUE(refused({.bias = five}));
  EXPECT_TRUE(refused({.scales = five}));
  ASSERT_FALSE(refused({.chosen = 2}));
  EXPECT_FALSE(backend()->GatherSlots(x.tensor(), routes, out.tensor()).ok());
  EXPECT_FALSE(backend()->CombineSlots(x.tensor(), routes, logits.tensor()).ok());
  EXPECT_TRUE(backend()->CombineSlots(out.tensor(), routes, logits.tensor()).ok());
}

INSTANTIATE_BACKEND_TESTS(ExpertsTest);

}  // namespace
}  // namespace lm

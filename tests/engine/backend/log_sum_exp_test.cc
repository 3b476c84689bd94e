#include "engine/backend/log_sum_exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/random.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

bool IsIn(const std::vector<uint64_t>& mask, size_t token) {
  return mask.empty() || (token / 64 < mask.size() && (mask[token / 64] >> token % 64 & 1) != 0);
}

double InDouble(const std::vector<float>& logits, const std::vector<uint64_t>& mask) {
  double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (IsIn(mask, i)) greatest = std::max(greatest, double{logits[i]});
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    if (IsIn(mask, i)) sum += std::exp(logits[i] - greatest);
  }
  return greatest + std::log(sum);
}

TEST(LogSumExpTest, IsThatOfDoubles) {
  Random random(50);
  for (const float spread : {0.0f, 0.01f, 3.0f, 60.0f, 1e30f}) {
    for (const size_t size : {1, 63, 64, 65, 1000, 150001}) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = spread * random.Normal() - 5;
      std::vector<uint64_t> some((size + 63) / 64);  // nothing in each third word, all in the next
      for (size_t word = 0; word < some.size(); ++word) {
        some[word] = word % 3 == 0 ? 0 : word % 3 == 1 ? ~uint64_t{0} : RandomBits(1, word);
      }
      some[0] |= 1;
      std::vector<uint64_t> fewer(some.begin(), some.begin() + (some.size() + 1) / 2);
      for (const auto& mask : {std::vector<uint64_t>(), some, fewer}) {
        const double wanted = InDouble(logits, mask);
        EXPECT_NEAR(LogSumExp(logits, mask), wanted, 4e-7 + 1e-15 * std::abs(wanted))
            << size << " " << spread;
      }
    }
  }
}

TEST(LogSumExpTest, OfOneIsItselfAndOfNoneMinusInfinity) {
  const std::vector<float> logits = {1.25f, -3, 7};
  EXPECT_EQ(LogSumExp(logits, std::vector<uint64_t>{2}), -3);
  EXPECT_EQ(LogSumExp(logits, std::vector<uint64_t>{0}), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace lm

// Rows that are keys and values at once: turned, stored, scored, chosen and attended to as the
// reference does it, and the same bits for a token alone, wherever its rows lie.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

constexpr int32_t kBlocks = 40;
constexpr float kUnseen = -7;  // what scores of rows that a token does not see stay

// A sequence: its rows, of each class one a token, and what its last tokens ask.
struct Context {
  Matrix near, far;
  Matrix q, weights;
  std::vector<int32_t> near_blocks, far_blocks;

  int32_t length() const { return static_cast<int32_t>(near.rows); }
};

struct Shape {
  int32_t dim, every, heads, most;  // most chosen; 0: all
  int32_t window;
};

struct Results {
  Matrix scores{0, 0}, attended{0, 0};
  std::vector<int32_t> chosen;
};

class RowCacheTest : public BackendTest {
 protected:
  void Make(const Shape& shape, const std::vector<std::pair<int32_t, int32_t>>& lengths) {
    shape_ = shape;
    contexts_.clear();
    Random random(shape.dim + shape.every);
    std::vector<int32_t> free(kBlocks);
    std::iota(free.begin(), free.end(), 0);
    for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.Int(0, i - 1)]);
    for (const auto& [length, queries] : lengths) {
      Context context{random.Normals(length, shape.dim),
                      random.Normals(length, shape.dim),
                      random.Normals(queries, shape.heads * shape.dim),
                      random.Normals(queries, shape.heads),
                      {},
                      {}};
      for (int32_t p = 0; p < length; p += kKvBlockTokens) {
        context.near_blocks.push_back(free.back());
        free.pop_back();
      }
      context.far_blocks = context.near_blocks;
      std::reverse(context.far_blocks.begin(), context.far_blocks.end());
      contexts_.push_back(std::move(context));
    }
    sinks_ = random.Normals(1, shape.heads);
  }

  static void Append(const Context& context, int32_t first, int32_t count, StepTables* step) {
    const std::vector<int32_t> tokens(count);
    step->blocks.resize(2);
    step->Append(tokens.data(), count, first);
    const auto end = BlocksFor(first + count);
    for (int c = 0; c < 2; ++c) {
      const auto& blocks = c == 0 ? context.near_blocks : context.far_blocks;
      step->blocks[c].insert(step->blocks[c].end(), blocks.begin(), blocks.begin() + end);
    }
  }

  // The contexts' rows in a cache, and then the queries [first, first + count) of each of `asked`.
  Results Run(Backend* backend, const std::vector<size_t>& asked, int32_t first, int32_t count) {
    RowLayer near{.num_blocks = kBlocks, .dim = shape_.dim};
    RowLayer far{.num_blocks = kBlocks, .dim = shape_.dim, .every = shape_.every, .cache_class = 1};
    near.block_stride = far.block_stride = near.block_values() + far.block_values() + 3;
    Buffer memory = backend->Allocate(kBlocks * near.block_stride * sizeof(float)).value();
    near.data = static_cast<float*>(memory.data());
    far.data = near.data + near.block_values();
    for (const Context& context : contexts_) {
      StepTables step;
      Append(context, 0, context.length(), &step);
      DeviceMatrix device_near(backend, context.near, 1), device_far(backend, context.far);
      EXPECT_TRUE(backend->BeginStep(&step).ok());
      absl::Status status = backend->StoreRows(device_near.tensor(), near);
      if (status.ok()) status = backend->StoreRows(device_far.tensor(), far);
      EXPECT_TRUE(status.ok()) << status;
    }
    StepTables step;
    Matrix q(0, shape_.heads * shape_.dim), weights(0, shape_.heads);
    for (const size_t i : asked) {
      const Context& context = contexts_[i];
      const auto queries = static_cast<int32_t>(context.q.rows);
      Append(context, context.length() - queries + first, count, &step);
      for (auto [to, from] : {std::pair(&q, &context.q), {&weights, &context.weights}}) {
        const Matrix rows = from->Rows(first, count);
        to->values.insert(to->values.end(), rows.values.begin(), rows.values.end());
        to->rows += count;
      }
    }
    Matrix unseen(q.rows, kBlocks * kKvBlockTokens);
    std::fill(unseen.values.begin(), unseen.values.end(), kUnseen);
    DeviceMatrix device_q(backend, q, 2), device_weights(backend, weights, 1);
    DeviceMatrix scores(backend, unseen, 1), out(backend, q.rows, q.cols, 3);
    DeviceMatrix sinks(backend, sinks_);
    RowAttention attention = {.near = near,
                              .window = {.size = shape_.window},
                              .far = far,
                              .chosen = {},
                              .scale = 1 / std::sqrt(static_cast<float>(shape_.dim)),
                              .sinks = sinks.tensor()};
    if (shape_.window == 0) attention.sinks = {};
    Results results;
    EXPECT_TRUE(backend->BeginStep(&step).ok());
    absl::Status status =
        backend->ScoreRows(device_q.tensor(), device_weights.tensor(), far, scores.tensor());
    Buffer chosen = backend->Allocate(q.rows * shape_.most * sizeof(int32_t) + 1).value();
    if (shape_.most > 0 && status.ok()) {
      attention.chosen = Tensor(chosen.data(), DType::kI32, q.rows, shape_.most);
      status = backend->ChooseRows(scores.tensor(), far, attention.chosen);
      results.chosen.resize(q.rows * shape_.most);
      EXPECT_TRUE(backend
                      ->Download(chosen.data(), results.chosen.data(),
                                 results.chosen.size() * sizeof(int32_t))
                      .ok());
    }
    if (status.ok()) status = backend->AttendRows(device_q.tensor(), attention, out.tensor());
    EXPECT_TRUE(status.ok()) << status;
    results.scores = scores.Download();
    results.attended = out.Download();
    return results;
  }

  Shape shape_;
  std::vector<Context> contexts_;
  Matrix sinks_{0, 0};
};

TEST_P(RowCacheTest, MatchesReferenceInAnyCompany) {
  for (const Shape& shape : {Shape{64, 4, 3, 5, 8}, Shape{40, 4, 2, 0, 33}, Shape{576, 32, 2, 2, 0},
                             Shape{24, 128, 5, 0, 70}, Shape{7, 1, 1, 300, 4}}) {
    SCOPED_TRACE(absl::StrCat("dim=", shape.dim, " every=", shape.every, " most=", shape.most));
    // More rows than are reduced at a time; fewer than a run of 4.
    Make(shape, {{300, 9}, {3, 3}, {131, 5}});
    for (const std::vector<size_t>& asked : {std::vector<size_t>{0, 2}, {1}}) {
      const int32_t count = asked.size() > 1 ? 5 : 3;
      const Results got = Run(backend(), asked, 0, count);
      const Results wanted = Run(reference(), asked, 0, count);
      ExpectMatches("ScoreRows", wanted.scores, got.scores);
      ExpectMatches("AttendRows", wanted.attended, got.attended);
      EXPECT_EQ(wanted.chosen, got.chosen);
      if (portable() != nullptr) {
        ExpectSameBits(Run(portable(), asked, 0, count).attended, got.attended);
      }
      const size_t last = asked.size() - 1;
      const Results alone = Run(WithThreads(1).get(), {asked[last]}, 1, 1);
      const int64_t row = static_cast<int64_t>(last) * count + 1;
      ExpectSameBits(got.attended.Rows(row, 1), alone.attended);
      ExpectSameBits(got.scores.Rows(row, 1), alone.scores);
    }
  }
}

TEST_P(RowCacheTest, ChoosesTheGreatestInAscendingOrder) {
  Make({.dim = 8, .every = 4, .heads = 1, .most = 3, .window = 4}, {{30, 2}});
  RowLayer layer{.num_blocks = kBlocks, .dim = 8, .every = 4, .cache_class = 1};
  layer.block_stride = layer.block_values();
  Buffer memory = backend()->Allocate(kBlocks * layer.block_stride * sizeof(float)).value();
  layer.data = static_cast<float*>(memory.data());
  StepTables step;
  Append(contexts_[0], 3, 1, &step);   // sees row 0
  Append(contexts_[0], 28, 2, &step);  // each sees rows 0 to 6
  ASSERT_TRUE(backend()->BeginStep(&step).ok());
  Matrix scores(3, 7);
  scores.values = {0, 0, 0,   0, 0, 0, 0,   //
                   1, 5, NAN, 5, 9, 5, -1,  //
                   8, 7, 6,   5, 4, 3, 2};
  Buffer buffer = backend()->Allocate(9 * sizeof(int32_t)).value();
  const Tensor chosen(buffer.data(), DType::kI32, 3, 3);
  auto choose = [&](int64_t apart) {
    DeviceMatrix device_scores(backend(), scores, apart);
    EXPECT_TRUE(backend()->ChooseRows(device_scores.tensor(), layer, chosen).ok());
    std::vector<int32_t> got(9);
    EXPECT_TRUE(backend()->Download(buffer.data(), got.data(), 9 * sizeof(int32_t)).ok());
    return got;
  };
  for (const int64_t apart : {4, 1 << 20}) {  // these a device brings one by one
    EXPECT_EQ(choose(apart), (std::vector<int32_t>{0, -1, -1, 1, 3, 4, 0, 1, 2}));
  }
  const std::atomic<bool> cancel{true};
  backend()->set_cancel(&cancel);
  EXPECT_EQ(choose(4), std::vector<int32_t>(9, -1));
  backend()->set_cancel(nullptr);
  EXPECT_EQ(backend()->ChooseRows({}, layer, chosen).message(),
            "ChooseRows: scores must be F32 (3, any), got F32 (0, 0) without data");
}

TEST_P(RowCacheTest, TurnsTheLastValuesOfHeads) {
  constexpr int64_t kRows = 5;
  Random random(3);
  for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    for (const int32_t dim : {4, 16}) {
      const Matrix x = random.Normals(kRows, 3 * 16), angles = random.Normals(kRows, dim);
      auto turn = [&](Backend* backend, int64_t first, int64_t count) {
        StepTables step;
        const std::vector<int32_t> tokens(count);
        step.Append(tokens.data(), static_cast<int32_t>(count), 0);
        step.ropes.push_back({dim, angles.Rows(first, count).values});
        DeviceMatrix device_x(backend, x.Rows(first, count), 3);
        EXPECT_TRUE(backend->BeginStep(&step).ok());
        EXPECT_TRUE(
            backend->RotateTails(device_x.tensor(), 16, {.table = 0, .pairing = pairing}).ok());
        return device_x.Download();
      };
      const Matrix got = turn(backend(), 0, kRows);
      ExpectSameBits(turn(reference(), 0, kRows), got);
      ExpectSameBits(got.Rows(3, 1), turn(backend(), 3, 1));
      EXPECT_EQ(got.values[0] == x.values[0], dim == 4);  // of a part the first values stay
    }
  }
}

INSTANTIATE_BACKEND_TESTS(RowCacheTest);

}  // namespace
}  // namespace lm

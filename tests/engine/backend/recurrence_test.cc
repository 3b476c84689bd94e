// CausalConv, PoolRows and DeltaRule: against the reference, and the same bits however a sequence
// is cut into steps, whoever else is in them, and with any number of threads.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/engine/backend/backend_fixture.h"

namespace lm {
namespace {

constexpr int32_t kSlots = 8;

Matrix Ones(int64_t cols, float value) {
  Matrix ones(1, cols);
  std::fill(ones.values.begin(), ones.values.end(), value);
  return ones;
}

// A sequence's inputs, a row a token, and how far it has come.
struct Feed {
  Matrix inputs;
  int32_t slot;
  int32_t done = 0;
};

class RecurrenceTest : public BackendTest {
 protected:
  // Puts rows of `inputs` through an op that has states of `size` values.
  using Op = std::function<absl::Status(Backend*, Tensor in, const StateLayer&, Tensor out)>;
  class Runner {
   public:
    Runner(Backend* backend, int64_t size, int64_t out_cols, Op op)
        : backend_(backend), out_cols_(out_cols), op_(std::move(op)) {
      // Beside a layer's state lies another's; what lay in a slot before must not matter.
      const int64_t stride = size + 5;
      std::vector<float> junk(kSlots * stride, 99.0f);
      memory_ = backend->Allocate(junk.size() * sizeof(float)).value();
      EXPECT_TRUE(backend->Upload(junk.data(), memory_.data(), memory_.bytes()).ok());
      layer_ = {static_cast<float*>(memory_.data()), stride, kSlots};
    }

    // counts[i] more rows of each sequence in one step.
    Matrix Run(const std::vector<Feed*>& feeds, const std::vector<int32_t>& counts) {
      StepTables step;
      Matrix in(0, feeds[0]->inputs.cols);
      for (size_t i = 0; i < feeds.size(); ++i) {
        const std::vector<int32_t> tokens(counts[i]);
        step.Append(tokens.data(), counts[i], feeds[i]->done, feeds[i]->slot);
        const Matrix rows = feeds[i]->inputs.Rows(feeds[i]->done, counts[i]);
        in.values.insert(in.values.end(), rows.values.begin(), rows.values.end());
        in.rows += counts[i];
        feeds[i]->done += counts[i];
      }
      DeviceMatrix device_in(backend_, in, 3), out(backend_, in.rows, out_cols_, 2);
      absl::Status status = backend_->BeginStep(&step);
      if (status.ok()) status = op_(backend_, device_in.tensor(), layer_, out.tensor());
      EXPECT_TRUE(status.ok()) << status;
      return out.Download();
    }

   private:
    Backend* const backend_;
    const int64_t out_cols_;
    const Op op_;
    Buffer memory_;
    StateLayer layer_;
  };

  void Check(absl::string_view name, int64_t in_cols, int64_t out_cols, int64_t size,
             const Op& op) {
    Random random(in_cols);
    std::vector<Feed> feeds;
    for (int32_t i = 0; i < 3; ++i) {
      feeds.push_back({random.Normals(random.Int(1, 30), in_cols), (i * 3 + 1) % kSlots});
    }
    std::vector<Matrix> wanted;
    for (const Feed& feed : feeds) {
      const int32_t rows = static_cast<int32_t>(feed.inputs.rows);
      auto run = [&](Backend* backend) {
        Feed again = feed;
        return Runner(backend, size, out_cols, op).Run({&again}, {rows});
      };
      wanted.push_back(run(backend()));
      ExpectMatches(name, run(reference()), wanted.back());
      if (portable() != nullptr) ExpectSameBits(run(portable()), wanted.back());
    }
    for (int threads : {1, 3}) {
      auto backend = WithThreads(threads);
      Runner runner(backend.get(), size, out_cols, op);
      std::vector<Feed> again = feeds;
      for (;;) {
        std::vector<Feed*> batch;
        std::vector<int32_t> counts;
        for (Feed& feed : again) {
          const int64_t left = feed.inputs.rows - feed.done;
          if (left == 0) continue;
          batch.push_back(&feed);
          counts.push_back(static_cast<int32_t>(random.Int(1, std::min<int64_t>(left, 9))));
        }
        if (batch.empty()) break;
        std::vector<int32_t> before;
        for (Feed* feed : batch) before.push_back(feed->done);
        const Matrix got = runner.Run(batch, counts);
        int64_t row = 0;
        for (size_t i = 0; i < batch.size(); ++i) {
          ExpectSameBits(wanted[batch[i] - again.data()].Rows(before[i], counts[i]),
                         got.Rows(row, counts[i]));
          row += counts[i];
        }
      }
    }
  }
};

TEST_P(RecurrenceTest, CausalConvMatchesReferenceInAnySteps) {
  for (int64_t width : {2, 4, 7}) {
    for (int64_t channels : {1, 15, 48, 100, 1300}) {
      SCOPED_TRACE(absl::StrCat("width=", width, " channels=", channels));
      const Matrix weight = Random(width).Normals(width, channels);
      const Matrix bias_values = Random(8).Normals(1, channels);
      const auto activation = width == 4 ? Activation::kSilu : Activation::kIdentity;
      Check("CausalConv", channels, channels, (width - 1) * channels,
            [&](Backend* backend, Tensor in, const StateLayer& layer, Tensor out) {
              DeviceMatrix device_weight(backend, weight);
              DeviceMatrix bias(backend, bias_values);
              const Tensor bias_or_none = width == 7 ? Tensor() : bias.tensor();
              return backend->CausalConv(in, device_weight.tensor(), bias_or_none, activation,
                                         layer, out);
            });
    }
  }
}

TEST_P(RecurrenceTest, PoolRowsMatchesReferenceInAnySteps) {
  for (const bool overlaps : {false, true}) {
    for (const int32_t every : {1, 4, 16}) {
      for (const int64_t dim : {1, 40, 130}) {
        SCOPED_TRACE(absl::StrCat("every=", every, " dim=", dim, " overlaps=", overlaps));
        const int64_t cols = (overlaps ? 2 : 1) * dim;
        const Matrix places = Random(every).Normals(every, cols);
        Check("PoolRows", 2 * cols, dim, PoolInputs::StateSize(dim, overlaps),
              [&](Backend* backend, Tensor in, const StateLayer& layer, Tensor out) {
                DeviceMatrix device_places(backend, places, 2);
                return backend->PoolRows({in.Cols(0, cols), in.Cols(cols, cols),
                                          device_places.tensor(), every, overlaps},
                                         layer, out);
              });
      }
    }
  }
}

TEST_P(RecurrenceTest, DeltaRuleMatchesReferenceInAnySteps) {
  struct Shape {
    int32_t heads, key_heads;
    int64_t key_dim, dim;
    StateRule rule = StateRule::kDelta;
    bool a_of_keys = false;
  };
  for (const Shape& s :
       {Shape{1, 1, 1, 1}, Shape{2, 1, 7, 16}, Shape{4, 2, 16, 20}, Shape{6, 3, 33, 40},
        Shape{4, 2, 16, 40}, Shape{4, 2, 16, 40, StateRule::kStateSpace},
        Shape{6, 1, 128, 64, StateRule::kStateSpace}, Shape{2, 2, 128, 128}, Shape{1, 1, 160, 24},
        Shape{5, 1, 16, 1, StateRule::kStateSpace, true},
        Shape{4, 2, 21, 40, StateRule::kDelta, true}}) {
    SCOPED_TRACE(absl::StrCat(s.heads, " heads, ", s.key_dim, " x ", s.dim));
    Random random(s.key_dim);
    const Matrix dt_bias = random.Normals(1, s.heads);
    Matrix a = random.Normals(1, s.heads * (s.a_of_keys ? s.key_dim : 1));
    for (float& value : a.values) value = -std::abs(value);
    const int64_t keys = s.key_heads * s.key_dim, values = s.heads * s.dim;
    Check("DeltaRule", 2 * keys + values + 2 * s.heads, values, s.heads * s.key_dim * s.dim,
          [&](Backend* backend, Tensor in, const StateLayer& layer, Tensor out) {
            DeviceMatrix device_bias(backend, dt_bias), device_a(backend, a);
            const bool reads = s.rule == StateRule::kDelta;
            DeviceMatrix gain(backend, Ones(s.key_dim, 1 / std::sqrt(float(s.key_dim))));
            const Tensor q = in.Cols(0, keys), k = in.Cols(keys, keys);
            // Of length 1, as a model's are: the state stays bounded.
            for (Tensor t : {q, k}) {
              absl::Status status = backend->RmsNorm(t, gain.tensor(), 1e-6f, t);
              if (!status.ok()) return status;
            }
            return backend->DeltaRule(
                {.q = q,
                 .k = k,
                 .v = in.Cols(2 * keys, values),
                 .alpha = in.Cols(2 * keys + values, s.heads),
                 .beta = reads ? in.Cols(2 * keys + values + s.heads, s.heads) : Tensor(),
                 .dt_bias = device_bias.tensor(),
                 .a = device_a.tensor(),
                 .heads = s.heads,
                 .key_heads = s.key_heads,
                 .grouped = s.dim == 40,
                 .rule = s.rule,
                 .skip = reads ? Tensor() : device_bias.tensor()},
                layer, out);
          });
  }
}

// Decays that each token and key has for itself, and keys that are erased.
TEST_P(RecurrenceTest, RulesWithDecaysOfTokensMatchReferenceInAnySteps) {
  struct Shape {
    int32_t heads;
    int64_t key_dim, dim;
    StateRule rule = StateRule::kDelta;
  };
  for (const Shape& s :
       {Shape{1, 1, 1}, Shape{3, 7, 16}, Shape{2, 128, 40}, Shape{1, 160, 24},
        Shape{1, 1, 1, StateRule::kErase}, Shape{3, 21, 20, StateRule::kErase},
        Shape{2, 64, 64, StateRule::kErase}, Shape{1, 160, 7, StateRule::kErase}}) {
    SCOPED_TRACE(absl::StrCat(s.heads, " heads, ", s.key_dim, " x ", s.dim));
    const int64_t keys = s.heads * s.key_dim, values = s.heads * s.dim;
    const bool erases = s.rule == StateRule::kErase;
    Check("DeltaRule", 5 * keys + values + s.heads, values, keys * s.dim,
          [&](Backend* backend, Tensor in, const StateLayer& layer, Tensor out) {
            DeviceMatrix gain(backend, Ones(s.key_dim, 1 / std::sqrt(float(s.key_dim))));
            const Tensor q = in.Cols(0, keys), k = in.Cols(keys, keys);
            const Tensor erase = in.Cols(2 * keys, keys), rates = in.Cols(3 * keys, keys);
            const Tensor decay = in.Cols(4 * keys, keys);
            for (Tensor t : {q, k, erase}) {
              absl::Status status = backend->RmsNorm(t, gain.tensor(), 1e-6f, t);
              if (!status.ok()) return status;
            }
            for (Tensor t : {decay, rates}) {
              absl::Status status = backend->GatedActivation(Activation::kSigmoid, t, {}, t);
              if (!status.ok()) return status;
            }
            absl::Status status = backend->ScaleAndCap(decay, -0.6f, 0);
            if (!status.ok()) return status;
            return backend->DeltaRule({.q = q,
                                       .k = k,
                                       .v = in.Cols(5 * keys, values),
                                       .beta = erases ? rates : in.Cols(5 * keys + values, s.heads),
                                       .log_decay = decay,
                                       .erase = erases ? erase : Tensor(),
                                       .heads = s.heads,
                                       .key_heads = s.heads,
                                       .rule = s.rule},
                                      layer, out);
          });
  }
}

TEST_P(RecurrenceTest, RefusesWhatHasNoState) {
  DeviceMatrix x(backend(), 1, 8), weight(backend(), 4, 8), out(backend(), 1, 8);
  Buffer memory = backend()->Allocate(2 * 24 * sizeof(float)).value();
  const StateLayer layer = {static_cast<float*>(memory.data()), 24, 2};
  auto convolve = [&](int32_t slot, const StateLayer& states,
                      Activation activation = Activation::kSilu) {
    StepTables step;
    const int32_t token = 0;
    step.Append(&token, 1, 0, slot);
    return backend()->BeginStep(&step).ok() &&
           backend()
               ->CausalConv(x.tensor(), weight.tensor(), {}, activation, states, out.tensor())
               .ok();
  };
  EXPECT_TRUE(convolve(1, layer));
  EXPECT_FALSE(convolve(-1, layer));
  EXPECT_FALSE(convolve(2, layer));
  EXPECT_FALSE(convolve(1, {layer.data, 23, 2}));
}

INSTANTIATE_BACKEND_TESTS(RecurrenceTest);

}  // namespace
}  // namespace lm

#include "engine/backend/tensor_parallel/host_collectives.h"

#include <cstring>

namespace lm {
namespace {

class HostCollectives final : public Collectives {
 public:
  absl::Status Join() override { return absl::OkStatus(); }

  absl::Status AllGather(absl::Span<const Tensor> matrices,
                         absl::Span<const int64_t> first_cols) override {
    for (size_t from = 0; from < matrices.size(); ++from) {
      const int64_t first = first_cols[from];
      const size_t bytes = (first_cols[from + 1] - first) * sizeof(float);
      for (size_t to = 0; to < matrices.size(); ++to) {
        if (to == from) continue;
        for (int64_t row = 0; row < matrices[from].rows; ++row) {
          std::memcpy(matrices[to].row<float>(row) + first, matrices[from].row<float>(row) + first,
                      bytes);
        }
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Collectives> CreateHostCollectives() { return std::make_unique<HostCollectives>(); }

}  // namespace lm

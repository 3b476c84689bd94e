#include "tests/engine/backend/kv_fixture.h"

#include <algorithm>
#include <numeric>

namespace lm {

DeviceKv::DeviceKv(Backend* backend, DType dtype, int32_t num_blocks, int32_t kv_heads,
                   int32_t head_dim)
    : backend_(backend) {
  layer_ = {nullptr, nullptr, dtype, num_blocks, kv_heads, head_dim};
  keys_ = backend->Allocate(num_blocks * layer_.block_bytes()).value();
  values_ = backend->Allocate(num_blocks * layer_.block_bytes()).value();
  layer_.keys = keys_.data();
  layer_.values = values_.data();
}

void DeviceKv::Store(const Matrix& k, const Matrix& v, const std::vector<int64_t>& slots) {
  // A rope without columns rotates nothing.
  DeviceMatrix q(backend_, Matrix(k.rows, k.cols)), device_k(backend_, k, 2), device_v(backend_, v);
  DeviceMatrix rope(backend_, Matrix(k.rows, 0));
  absl::Status status =
      backend_->RopeAndStoreKv(q.tensor(), device_k.tensor(), device_v.tensor(), rope.tensor(),
                               RopePairing::kHalves, slots, layer_);
  EXPECT_TRUE(status.ok()) << status;
}

std::vector<int64_t> TestSequence::Slots() const {
  std::vector<int64_t> slots;
  for (int64_t p = 0; p < context(); ++p) {
    slots.push_back(int64_t{blocks[p / kKvBlockTokens]} * kKvBlockTokens + p % kKvBlockTokens);
  }
  return slots;
}

TestContexts::TestContexts(const KvShape& shape, const std::vector<Length>& lengths, uint64_t seed)
    : shape_(shape) {
  Random random(seed);
  int64_t kv_cols = int64_t{shape.kv_heads} * shape.head_dim;
  for (const Length& length : lengths) {
    sequences_.push_back({random.Normals(length.context, kv_cols),
                          random.Normals(length.context, kv_cols),
                          random.Normals(length.queries, kv_cols * shape.group),
                          {}});
    num_blocks_ += (length.context + kKvBlockTokens - 1) / kKvBlockTokens;
  }
  std::vector<int32_t> free(num_blocks_);
  std::iota(free.begin(), free.end(), 0);
  for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.Int(0, i - 1)]);
  for (TestSequence& sequence : sequences_) {
    for (int64_t p = 0; p < sequence.context(); p += kKvBlockTokens) {
      sequence.blocks.push_back(free.back());
      free.pop_back();
    }
  }
}

DeviceKv TestContexts::Fill(Backend* backend) const {
  DeviceKv kv(backend, shape_.dtype, num_blocks_, shape_.kv_heads, shape_.head_dim);
  for (const TestSequence& sequence : sequences_) {
    kv.Store(sequence.k, sequence.v, sequence.Slots());
  }
  return kv;
}

int64_t TestContexts::FirstRow(size_t i) const {
  int64_t row = 0;
  for (size_t j = 0; j < i; ++j) row += sequences_[j].q.rows;
  return row;
}

Matrix TestContexts::Attend(Backend* backend) const {
  Matrix q(FirstRow(sequences_.size()), sequences_[0].q.cols);
  std::vector<SequenceSpan> spans;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const TestSequence& sequence = sequences_[i];
    std::copy(sequence.q.values.begin(), sequence.q.values.end(), q.row(FirstRow(i)));
    spans.push_back({static_cast<int32_t>(FirstRow(i)), static_cast<int32_t>(sequence.q.rows),
                     static_cast<int32_t>(sequence.context() - sequence.q.rows), sequence.blocks});
  }
  DeviceKv kv = Fill(backend);
  DeviceMatrix device_q(backend, q, 5), out(backend, q.rows, q.cols, 3);
  float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  absl::Status status =
      backend->Attention(device_q.tensor(), spans, kv.layer(), scale, out.tensor());
  EXPECT_TRUE(status.ok()) << status;
  return out.Download();
}

Matrix TestContexts::AttendPart(Backend* backend, size_t i, int64_t begin, int64_t count) const {
  const TestSequence& sequence = sequences_[i];
  Matrix q = sequence.q.Rows(begin, count);
  DeviceKv kv = Fill(backend);
  DeviceMatrix device_q(backend, q), out(backend, q.rows, q.cols);
  SequenceSpan span = {0, static_cast<int32_t>(count),
                       static_cast<int32_t>(sequence.context() - sequence.q.rows + begin),
                       sequence.blocks};
  float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
  absl::Status status =
      backend->Attention(device_q.tensor(), {span}, kv.layer(), scale, out.tensor());
  EXPECT_TRUE(status.ok()) << status;
  return out.Download();
}

}  // namespace lm

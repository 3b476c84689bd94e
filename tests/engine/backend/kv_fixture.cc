#include "tests/engine/backend/kv_fixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lm {

DeviceKv::DeviceKv(Backend* backend, DType dtype, int32_t num_blocks, int32_t kv_heads,
                   int32_t key_dim, int32_t value_dim, bool whole)
    : backend_(backend) {
  layer_ = {.dtype = dtype,
            .num_blocks = num_blocks,
            .kv_heads = kv_heads,
            .key_dim = key_dim,
            .value_dim = value_dim == 0 ? key_dim : value_dim};
  // Block-major: a block's keys, something else, its values, something else.
  constexpr int64_t kBetween = 64;
  const int64_t part = std::max(layer_.keys_bytes(), layer_.values_bytes()) + kBetween;
  layer_.block_stride = 2 * part;
  memory_ = backend->AllocateKv(num_blocks * layer_.block_stride, whole ? 1 : kv_heads).value();
  layer_.keys = memory_.data();
  layer_.values = static_cast<char*>(memory_.data()) + part;
}

void DeviceKv::Store(const Matrix& k, const Matrix& v, const std::vector<int64_t>& slots) {
  DeviceMatrix q(backend_, Matrix(k.rows, k.cols)), device_k(backend_, k, 2), device_v(backend_, v);
  const StepTables step = StepAt(slots);
  absl::Status status = backend_->BeginStep(&step);
  if (status.ok()) {
    status = backend_->RopeAndStoreKv(q.tensor(), device_k.tensor(), device_v.tensor(),
                                      /*rope=*/{}, layer_);
  }
  EXPECT_TRUE(status.ok()) << status;
}

absl::Status DeviceKv::ZeroBlock(int32_t block) {
  return backend_->Zero(static_cast<char*>(memory_.data()) + block * layer_.block_stride,
                        layer_.block_stride);
}

void AppendSequence(int32_t count, int32_t first_position, const std::vector<int32_t>& blocks,
                    StepTables* step) {
  const std::vector<int32_t> tokens(count);
  step->blocks.resize(std::max<size_t>(step->blocks.size(), 1));
  step->Append(tokens.data(), count, first_position);
  step->blocks[0].insert(step->blocks[0].end(), blocks.begin(), blocks.end());
  // A table may have room for more; the step's has not.
  const StepSequence& sequence = step->sequences.back();
  step->blocks[0].resize(std::min<size_t>(step->blocks[0].size(),
                                          sequence.first_block + BlocksFor(sequence.context())));
}

std::vector<DType> KvTypes(const Backend& backend) {
  std::vector<DType> types = {DType::kF16, DType::kF32, DType::kI8};
  // GPUs have no use for it.
  if (backend.numeric_contract() == NumericContract::kExactBlocks) types.push_back(DType::kI16);
  return types;
}

StepTables StepAt(const std::vector<int64_t>& slots, RopeTable rope) {
  StepTables step;
  step.blocks.resize(1);
  for (int64_t slot : slots) {
    AppendSequence(1, static_cast<int32_t>(slot % kKvBlockTokens),
                   {static_cast<int32_t>(slot / kKvBlockTokens)}, &step);
  }
  step.ropes.push_back(std::move(rope));
  return step;
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
  options_.scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  Random random(seed);
  const int64_t k_cols = int64_t{shape.kv_heads} * shape.key_dim;
  const int64_t v_cols = shape.value_dim == 0 ? k_cols : int64_t{shape.kv_heads} * shape.value_dim;
  for (const Length& length : lengths) {
    sequences_.push_back({random.Normals(length.context, k_cols),
                          random.Normals(length.context, v_cols),
                          random.Normals(length.queries, k_cols * shape.group),
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
    blocks_made_.push_back(sequence.blocks);
  }
}

DeviceKv TestContexts::Fill(Backend* backend, bool as_made) const {
  DeviceKv kv(backend, shape_.dtype, num_blocks_, shape_.kv_heads, shape_.key_dim,
              shape_.value_dim);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TestSequence sequence = sequences_[i];
    if (as_made) sequence.blocks = blocks_made_[i];
    kv.Store(sequence.k, sequence.v, sequence.Slots());
  }
  return kv;
}

int64_t TestContexts::FirstRow(size_t i) const {
  int64_t row = 0;
  for (size_t j = 0; j < i; ++j) row += sequences_[j].q.rows;
  return row;
}

Matrix TestContexts::Run(Backend* backend, const StepTables& step, const Matrix& q, int64_t padding,
                         bool as_made) const {
  DeviceKv kv = Fill(backend, as_made);
  DeviceMatrix device_q(backend, q, padding),
      out(backend, q.rows, int64_t{shape_.kv_heads} * shape_.group * kv.layer().value_dim, padding);
  DeviceMatrix sinks(backend, sinks_), slopes(backend, slopes_);
  AttentionOptions options = options_;
  if (sinks_.cols > 0) options.sinks = sinks.tensor();
  if (slopes_.cols > 0) options.slopes = slopes.tensor();
  absl::Status status = backend->BeginStep(&step);
  if (status.ok()) {  // what a cache of codes wants of its queries
    status = backend->RopeAndStoreKv(device_q.tensor(), {}, {}, /*rope=*/{}, kv.layer());
  }
  if (status.ok()) {
    status = backend->Attention(device_q.tensor(), kv.layer(), options, out.tensor());
  }
  EXPECT_TRUE(status.ok()) << status;
  return out.Download();
}

StepTables TestContexts::AllQueries(Matrix* q) const {
  StepTables step;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const TestSequence& sequence = sequences_[i];
    std::copy(sequence.q.values.begin(), sequence.q.values.end(), q->row(FirstRow(i)));
    AppendSequence(static_cast<int32_t>(sequence.q.rows),
                   static_cast<int32_t>(sequence.context() - sequence.q.rows), sequence.blocks,
                   &step);
  }
  return step;
}

Matrix TestContexts::Attend(Backend* backend) const {
  Matrix q(FirstRow(sequences_.size()), sequences_[0].q.cols);
  const StepTables step = AllQueries(&q);
  return Run(backend, step, q, 5);
}

Matrix TestContexts::AttendInFilled(Backend* backend) const {
  Matrix q(FirstRow(sequences_.size()), sequences_[0].q.cols);
  const StepTables step = AllQueries(&q);
  return Run(backend, step, q, 5, /*as_made=*/true);
}

Matrix TestContexts::AttendPart(Backend* backend, size_t i, int64_t begin, int64_t count) const {
  const TestSequence& sequence = sequences_[i];
  StepTables step;
  AppendSequence(static_cast<int32_t>(count),
                 static_cast<int32_t>(sequence.context() - sequence.q.rows + begin),
                 sequence.blocks, &step);
  return Run(backend, step, sequence.q.Rows(begin, count), 0);
}

}  // namespace lm

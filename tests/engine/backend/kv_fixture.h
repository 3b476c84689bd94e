// A paged KV cache with random contexts in it, the same for every backend that is given it.
#ifndef LM_TESTS_ENGINE_BACKEND_KV_FIXTURE_H_
#define LM_TESTS_ENGINE_BACKEND_KV_FIXTURE_H_

#include <vector>

#include "tests/engine/backend/backend_fixture.h"

namespace lm {

// Keys and values of one layer in a backend's memory.
class DeviceKv {
 public:
  // value_dim 0: as long as the keys. The heads are not shared out where they are `whole`.
  DeviceKv(Backend* backend, DType dtype, int32_t num_blocks, int32_t kv_heads, int32_t key_dim,
           int32_t value_dim = 0, bool whole = false);
  const KvLayer& layer() const { return layer_; }
  // Stores rows of k and v (kv_heads * key_dim and value_dim columns), not rotated, at the given
  // slots.
  void Store(const Matrix& k, const Matrix& v, const std::vector<int64_t>& slots);
  absl::Status ZeroBlock(int32_t block);

 private:
  Backend* backend_;
  Buffer memory_;
  KvLayer layer_;
};

// The types of a cache that the backend has; the last one is of codes, on CPUs of those that are
// multiplied as integers.
std::vector<DType> KvTypes(const Backend& backend);

// A step whose rows go to these slots, each a sequence of its own, with one rope table.
StepTables StepAt(const std::vector<int64_t>& slots, RopeTable rope = {});

// Appends a sequence of `count` tokens to the step, with its block table in the first class.
void AppendSequence(int32_t count, int32_t first_position, const std::vector<int32_t>& blocks,
                    StepTables* step);

// One sequence: `context` cached tokens in `blocks`, of which the last `queries` ask.
struct TestSequence {
  Matrix k, v;  // (context, kv_heads * key_dim), and of value_dim
  Matrix q;     // (queries, heads * key_dim)
  std::vector<int32_t> blocks;

  int64_t context() const { return k.rows; }
  std::vector<int64_t> Slots() const;
};

struct KvShape {
  DType dtype = DType::kF16;
  int32_t kv_heads = 1;
  int32_t group = 1;
  int32_t key_dim = 64;
  int32_t value_dim = 0;  // 0: as long as the keys
};

// Sequences of random contents, in shuffled blocks of a cache of NumBlocks().
class TestContexts {
 public:
  struct Length {
    int64_t context;
    int64_t queries;
  };
  TestContexts(const KvShape& shape, const std::vector<Length>& lengths, uint64_t seed);

  int32_t NumBlocks() const { return num_blocks_; }
  DType dtype() const { return shape_.dtype; }
  std::vector<TestSequence>& sequences() { return sequences_; }
  // Of Attend and AttendPart; its scale is set for the shape. Sinks and slopes are made on the
  // backend.
  AttentionOptions& options() { return options_; }
  void set_sinks(Matrix sinks) { sinks_ = std::move(sinks); }
  void set_slopes(Matrix slopes) { slopes_ = std::move(slopes); }
  // All queries in one batch; those of sequence i begin at FirstRow(i).
  Matrix Attend(Backend* backend) const;
  // Only the queries [begin, begin + count) of sequence i, alone.
  Matrix AttendPart(Backend* backend, size_t i, int64_t begin, int64_t count) const;
  // Attend, over what lay where the tables said when they were made.
  Matrix AttendInFilled(Backend* backend) const;
  int64_t FirstRow(size_t i) const;

 private:
  DeviceKv Fill(Backend* backend, bool as_made = false) const;
  StepTables AllQueries(Matrix* q) const;
  Matrix Run(Backend* backend, const StepTables& step, const Matrix& q, int64_t padding,
             bool as_made = false) const;
  KvShape shape_;
  AttentionOptions options_;
  Matrix sinks_{0, 0}, slopes_{0, 0};
  int32_t num_blocks_ = 0;
  std::vector<TestSequence> sequences_;
  std::vector<std::vector<int32_t>> blocks_made_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_BACKEND_KV_FIXTURE_H_

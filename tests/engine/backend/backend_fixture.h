// What the backend tests share: one suite over TestedBackends(), random inputs, the reference to
// compare with.
#ifndef LM_TESTS_ENGINE_BACKEND_BACKEND_FIXTURE_H_
#define LM_TESTS_ENGINE_BACKEND_BACKEND_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/registry.h"

namespace lm {

// A matrix on the host.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  Matrix(int64_t rows, int64_t cols) : rows(rows), cols(cols), values(rows * cols) {}
  float* row(int64_t i) { return values.data() + i * cols; }
  Matrix Rows(int64_t begin, int64_t count) const;
};

// Reproducible random numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  int64_t Int(int64_t low, int64_t high);  // in [low, high]
  float Normal();
  Matrix Normals(int64_t rows, int64_t cols);

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// All types that weights may have.
std::vector<DType> WeightTypes();

// rows x cols random weights of about unit size, as a GGUF file has them.
Buffer RandomWeights(DType dtype, int64_t rows, int64_t cols, Random* random);
Buffer CopyOf(const Buffer& buffer);

// A matrix in a backend's memory. `padding` more columns lie beside it, which must stay as they
// are: every op takes views.
class DeviceMatrix {
 public:
  DeviceMatrix(Backend* backend, const Matrix& matrix, int64_t padding = 0);
  DeviceMatrix(Backend* backend, int64_t rows, int64_t cols, int64_t padding = 0)
      : DeviceMatrix(backend, Matrix(rows, cols), padding) {}

  Tensor tensor() const { return tensor_; }
  Matrix Download() const;

 private:
  Backend* backend_;
  Buffer buffer_;
  Tensor tensor_;
};

// How far an op may be from the reference, relative to the largest magnitude of its result.
// Products are exact to the bit, whatever the table does not name too.
double Tolerance(absl::string_view op);

// How far a product may be: nothing, but for a backend whose order is its own.
double ProductTolerance(const Backend& backend, DType weights);

// Fails where `got` is farther from `wanted` than that, relative to the largest magnitude of its
// row.
void ExpectProduct(const Backend& backend, DType weights, const Matrix& wanted, const Matrix& got);
// Fails where `got` is farther from `wanted` than Tolerance(op).
void ExpectMatches(absl::string_view op, const Matrix& wanted, const Matrix& got);
// The same of attention over a cache of that type: over one of F16 or I8 a backend whose order is
// its own may round the weights to 11 bits, and in one of I16 the last bit of an exponential may be
// another code of a weight.
void ExpectAttention(const Backend& backend, DType cache, absl::string_view op,
                     const Matrix& wanted, const Matrix& got);
// Fails where a bit differs.
void ExpectSameBits(const Matrix& wanted, const Matrix& got);

// The suite: backend() with two threads, and the oracle.
class BackendTest : public testing::TestWithParam<BackendOptions> {
 protected:
  void SetUp() override;
  Backend* backend() { return backend_.get(); }
  Backend* reference() { return reference_.get(); }
  // Whose bits backend() must have: the kernels without an instruction set of their own, where it
  // is another of the CPU's; else null.
  Backend* portable() { return portable_.get(); }
  // The same backend with another number of threads.
  std::unique_ptr<Backend> WithThreads(int threads);

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> reference_;
  std::unique_ptr<Backend> portable_;
};

// AvailableBackends(), and several of them as one.
std::vector<BackendOptions> TestedBackends();

std::string BackendName(const testing::TestParamInfo<BackendOptions>& info);

}  // namespace lm

#define INSTANTIATE_BACKEND_TESTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(TestedBackends()), BackendName)

#endif  // LM_TESTS_ENGINE_BACKEND_BACKEND_FIXTURE_H_

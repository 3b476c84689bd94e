#include "engine/gguf/stored_form.h"

#include <cassert>
#include <cstring>

namespace lm {
namespace {

// A float, so many integers of 8 bits, and sums of 16 of them each, of 16 bits.
constexpr int kQ8KValues = 256;
constexpr int kQ8KBytes = 4 + kQ8KValues + kQ8KValues / 16 * 2;

void SplitNeighbours(const char* stored, char* block) {
  const auto* pairs = reinterpret_cast<const uint8_t*>(stored + 1);  // behind the scale
  uint8_t halves[16];
  for (int i = 0; i < 16; ++i) {
    const int shift = 4 * (i % 2);
    const int low = pairs[i / 2] >> shift & 15, high = pairs[8 + i / 2] >> shift & 15;
    halves[i] = static_cast<uint8_t>(low | high << 4);
  }
  block[0] = stored[0];
  std::memcpy(block + 1, halves, sizeof(halves));
}

void DecodeQ8K(const char* stored, char* out) {
  float d;
  std::memcpy(&d, stored, sizeof(d));
  for (int i = 0; i < kQ8KValues; ++i) {
    const float value = d * static_cast<float>(static_cast<int8_t>(stored[4 + i]));
    std::memcpy(out + i * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

bool FindStoredForm(uint32_t ggml_number, DType* dtype, StoredForm* form) {
  switch (ggml_number) {
    case 4:
      *dtype = DType::kMXFP4;
      *form = StoredForm::kNeighbours;
      return true;
    case 15:
      *dtype = DType::kF32;
      *form = StoredForm::kQ8K;
      return true;
    default:
      return false;
  }
}

int StoredBlock(StoredForm form, DType dtype) {
  return form == StoredForm::kQ8K ? kQ8KValues : static_cast<int>(Traits(dtype).block_size);
}

uint64_t StoredBytes(StoredForm form, uint64_t bytes) {
  return form == StoredForm::kQ8K ? bytes / (kQ8KValues * sizeof(float)) * kQ8KBytes : bytes;
}

void ReadStored(StoredForm form, absl::Span<const char> stored, absl::Span<char> out) {
  assert(stored.size() == StoredBytes(form, out.size()));
  const bool q8_k = form == StoredForm::kQ8K;
  const size_t from_bytes = q8_k ? kQ8KBytes : Traits(DType::kMXFP4).block_bytes;
  const size_t to_bytes = q8_k ? kQ8KValues * sizeof(float) : from_bytes;
  const char* from = stored.data();
  for (size_t at = 0; at < out.size(); at += to_bytes, from += from_bytes) {
    q8_k ? DecodeQ8K(from, out.data() + at) : SplitNeighbours(from, out.data() + at);
  }
}

}  // namespace lm

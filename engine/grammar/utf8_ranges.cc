#include "engine/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "engine/base/utf8.h"

namespace lm {
namespace {

// The first character that needs n + 1 bytes.
constexpr uint32_t kEndOfLength[] = {0, 0x80, 0x800, 0x10000, 0x110000};

// [low, high] all take `length` bytes. Cut so that in every piece the bytes are independent: below
// the first byte where low and high differ, the piece spans all continuation bytes.
void AppendOfLength(uint32_t low, uint32_t high, int length, std::vector<Utf8Sequence>* out) {
  while (low <= high) {
    // The largest aligned block that begins at low and stays within high.
    int free_bytes = 0;
    while (free_bytes + 1 < length) {
      uint32_t block = uint32_t{1} << (6 * (free_bytes + 1));
      if (low % block != 0 || high - low < block - 1) break;
      ++free_bytes;
    }
    // As many of those blocks as share all bytes but one.
    const uint32_t unit = uint32_t{1} << (6 * free_bytes);
    uint32_t last = high;
    if (free_bytes + 1 < length) {
      const uint32_t parent = unit << 6;
      last = std::min(high, low - low % parent + (parent - 1));
    }
    const uint32_t count = (last - low + 1) / unit;
    const uint32_t end = low + (count - 1) * unit;
    std::string from, to;
    AppendUtf8(low, &from);
    AppendUtf8(end + (unit - 1), &to);
    Utf8Sequence sequence{length, {}};
    for (int i = 0; i < length; ++i) {
      sequence.bytes[i] = {static_cast<uint8_t>(from[i]), static_cast<uint8_t>(to[i])};
    }
    out->push_back(sequence);
    low = end + unit;
  }
}

}  // namespace

void AppendUtf8Sequences(uint32_t low, uint32_t high, std::vector<Utf8Sequence>* out) {
  for (int length = 1; length <= 4; ++length) {
    uint32_t from = std::max(low, kEndOfLength[length - 1]);
    uint32_t to = std::min(high, kEndOfLength[length] - 1);
    if (from <= to) AppendOfLength(from, to, length, out);
  }
}

}  // namespace lm

#include "engine/text/byte_alphabet.h"

#include <array>

#include "engine/base/utf8.h"

namespace lm {
namespace {

constexpr uint32_t kFirstExtra = 0x100;
constexpr uint32_t kExtras = 68;

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<uint8_t, kFirstExtra + kExtras> byte;  // by code point
  std::array<bool, kFirstExtra + kExtras> used{};
};

bool Prints(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

const Alphabet& TheAlphabet() {
  static const Alphabet* const kAlphabet = [] {
    auto* alphabet = new Alphabet;
    uint32_t extra = kFirstExtra;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t c = Prints(byte) ? byte : extra++;
      AppendUtf8(c, &alphabet->spelling[byte]);
      alphabet->byte[c] = static_cast<uint8_t>(byte);
      alphabet->used[c] = true;
    }
    return alphabet;
  }();
  return *kAlphabet;
}

}  // namespace

absl::string_view SpellByte(uint8_t byte) { return TheAlphabet().spelling[byte]; }

std::string SpellBytes(absl::string_view bytes) {
  std::string name;
  for (char byte : bytes) name += TheAlphabet().spelling[static_cast<uint8_t>(byte)];
  return name;
}

std::string UnspellBytes(absl::string_view name) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  for (size_t pos = 0; pos < name.size();) {
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(name, &pos);
    if (c < alphabet.used.size() && alphabet.used[c]) {
      bytes.push_back(static_cast<char>(alphabet.byte[c]));
    } else {
      bytes.append(name.data() + begin, pos - begin);
    }
  }
  return bytes;
}

}  // namespace lm

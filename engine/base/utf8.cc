#include "engine/base/utf8.h"

#include <algorithm>
#include <cstring>

namespace lm {
namespace {

// What a lead byte promises: the length of the sequence and the legal range of its second byte
// (Unicode Standard, table 3-7). length 0: not a lead byte.
struct Lead {
  int length;
  uint8_t low;
  uint8_t high;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// The number of bytes at the head of `text` that fit one character (0 if the first cannot begin
// one); *complete tells whether they make a whole one.
size_t MatchOne(absl::string_view text, bool* complete) {
  *complete = false;
  Lead lead = LeadOf(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return 0;
  size_t n = 1;
  for (; n < static_cast<size_t>(lead.length) && n < text.size(); ++n) {
    uint8_t byte = static_cast<uint8_t>(text[n]);
    uint8_t low = n == 1 ? lead.low : 0x80;
    uint8_t high = n == 1 ? lead.high : 0xbf;
    if (byte < low || byte > high) return n;
  }
  *complete = n == static_cast<size_t>(lead.length);
  return n;
}

// The number of bytes before the first that is not ASCII, eight at a time.
size_t AsciiPrefix(absl::string_view text) {
  size_t n = 0;
  for (uint64_t bytes; n + sizeof bytes <= text.size(); n += sizeof bytes) {
    std::memcpy(&bytes, text.data() + n, sizeof bytes);
    if ((bytes & 0x8080808080808080) != 0) break;
  }
  while (n < text.size() && static_cast<uint8_t>(text[n]) < 0x80) ++n;
  return n;
}

}  // namespace

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    pos += AsciiPrefix(text.substr(pos));
    if (pos == text.size()) break;
    bool complete;
    size_t n = MatchOne(text.substr(pos), &complete);
    if (!complete) return pos;
    pos += n;
  }
  return pos;
}

uint32_t DecodeUtf8(absl::string_view text, size_t* pos) {
  bool complete;
  size_t n = MatchOne(text.substr(*pos), &complete);
  if (!complete) {
    ++*pos;
    return 0xfffd;
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + *pos;
  *pos += n;
  if (n == 1) return bytes[0];
  uint32_t code_point = bytes[0] & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) code_point = code_point << 6 | (bytes[i] & 0x3fu);
  return code_point;
}

void AppendUtf8(uint32_t c, std::string* out) {
  auto push = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xc0 | c >> 6);
    push(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    push(0xe0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3f));
    push(0x80 | (c & 0x3f));
  } else {
    push(0xf0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3f));
    push(0x80 | (c >> 6 & 0x3f));
    push(0x80 | (c & 0x3f));
  }
}

size_t IncompleteUtf8Suffix(absl::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    absl::string_view tail = text.substr(text.size() - back);
    if (LeadOf(static_cast<uint8_t>(tail[0])).length <= 1) continue;
    bool complete;
    size_t n = MatchOne(tail, &complete);
    return n == back && !complete ? back : 0;
  }
  return 0;
}

}  // namespace lm

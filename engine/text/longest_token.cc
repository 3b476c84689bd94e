#include "engine/text/longest_token.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {
namespace {

constexpr size_t kBytesBetweenCheckpoints = 16384;

int LowerHexDigit(char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; }

// What a name spells. Whatever else stands behind a backslash stands for itself.
std::string Unescape(absl::string_view name) {
  std::string bytes;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '\\' || i + 1 == name.size()) {
      bytes += name[i];
      continue;
    }
    const char kind = name[++i];
    if (kind == 'x' && i + 2 < name.size()) {
      bytes += static_cast<char>(LowerHexDigit(name[i + 1]) << 4 | LowerHexDigit(name[i + 2]));
      i += 2;
    } else {
      bytes += kind == 't' ? '\t' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind;
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LongestToken>> LongestToken::Create(const Vocabulary& vocabulary,
                                                                   const TokenIndex& index) {
  std::map<std::string, int32_t> ids;  // of two that spell the same the last counts
  for (const std::string& name : vocabulary.tokens) {
    const int32_t id = index.FindPlain(name);
    if (id < 0) continue;
    const std::string bytes = Unescape(name);
    if (!bytes.empty()) ids[bytes] = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const bool of_utf8 = byte != 0xc0 && byte != 0xc1 && byte <= 0xf4;
    if (!of_utf8 || ids.count(std::string(1, static_cast<char>(byte))) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens: there is no token for the byte 0x",
                     absl::Hex(byte, absl::kZeroPad2)));
  }
  auto model = std::unique_ptr<LongestToken>(new LongestToken);
  model->names_.Build({ids.begin(), ids.end()});
  return model;
}

absl::Status LongestToken::Encode(absl::string_view text, bool /*begins*/,
                                  std::vector<int32_t>* ids) const {
  size_t next_checkpoint = kBytesBetweenCheckpoints;
  for (size_t pos = 0; pos < text.size();) {
    if (pos >= next_checkpoint) {
      RETURN_IF_ERROR(Checkpoint());
      next_checkpoint = pos + kBytesBetweenCheckpoints;
    }
    int32_t longest = -1;
    size_t end = pos + 1;
    int32_t node = NameTrie::kRoot;
    for (size_t i = pos; i < text.size() && (node = names_.Next(node, text[i])) >= 0; ++i) {
      if (names_.IdAt(node) < 0) continue;
      longest = names_.IdAt(node);
      end = i + 1;
    }
    ids->push_back(longest);  // every byte is one
    pos = end;
  }
  return absl::OkStatus();
}

std::string LongestToken::DecodeName(absl::string_view name) const { return Unescape(name); }

}  // namespace lm

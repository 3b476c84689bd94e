#include "engine/text/cheapest_tokens.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr int64_t kUnknownCost = 10'000'000;
constexpr int64_t kMostCost = 20'000'000;  // tokens of this cost or more are not taken
constexpr size_t kStepsBetweenCheckpoints = 16384;

bool BeginsCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; }

}  // namespace

absl::StatusOr<std::unique_ptr<CheapestTokens>> CheapestTokens::Create(const Vocabulary& vocabulary,
                                                                       const TokenIndex& index) {
  auto model = std::unique_ptr<CheapestTokens>(new CheapestTokens);
  model->bytes_.fill(-1);
  const auto tokens = static_cast<int32_t>(vocabulary.tokens.size());
  model->costs_.resize(tokens);
  model->sizes_.resize(tokens);
  std::map<absl::string_view, int32_t> ids;
  for (int32_t id = 0; id < tokens; ++id) {
    const std::string& name = vocabulary.tokens[id];
    if (vocabulary.types[id] == TokenType::kByte) {
      model->bytes_[std::strtol(name.c_str() + 3, nullptr, 16)] = id;
      continue;
    }
    const int32_t plain = index.FindPlain(name);
    const double cost = std::round(double{vocabulary.scores[id]} * -1e4);
    if (plain < 0 || name.empty() || !(cost < kMostCost)) continue;
    ids[name] = plain;
    model->costs_[plain] = static_cast<int64_t>(std::max<double>(cost, -kMostCost));
    model->sizes_[plain] = static_cast<uint32_t>(name.size());
    model->longest_ = std::max(model->longest_, name.size());
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (model->bytes_[byte] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens: there is no token for the byte 0x",
                     absl::Hex(byte, absl::kZeroPad2)));
  }
  model->names_.Build({ids.begin(), ids.end()});
  return model;
}

// From the end on: what is behind each place costs least by which token, -1 being that of a byte.
absl::Status CheapestTokens::Encode(absl::string_view text, bool /*begins*/,
                                    std::vector<int32_t>* ids) const {
  if (absl::StartsWith(text, kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  constexpr size_t kLongestCharacter = 4;
  // Costs of the places that tokens reach from where we are.
  std::vector<int64_t> costs(std::max(longest_, kLongestCharacter) + 1);
  auto cost_at = [&](size_t place) -> int64_t& { return costs[place % costs.size()]; };
  std::vector<int32_t> best(text.size(), -1);
  cost_at(text.size()) = 0;
  size_t steps = 0, next = text.size();  // the character behind
  for (size_t at = text.size(); at-- > 0;) {
    if (!BeginsCharacter(text[at])) continue;
    int64_t least = cost_at(next) + kUnknownCost;
    int32_t node = NameTrie::kRoot;
    size_t end = at;
    for (; end < text.size() && (node = names_.Next(node, text[end])) >= 0; ++end) {
      const int32_t id = names_.IdAt(node);
      if (id < 0) continue;
      const int64_t cost = cost_at(end + 1) + costs_[id];
      if (cost > least) continue;
      least = cost;
      best[at] = id;
    }
    cost_at(at) = least;
    next = at;
    steps += end - at + 1;
    if (steps < kStepsBetweenCheckpoints) continue;
    RETURN_IF_ERROR(Checkpoint());
    steps = 0;
  }
  for (size_t at = 0; at < text.size();) {
    if (best[at] >= 0) {
      ids->push_back(best[at]);
      at += sizes_[best[at]];
    } else {
      ids->push_back(bytes_[static_cast<uint8_t>(text[at++])]);
    }
  }
  return absl::OkStatus();
}

}  // namespace lm

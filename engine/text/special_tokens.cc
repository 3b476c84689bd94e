#include "engine/text/special_tokens.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

// Of the text, between two checkpoints. Find stops, unfinished, where it is interrupted.
constexpr size_t kCheckedBytes = 1 << 16;

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1, -1) {
  is_control_.resize(vocabulary.tokens.size());
  strip_before_.resize(vocabulary.tokens.size());
  strip_after_.resize(vocabulary.tokens.size());
  for (int32_t id : vocabulary.strip_before) strip_before_[id] = true;
  for (int32_t id : vocabulary.strip_after) strip_after_[id] = true;
  Lengths any{};
  Lengths user_defined{};
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!control && type != TokenType::kUserDefined) continue;
    if (vocabulary.tokens[i].empty()) continue;
    is_control_[i] = control;
    any[vocabulary.tokens[i].size()] = true;
    if (!control) user_defined[vocabulary.tokens[i].size()] = true;
    Insert(vocabulary.tokens[i], static_cast<int32_t>(i));
  }
  num_lengths_ = static_cast<int>(std::count(any.begin(), any.end(), true));
  num_user_defined_lengths_ =
      static_cast<int>(std::count(user_defined.begin(), user_defined.end(), true));
}

void SpecialTokens::Insert(absl::string_view name, int32_t id) {
  uint32_t node = 0;
  for (char c : name) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(-1);
      if (node == 0) {
        first_[byte] = child;
      } else {
        children_[uint64_t{node} << 8 | byte] = child;
      }
    }
    node = child;
  }
  nodes_[node] = id;
}

uint32_t SpecialTokens::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return first_[byte];
  auto it = children_.find(uint64_t{node} << 8 | byte);
  return it == children_.end() ? 0 : it->second;
}

std::vector<SpecialTokens::Match> SpecialTokens::Find(absl::string_view text,
                                                      absl::Span<const Range> markup) const {
  // First each stretch of markup on its own, of which the control tokens are kept; then the
  // user-defined tokens in all that is left. For a text that is all markup the outcome is that of
  // one search for both.
  std::vector<Match> matches;
  for (const Range& range : markup) {
    std::vector<Match> inside;
    Add(text, range, /*controls=*/true, &inside);
    for (const Match& match : inside) {
      if (is_control_[match.id]) matches.push_back(match);
    }
  }
  if (num_user_defined_lengths_ > 0) Add(text, {0, text.size()}, /*controls=*/false, &matches);
  return matches;
}

void SpecialTokens::Add(absl::string_view text, Range range, bool controls,
                        std::vector<Match>* matches) const {
  const auto for_each_gap = [&](auto visit) {
    size_t begin = range.begin;
    for (size_t i = 0; i <= matches->size(); ++i) {
      const size_t end = i < matches->size() ? (*matches)[i].begin : range.end;
      if (begin < end) visit(Range{begin, end});
      if (i < matches->size()) {
        begin = (*matches)[i].end;
        visit((*matches)[i]);
      }
    }
  };
  Lengths lengths{};
  int unseen = controls ? num_lengths_ : num_user_defined_lengths_;
  for_each_gap([&](auto part) {
    if constexpr (std::is_same_v<decltype(part), Range>) {
      NoteLengths(text, part, controls, &lengths, &unseen);
    }
  });
  for (size_t length = kMaxBytes; length > 0; --length) {
    if (!lengths[length]) continue;
    std::vector<Match> more;
    for_each_gap([&](auto part) {
      if constexpr (std::is_same_v<decltype(part), Range>) {
        AddOfLength(text, part, length, controls, &more);
      } else {
        more.push_back(part);
      }
    });
    *matches = std::move(more);
  }
}

void SpecialTokens::NoteLengths(absl::string_view text, Range gap, bool controls, Lengths* lengths,
                                int* unseen) const {
  for (size_t begin = gap.begin; begin<gap.end&& * unseen> 0; ++begin) {
    if (begin % kCheckedBytes == 0 && Interrupted()) return;
    uint32_t node = 0;
    for (size_t pos = begin; pos < gap.end; ++pos) {
      node = Child(node, static_cast<uint8_t>(text[pos]));
      if (node == 0) break;
      bool& seen = (*lengths)[pos + 1 - begin];
      if (seen || !Counts(node, controls)) continue;
      seen = true;
      --*unseen;
    }
  }
}

void SpecialTokens::AddOfLength(absl::string_view text, Range gap, size_t length, bool controls,
                                std::vector<Match>* matches) const {
  size_t free = gap.begin;  // where the last match ended
  for (size_t begin = gap.begin; begin + length <= gap.end;) {
    if (begin % kCheckedBytes == 0 && Interrupted()) return;
    uint32_t node = 0;
    for (size_t pos = begin; pos < begin + length; ++pos) {
      node = Child(node, static_cast<uint8_t>(text[pos]));
      if (node == 0) break;
    }
    if (node == 0 || !Counts(node, controls)) {
      ++begin;
      continue;
    }
    Match match = {begin, begin + length, nodes_[node]};
    if (strip_before_[match.id]) {
      while (match.begin > free && absl::ascii_isspace(text[match.begin - 1])) --match.begin;
    }
    if (strip_after_[match.id]) {
      while (match.end < gap.end && absl::ascii_isspace(text[match.end])) ++match.end;
    }
    matches->push_back(match);
    begin = free = match.end;
  }
}

bool SpecialTokens::Counts(uint32_t node, bool controls) const {
  const int32_t id = nodes_[node];
  return id >= 0 && (controls || !is_control_[id]);
}

}  // namespace lm

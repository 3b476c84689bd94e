#include "engine/text/special_tokens.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"

namespace lm {
namespace {

// Of the text, between two checkpoints. Find stops, unfinished, where it is interrupted.
constexpr size_t kSearchedBytes = 1 << 16;

// Whether a token's name reads as a tag that templates are made of. The HTML that some vocabularies
// hold for the sake of web pages is text.
bool LooksLikeMarkup(absl::string_view name) {
  if (name.size() < 3) return false;
  const bool angles = name.front() == '<' && name.back() == '>';
  if (!angles && !(name.front() == '[' && name.back() == ']')) return false;
  static constexpr absl::string_view kHtml[] = {
      "a",     "b",  "blockquote", "br", "caption", "code",   "div", "em",  "h1",
      "h2",    "h3", "h4",         "h5", "h6",      "hr",     "i",   "img", "li",
      "ol",    "p",  "pre",        "s",  "span",    "strong", "sub", "sup", "table",
      "tbody", "td", "tfoot",      "th", "thead",   "tr",     "u",   "ul"};
  absl::string_view inside = name.substr(1, name.size() - 2);
  absl::ConsumePrefix(&inside, "/");
  return !angles || std::find(std::begin(kHtml), std::end(kHtml), inside) == std::end(kHtml);
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1, -1) {
  classes_.resize(vocabulary.tokens.size());
  strip_before_.resize(vocabulary.tokens.size());
  strip_after_.resize(vocabulary.tokens.size());
  for (int32_t id : vocabulary.strip_before) strip_before_[id] = true;
  for (int32_t id : vocabulary.strip_after) strip_after_[id] = true;
  std::array<Lengths, kNumClasses> lengths{};
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!control && type != TokenType::kUserDefined) continue;
    if (vocabulary.tokens[i].empty()) continue;
    classes_[i] = control                                 ? kControl
                  : LooksLikeMarkup(vocabulary.tokens[i]) ? kMarkupLike
                                                          : kUserDefined;
    has_[classes_[i]] = true;
    for (int c = classes_[i]; c < kNumClasses; ++c) lengths[c][vocabulary.tokens[i].size()] = true;
    Insert(vocabulary.tokens[i], static_cast<int32_t>(i));
  }
  for (int c = 0; c < kNumClasses; ++c) {
    num_lengths_[c] = static_cast<int>(std::count(lengths[c].begin(), lengths[c].end(), true));
  }
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
        children_.Insert(uint64_t{node} << 8 | byte, child);
      }
    }
    node = child;
  }
  nodes_[node] = id;
}

uint32_t SpecialTokens::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return first_[byte];
  const uint32_t* child = children_.Find(uint64_t{node} << 8 | byte);
  return child == nullptr ? 0 : *child;
}

std::vector<SpecialTokens::Match> SpecialTokens::Find(absl::string_view text,
                                                      absl::Span<const Range> markup,
                                                      absl::Span<const Range> open) const {
  // First each stretch of markup on its own, of which the control tokens are kept; then the open
  // ones for what looks like markup; then the other user-defined tokens in all that is left. For a
  // text of one kind the outcome is that of one search for all.
  std::vector<Match> matches;
  AddOnly(text, markup, kControl, &matches);
  if (has_[kMarkupLike]) AddOnly(text, open, kMarkupLike, &matches);
  if (has_[kUserDefined]) Add(text, {0, text.size()}, kUserDefined, &matches);
  return matches;
}

void SpecialTokens::AddOnly(absl::string_view text, absl::Span<const Range> ranges, Class wanted,
                            std::vector<Match>* matches) const {
  std::vector<Match> all;
  size_t next = 0;  // of *matches
  for (const Range& range : ranges) {
    std::vector<Match> inside;
    while (next < matches->size() && (*matches)[next].begin < range.begin) {
      all.push_back((*matches)[next++]);
    }
    while (next < matches->size() && (*matches)[next].begin < range.end) {
      inside.push_back((*matches)[next++]);
    }
    Add(text, range, wanted, &inside);
    for (const Match& match : inside) {
      if (classes_[match.id] >= wanted) all.push_back(match);
    }
  }
  all.insert(all.end(), matches->begin() + next, matches->end());
  *matches = std::move(all);
}

void SpecialTokens::Add(absl::string_view text, Range range, Class most,
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
  int unseen = num_lengths_[most];
  for_each_gap([&](auto part) {
    if constexpr (std::is_same_v<decltype(part), Range>) {
      NoteLengths(text, part, most, &lengths, &unseen);
    }
  });
  for (size_t length = kMaxBytes; length > 0; --length) {
    if (!lengths[length]) continue;
    std::vector<Match> more;
    for_each_gap([&](auto part) {
      if constexpr (std::is_same_v<decltype(part), Range>) {
        AddOfLength(text, part, length, most, &more);
      } else {
        more.push_back(part);
      }
    });
    *matches = std::move(more);
  }
}

void SpecialTokens::NoteLengths(absl::string_view text, Range gap, Class most, Lengths* lengths,
                                int* unseen) const {
  for (size_t begin = gap.begin; begin<gap.end&& * unseen> 0; ++begin) {
    if (begin % kSearchedBytes == 0 && Interrupted()) return;
    uint32_t node = 0;
    for (size_t pos = begin; pos < gap.end; ++pos) {
      node = Child(node, static_cast<uint8_t>(text[pos]));
      if (node == 0) break;
      bool& seen = (*lengths)[pos + 1 - begin];
      if (seen || !Counts(node, most)) continue;
      seen = true;
      --*unseen;
    }
  }
}

void SpecialTokens::AddOfLength(absl::string_view text, Range gap, size_t length, Class most,
                                std::vector<Match>* matches) const {
  size_t free = gap.begin;  // where the last match ended
  for (size_t begin = gap.begin; begin + length <= gap.end;) {
    if (begin % kSearchedBytes == 0 && Interrupted()) return;
    uint32_t node = 0;
    for (size_t pos = begin; pos < begin + length; ++pos) {
      node = Child(node, static_cast<uint8_t>(text[pos]));
      if (node == 0) break;
    }
    if (node == 0 || !Counts(node, most)) {
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

bool SpecialTokens::Counts(uint32_t node, Class most) const {
  const int32_t id = nodes_[node];
  return id >= 0 && classes_[id] <= most;
}

}  // namespace lm

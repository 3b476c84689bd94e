#include "engine/text/special_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace lm {
namespace {

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
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
    if (!control && type != TokenType::kUserDefined) continue;
    if (vocabulary.tokens[i].empty()) continue;
    classes_[i] = control                                 ? kControl
                  : LooksLikeMarkup(vocabulary.tokens[i]) ? kMarkupLike
                                                          : kUserDefined;
    has_[classes_[i]] = true;
    Insert(vocabulary.tokens[i], static_cast<int32_t>(i));
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
                                                      absl::Span<const Range> open,
                                                      int64_t* num_steps) const {
  // First each stretch of markup on its own, of which the control tokens are kept; then the open
  // ones for what looks like markup; then the other user-defined tokens in all that is left. For a
  // text of one kind the outcome is that of one search for all.
  std::vector<Match> matches;
  Steps steps;
  AddOnly(text, markup, kControl, &matches, &steps);
  if (has_[kMarkupLike]) AddOnly(text, open, kMarkupLike, &matches, &steps);
  if (has_[kUserDefined]) Add(text, {0, text.size()}, kUserDefined, &matches, &steps);
  if (num_steps != nullptr) *num_steps = steps.count();
  return matches;
}

void SpecialTokens::AddOnly(absl::string_view text, absl::Span<const Range> ranges, Class wanted,
                            std::vector<Match>* matches, Steps* steps) const {
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
    Add(text, range, wanted, &inside, steps);
    for (const Match& match : inside) {
      if (classes_[match.id] >= wanted) all.push_back(match);
    }
  }
  all.insert(all.end(), matches->begin() + next, matches->end());
  *matches = std::move(all);
}

void SpecialTokens::Add(absl::string_view text, Range range, Class most,
                        std::vector<Match>* matches, Steps* steps) const {
  // Where names begin, by the length of the longest that can still be there. One whose room is
  // taken makes way for the next shorter that has room. That happens no more than once for a byte
  // of what takes it, since what waits is not longer than that.
  std::vector<std::vector<size_t>> begins;
  const auto add = [&](size_t length, size_t begin) {
    if (length == 0) return;
    if (begins.size() <= length) begins.resize(length + 1);
    begins[length].push_back(begin);
  };
  size_t begin = range.begin;
  for (size_t i = 0; i <= matches->size(); ++i) {
    const size_t end = i < matches->size() ? (*matches)[i].begin : range.end;
    for (; begin < end; ++begin) {
      add(Longest(text, {begin, end}, most, steps).length, begin);
      if (steps->Interrupted()) return;
    }
    if (i < matches->size()) begin = (*matches)[i].end;
  }
  if (begins.empty()) return;

  std::vector<bool> taken(range.end - range.begin);
  const auto is_taken = [&](size_t pos) { return taken[pos - range.begin]; };
  const auto take = [&](const Match& match) {
    std::fill(taken.begin() + (match.begin - range.begin),
              taken.begin() + (match.end - range.begin), true);
  };
  for (const Match& match : *matches) take(match);
  for (size_t length = begins.size() - 1; length > 0 && !steps->Interrupted(); --length) {
    std::vector<size_t> places = std::move(begins[length]);
    if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
    for (size_t place : places) {
      size_t end = place;
      while (end < place + length && !is_taken(end)) ++end;
      const Name name = Longest(text, {place, end}, most, steps);
      if (steps->Interrupted()) break;
      if (name.length < length) {
        add(name.length, place);
        continue;
      }
      Match match = {place, end, name.id};
      const auto swallows = [&](size_t pos) {
        return !is_taken(pos) && absl::ascii_isspace(text[pos]);
      };
      if (strip_before_[match.id]) {
        while (match.begin > range.begin && swallows(match.begin - 1)) --match.begin;
      }
      if (strip_after_[match.id]) {
        while (match.end < range.end && swallows(match.end)) ++match.end;
      }
      take(match);
      matches->push_back(match);
    }
  }
  const auto is_before = [](const Match& a, const Match& b) { return a.begin < b.begin; };
  if (!std::is_sorted(matches->begin(), matches->end(), is_before)) {
    std::sort(matches->begin(), matches->end(), is_before);
  }
}

SpecialTokens::Name SpecialTokens::Longest(absl::string_view text, Range range, Class most,
                                           Steps* steps) const {
  Name longest;
  uint32_t node = 0;
  for (size_t pos = range.begin; pos < range.end; ++pos) {
    steps->Add(1);
    node = Child(node, static_cast<uint8_t>(text[pos]));
    if (node == 0) break;
    if (Counts(node, most)) longest = {pos + 1 - range.begin, nodes_[node]};
  }
  return longest;
}

bool SpecialTokens::Counts(uint32_t node, Class most) const {
  const int32_t id = nodes_[node];
  return id >= 0 && classes_[id] <= most;
}

}  // namespace lm

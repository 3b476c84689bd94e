#include "extension/questions/label_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/vote.h"
#include "extension/batch/row_request.h"
#include "extension/questions/constrained_options.h"

namespace lm {
namespace {

using Group = std::vector<size_t>;  // of labels, ascending
// Where the model is asked: behind how many bytes, which these labels have in common.
using Point = std::pair<size_t, Group>;

// The share of a point that may lie on tokens that end within a character.
constexpr double kNegligible = 1e-3;
// That below which it does not matter where in what labels have in common a token ends.
constexpr double kMinor = 0.01;

bool BeginsCharacter(absl::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

// The bytes that they all begin with, whole characters only.
size_t CommonBytes(absl::Span<const std::string> labels, const Group& group) {
  const absl::string_view first = labels[group.front()];
  size_t common = first.size();
  for (size_t i : group) {
    const auto parting =
        std::mismatch(first.begin(), first.begin() + common, labels[i].begin(), labels[i].end());
    common = parting.first - first.begin();
  }
  while (!std::all_of(group.begin(), group.end(),
                      [&](size_t i) { return BeginsCharacter(labels[i], common); })) {
    --common;
  }
  return common;
}

// As GBNF writes it, which has no \b and \f.
std::string GbnfLiteral(absl::string_view text) {
  return absl::StrReplaceAll(JsonString(text),
                             {{"\\\\", "\\\\"}, {"\\b", "\\x08"}, {"\\f", "\\x0c"}});
}

// What they go on with behind `begun` bytes. One that ends there is what a grammar alone can say.
AnswerConstraint EndingsOf(absl::Span<const std::string> labels, const Group& group, size_t begun) {
  Json endings = Json::MakeArray();
  std::vector<std::string> quoted;
  for (size_t i : group) {
    if (labels[i].size() == begun) continue;
    endings.Append(labels[i].substr(begun));
    quoted.push_back(GbnfLiteral(absl::string_view(labels[i]).substr(begun)));
  }
  if (endings.size() == group.size()) return {AnswerConstraint::Kind::kChoices, endings.Dump()};
  return {AnswerConstraint::Kind::kGrammar,
          absl::StrCat("root ::= (", absl::StrJoin(quoted, " | "), ")?")};
}

// Those of the group that go on with the bytes of a choice; "": the one that is over where the
// others go on.
Group Members(absl::Span<const std::string> labels, const Group& group, size_t begun,
              absl::string_view bytes) {
  const size_t common = CommonBytes(labels, group);
  Group members;
  for (size_t i : group) {
    const bool is_one = bytes.empty() ? labels[i].size() == common
                                      : absl::StartsWith(labels[i].substr(begun), bytes);
    if (is_one) members.push_back(i);
  }
  return members;
}

// The point of labels that go on alike, behind a token that ends at `end`: there, or where its last
// character does. Not where they part, if that is further: the next token may reach beyond ("web",
// " server"), and behind a part of it (" s") the model says something else.
Point PointOf(absl::Span<const std::string> labels, Group members, size_t end) {
  const size_t common = CommonBytes(labels, members);
  while (end < common && !BeginsCharacter(labels[members.front()], end)) ++end;
  return {std::min(end, common), std::move(members)};
}

// A point for each way to spell what labels have in common ("l", "li", "lib") would be one for each
// of its letters: where few answers lie they are counted with the most probable one of the same
// labels.
void MergeMinor(double total, std::map<Point, double>* shares) {
  std::map<Group, std::map<Point, double>::iterator> most;
  for (auto share = shares->begin(); share != shares->end(); ++share) {
    const auto [at, is_first] = most.try_emplace(share->first.second, share);
    if (!is_first && share->second > at->second->second) at->second = share;
  }
  for (auto share = shares->begin(); share != shares->end();) {
    const auto main = most.at(share->first.second);
    if (share == main || share->second >= kMinor * total) {
      ++share;
      continue;
    }
    main->second += share->second;
    share = shares->erase(share);
  }
}

// Those that go on with the same character together, as if each label were as probable.
std::map<Point, double> SharesByCharacters(absl::Span<const std::string> labels, const Group& group,
                                           size_t begun) {
  std::map<absl::string_view, Group> groups;
  for (size_t i : group) {
    size_t end = begun;
    while (end < labels[i].size() && (end == begun || !BeginsCharacter(labels[i], end))) ++end;
    groups[absl::string_view(labels[i]).substr(begun, end - begun)].push_back(i);
  }
  std::map<Point, double> shares;
  for (const auto& [character, members] : groups) {
    const size_t common = CommonBytes(labels, members);
    shares[{common, members}] = static_cast<double>(members.size());
  }
  return shares;
}

absl::Status WithinCharacter(absl::Span<const std::string> labels, const Group& group) {
  return absl::UnimplementedError(absl::StrCat(
      "the model spells the characters in which the labels '", Printable(labels[group[0]]),
      "' and '", Printable(labels[group[1]]),
      "' part in pieces, of which no probabilities of labels can be told; give them other names"));
}

std::vector<double> SharesOfVotes(absl::Span<const std::string> labels, const Generation& answer,
                                  int32_t votes) {
  std::vector<double> shares(labels.size());
  for (const FirstChoice& choice : answer.first_choices) {
    const auto label = std::find(labels.begin(), labels.end(), choice.text);
    if (label == labels.end()) continue;
    shares[label - labels.begin()] = ShareOfVotes(std::exp(double{choice.logprob}), votes);
  }
  return shares;
}

// What is asked at the point behind the first `begun` bytes of the group.
absl::StatusOr<RowPrompt> RowAt(const RowPrompt& row, absl::Span<const std::string> labels,
                                const Group& group, size_t begun) {
  CallOptions options = *row.options;
  const AnswerConstraint constraint = EndingsOf(labels, group, begun);
  // The answer itself is not looked at, but it must not be cut. A token has a byte at least.
  if (constraint.kind == AnswerConstraint::Kind::kGrammar) {
    size_t longest = 0;
    for (size_t i : group) longest = std::max(longest, labels[i].size() - begun);
    options.generation.max_tokens = static_cast<int32_t>(longest);
  }
  RowPrompt asked{.prompt = row.prompt,
                  .system = row.system,
                  .question = row.question,
                  .chooses = true,
                  .begun = labels[group.front()].substr(0, begun),
                  .asked = row.asked};
  ASSIGN_OR_RETURN(asked.options, Constrained(std::move(options), constraint));
  return asked;
}

// One label is all that there is to say: nothing is computed, but what would be its row's failure
// is that all the same.
absl::StatusOr<std::optional<std::vector<double>>> ScoreOne(const RowPrompt& row,
                                                            absl::Span<const std::string> labels,
                                                            AskRow ask) {
  ASSIGN_OR_RETURN(RowPrompt asked, RowAt(row, labels, {0}, 0));
  const absl::Status status = CheckRow(asked);
  if (status.ok()) return std::optional(std::vector<double>{1});
  asked.prompt = status;
  RETURN_IF_ERROR(ask(std::move(asked)).status());
  return std::optional<std::vector<double>>();
}

}  // namespace

absl::StatusOr<std::optional<std::vector<double>>> ScoreLabels(const RowPrompt& row,
                                                               absl::Span<const std::string> labels,
                                                               AskRow ask) {
  if (labels.size() == 1) return ScoreOne(row, labels, ask);
  std::vector<double> scores(labels.size());
  Group all(labels.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const int32_t votes = row.options->generation.vote;
  // What comes to a point comes from points before it.
  std::map<Point, double> points;
  points[{0, all}] = 1;
  while (!points.empty()) {
    const auto node = points.extract(points.begin());
    const auto& [begun, group] = node.key();
    ASSIGN_OR_RETURN(RowPrompt asked, RowAt(row, labels, group, begun));
    ASSIGN_OR_RETURN(const std::optional<Generation> answer, ask(std::move(asked)));
    if (!answer.has_value()) return std::optional<std::vector<double>>();
    if (votes > 0) return std::optional(SharesOfVotes(labels, *answer, votes));
    std::map<Point, double> shares;
    double total = 0, stuck = 0;
    for (const FirstChoice& choice : answer->first_choices) {
      const double share = std::exp(double{choice.logprob});
      Group members = Members(labels, group, begun, choice.text);
      if (members.empty()) continue;
      Point point = PointOf(labels, std::move(members), begun + choice.text.size());
      const bool moves = point.second.size() == 1 || point.first > begun;
      (moves ? total : stuck) += share;
      if (moves) shares[std::move(point)] += share;
    }
    if (stuck > kNegligible * (total + stuck)) return WithinCharacter(labels, group);
    // Where nothing is told, as in lm_explain, there is a point wherever labels part.
    if (total == 0) {
      shares = SharesByCharacters(labels, group, begun);
      total = static_cast<double>(group.size());
    }
    MergeMinor(total, &shares);
    for (const auto& [point, share] : shares) {
      const Group& members = point.second;
      const double part = node.mapped() * share / total;
      if (members.size() == 1) {
        scores[members.front()] += part;
      } else {
        points[point] += part;
      }
    }
  }
  return std::optional(std::move(scores));
}

}  // namespace lm

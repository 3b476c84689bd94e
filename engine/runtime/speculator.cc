#include "engine/runtime/speculator.h"

#include <algorithm>
#include <cmath>

namespace lm {
namespace {

// What a sequence keeps.
struct RowMemory final : DraftMemory {
  std::unique_ptr<DraftMemory> lookup, model;
  RowOdds odds;
};

RowMemory& MemoryOf(Sequence* sequence) {
  std::unique_ptr<DraftMemory>& memory = sequence->draft_memory();
  if (memory == nullptr) memory = std::make_unique<RowMemory>();
  return static_cast<RowMemory&>(*memory);
}

DraftRow RowOf(Sequence* sequence, int32_t most) {
  return {.salt = sequence->salt(),
          .tokens = sequence->tokens(),
          .context = sequence->guessed_context(),
          .most = most,
          .blocks = &sequence->block_table(),
          .memory = &MemoryOf(sequence).lookup};
}

bool IsDrawn(const Sequence& sequence) { return sequence.request().spec().options.temperature > 0; }

int32_t DraftKindOf(const Draft& draft, size_t i) {
  return std::min(draft.kind + static_cast<int32_t>(i), draft.last_kind);
}

// Of a token whose margin is known.
int32_t MarginKindOf(const Draft& draft, size_t i) {
  constexpr float kLeast = 0.125f;
  int32_t kind = 0;
  for (float above = kLeast; kind < ModelDrafter::kMarginKinds - 1 && draft.margins[i] >= above;
       above *= 2) {
    ++kind;
  }
  return ModelDrafter::kFirstMarginKind + (i > 0 ? ModelDrafter::kMarginKinds : 0) + kind;
}

}  // namespace

void Speculator::Guess(absl::Span<const Row> rows, const Limits& limits,
                       std::vector<CacheOp>* cache_ops, int64_t* work) {
  Propose(rows, limits, cache_ops);
  Choose(limits);
  int32_t left = limits.tokens;
  for (size_t i = 0; i < rows.size() && left > 0; ++i) {
    MakeGuess(proposals_[i], std::min(rows[i].most, left), work);
    left -= rows[i].sequence->num_guessed();
  }
}

bool Speculator::WouldGuess(absl::Span<const Row> rows, const Limits& limits) {
  Propose(rows, limits, /*cache_ops=*/nullptr);
  Choose(limits);
  return std::any_of(proposals_.begin(), proposals_.end(),
                     [](const Proposal& proposal) { return proposal.chosen > 0; });
}

// The odds that token i of a draft is right where the tokens before it are, by what other tokens of
// its kind were worth.
double Speculator::OddsOf(const Draft& draft, size_t i, const Sequence& sequence) const {
  const int32_t kind = draft.margins.empty() ? DraftKindOf(draft, i) : MarginKindOf(draft, i);
  return odds_.Of(kind, IsDrawn(sequence));
}

void Speculator::SetOdds(Proposal* proposal) const {
  constexpr double kSurest = 0.98;
  const double factor = MemoryOf(proposal->sequence).odds.factor();
  double odds = 1;
  proposal->odds.clear();
  for (size_t t = 0; t < proposal->draft.tokens.size(); ++t) {
    odds *= std::min(OddsOf(proposal->draft, t, *proposal->sequence) * factor, kSurest);
    proposal->odds.push_back(odds);
  }
}

void Speculator::Propose(absl::Span<const Row> rows, const Limits& limits,
                         std::vector<CacheOp>* cache_ops) {
  model_seconds_ = 0;
  std::vector<DraftRow> asked;
  for (const Row& row : rows) {
    asked.push_back(RowOf(row.sequence, std::min(row.most, kMostGuessed)));
  }
  lookup_->Propose(absl::MakeSpan(asked));
  proposals_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    Proposal& proposal = proposals_.emplace_back();
    proposal.sequence = rows[i].sequence;
    proposal.draft = std::move(asked[i].draft);
    SetOdds(&proposal);
  }
  if (model_ != nullptr) AskModel(rows, limits, cache_ops);
}

// Has the model propose where it is more likely to be right.
void Speculator::AskModel(absl::Span<const Row> rows, const Limits& limits,
                          std::vector<CacheOp>* cache_ops) {
  std::vector<size_t> which;
  bool always = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Sequence& sequence = *rows[i].sequence;
    const double known = proposals_[i].odds.empty() ? 0 : proposals_[i].odds[0];
    if (known >= odds_.Of(ModelDrafter::kFirstKind, IsDrawn(sequence))) continue;
    which.push_back(i);
    always = always || sequence.request().spec().options.speculate == Speculate::kAlways;
  }
  if (which.empty()) return;
  const auto num_asked = static_cast<int32_t>(which.size());
  if (!ModelIsWorthIt(num_asked, limits) && !always) return;
  std::vector<DraftRow> asked;
  for (const size_t i : which) {
    asked.push_back(RowOf(rows[i].sequence, std::min(rows[i].most, ModelDrafter::kMostGuessed)));
    asked.back().memory = &MemoryOf(rows[i].sequence).model;
  }
  // A further token is worth it where it brings more a second than the step does without it.
  const double step = model_->StepSeconds(num_asked) / num_asked;
  const auto worth = [&](const DraftRow& row) {
    constexpr int32_t kUnknown = 4;  // tokens, while nothing is known of costs
    const Sequence& sequence = *rows[which[&row - asked.data()]].sequence;
    if (sequence.request().spec().options.speculate == Speculate::kAlways) return true;
    const auto tokens = static_cast<int32_t>(row.draft.tokens.size());
    if (model_rate_ == 0) return tokens < kUnknown;
    double gain = odds_.Of(ModelDrafter::kFirstKind + tokens, IsDrawn(sequence));
    for (int32_t t = 0; t < tokens; ++t) gain *= OddsOf(row.draft, t, sequence);
    const auto seconds = [&](int32_t guessed) {
      return costs_.Seconds(limits.step_tokens + num_asked * guessed, limits.prompt_seconds);
    };
    return gain > model_rate_ * (step + (seconds(tokens + 1) - seconds(tokens)) / num_asked);
  };
  model_->Propose(absl::MakeSpan(asked), worth, cache_ops);
  size_t longest = 0;
  for (const DraftRow& row : asked) longest = std::max(longest, row.draft.tokens.size());
  model_seconds_ = step * num_asked * static_cast<double>(longest);
  for (size_t n = 0; n < which.size(); ++n) {
    if (asked[n].draft.tokens.empty()) continue;
    Proposal& proposal = proposals_[which[n]];
    proposal.draft = std::move(asked[n].draft);
    SetOdds(&proposal);
  }
}

// Whether the model is worth asking, if it is for as many tokens as pay on average; model_rate_ is
// what that brings.
bool Speculator::ModelIsWorthIt(int32_t rows, const Limits& limits) {
  constexpr int64_t kAgain = 50;  // steps without it, after which times and texts may have changed
  const double alone = costs_.Seconds(limits.step_tokens, limits.prompt_seconds);
  const double step = model_->StepSeconds(rows);
  model_rate_ = 0;
  if (alone == 0 || step == 0 || without_model_ >= kAgain) {
    without_model_ = 0;
    return true;
  }
  double best = rows / alone, expected = rows, right = 1;
  bool is_worth_it = false;
  for (int32_t d = 1; d <= ModelDrafter::kMostGuessed; ++d) {
    right *= odds_.Of(ModelDrafter::kFirstKind + d - 1, /*drawn=*/false);
    expected += rows * right;
    const double seconds =
        costs_.Seconds(limits.step_tokens + rows * d, limits.prompt_seconds) + d * step;
    if (expected / seconds <= best) continue;
    best = expected / seconds;
    is_worth_it = true;
  }
  model_rate_ = best;
  without_model_ = is_worth_it ? 0 : without_model_ + 1;
  return is_worth_it;
}

// How many tokens of each proposal are guessed.
void Speculator::Choose(const Limits& limits) {
  struct Candidate {
    double odds;
    Proposal* proposal;
  };
  std::vector<Candidate> candidates;
  for (Proposal& proposal : proposals_) {
    if (proposal.sequence->request().spec().options.speculate == Speculate::kAlways) {
      proposal.chosen = static_cast<int32_t>(proposal.odds.size());
      continue;
    }
    for (double odds : proposal.odds) candidates.push_back({odds, &proposal});
  }
  // Those of one row keep their order.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.odds > b.odds; });
  auto choose = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) ++candidates[i].proposal->chosen;
  };
  auto as_probable_as = [&](double least) {
    return std::find_if(candidates.begin(), candidates.end(),
                        [least](const Candidate& c) { return c.odds < least; }) -
           candidates.begin();
  };
  constexpr double kUnknown = 0.5;  // odds that are good enough while nothing is known of costs
  const double rows = static_cast<double>(proposals_.size());
  const double alone = costs_.Seconds(
      limits.prompts ? static_cast<int32_t>(rows) : limits.step_tokens, limits.prompt_seconds);
  if (alone == 0 || (limits.prompts && limits.prompt_seconds == 0)) {
    return choose(as_probable_as(kUnknown));
  }
  // Beside prompts a guess adds what a token of theirs does, and saves a row's part of a step.
  if (limits.prompts) return choose(as_probable_as(limits.prompt_seconds * rows / alone));
  constexpr double kWorthIt = 1.03;  // by as much it has to be better than no guess
  // What the model took is spent either way.
  double best = kWorthIt * rows / (alone + model_seconds_), expected = rows;
  double again = 0;  // tokens that will be computed once more
  size_t chosen = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& next = candidates[i];
    expected += next.odds;
    if (limits.rewinds) {
      // The guess is one longer: all of it was right with the odds before, and is with these.
      double& redone = next.proposal->redone;
      again -= redone;
      redone = (1 - next.odds) * (1 + ++next.proposal->considered);
      again += redone;
    }
    const int32_t tokens = limits.step_tokens + static_cast<int32_t>(i) + 1;
    const double seconds =
        costs_.Seconds(tokens + static_cast<int32_t>(std::lround(again)), limits.prompt_seconds);
    const double rate = expected / (seconds + model_seconds_);
    if (rate <= best) continue;
    best = rate;
    chosen = i + 1;
  }
  choose(chosen);
}

void Speculator::MakeGuess(const Proposal& proposal, int32_t most, int64_t* work) const {
  Sequence* sequence = proposal.sequence;
  absl::Span<const int32_t> tokens = proposal.draft.tokens;
  tokens = tokens.subspan(0, proposal.chosen);
  Draft other;
  while (!tokens.empty()) {
    const int32_t before = sequence->num_guessed();
    const auto used = static_cast<size_t>(sequence->ExtendGuess(tokens, most, work));
    if (used == tokens.size() || sequence->num_guessed() == before) return;
    // What the grammar forces has led elsewhere: what may come from there?
    DraftRow row = RowOf(sequence, static_cast<int32_t>(tokens.size() - used));
    lookup_->Propose(absl::MakeSpan(&row, 1));
    other = std::move(row.draft);
    tokens = other.tokens;
  }
}

void Speculator::Judge(size_t i, int32_t before, bool ended) {
  if (i >= proposals_.size()) return;
  const Proposal& proposal = proposals_[i];
  const absl::Span<const int32_t> tokens = proposal.sequence->tokens();
  const bool drawn = IsDrawn(*proposal.sequence);
  RowOdds& own = MemoryOf(proposal.sequence).odds;
  for (size_t t = 0; t < proposal.draft.tokens.size(); ++t) {
    const size_t at = before + t;
    if (at >= tokens.size() && !ended) return;
    const bool right = at < tokens.size() && tokens[at] == proposal.draft.tokens[t];
    if (t == 0) own.Record(OddsOf(proposal.draft, t, *proposal.sequence), right);
    odds_.Record(DraftKindOf(proposal.draft, t), drawn, right);
    if (!proposal.draft.margins.empty()) {
      odds_.Record(MarginKindOf(proposal.draft, t), drawn, right);
    }
    if (!right) return;
  }
}

bool Speculator::Observes(const Sequence& sequence) const {
  const GenerationOptions& options = sequence.request().spec().options;
  return model_ != nullptr && model_->observes() && !sequence.scoring() && !sequence.embedding() &&
         options.speculate != Speculate::kOff && TokensBesidePrompt(options) > 1;
}

void Speculator::Observe(Sequence* sequence, int32_t position,
                         absl::Span<const float> hidden) const {
  model_->Observe(position, hidden, &MemoryOf(sequence).model);
}

void Speculator::Learn(const Sequence& sequence) {
  lookup_->Learn(sequence.salt(), sequence.tokens(),
                 static_cast<int32_t>(sequence.tokens().size()) - sequence.answer_tokens());
}

}  // namespace lm

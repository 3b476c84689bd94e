#include "extension/batch/foreseen_calls.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

constexpr int64_t kLongBefore = 256;  // in calls

// Asking for an answer that is not there costs a lock and a system call, and answers come about in
// the order of their requests: where so many are not there, no others are asked for.
constexpr int kLookedAt = 8;

}  // namespace

ForeseenCall& ForeseenCalls::Add(RowPrompt row, CallText text, const void* site, int64_t number,
                                 const void* behind) {
  std::optional<PendingAnswer> kept = TakeKept(text);
  const size_t bytes = text.bytes();
  calls_.push_back({.text = std::move(text),
                    .pending = kept.has_value() ? *std::move(kept) : PendingAnswer(std::move(row)),
                    .site = site,
                    .number = number,
                    .behind = behind});
  bytes_ += bytes;
  return calls_.back();
}

std::optional<size_t> ForeseenCalls::Find(const CallText& text) const {
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [&text](const ForeseenCall& call) { return call.text == text; });
  if (found == calls_.end()) return std::nullopt;
  return found - calls_.begin();
}

PendingAnswer ForeseenCalls::Take(size_t i, int64_t last,
                                  absl::FunctionRef<void(const ForeseenCall&)> passed_over) {
  PendingAnswer pending = std::move(calls_[i].pending);
  if (i == 0) {
    bytes_ -= calls_.front().text.bytes();
    calls_.pop_front();
    submitted_ -= submitted_ > 0;
    return pending;
  }
  const ForeseenCall* const taken = &calls_[i];
  const int64_t number = taken->number;
  const void* const site = taken->site;
  Drop([&](const ForeseenCall& call) {
    if (&call == taken) return true;
    const bool passed =
        call.number < number && call.number < last &&
        (call.site == site || call.behind == site || call.number + kLongBefore < number);
    if (passed) passed_over(call);
    return passed;
  });
  return pending;
}

std::optional<PendingAnswer> ForeseenCalls::TakeKept(const CallText& text) {
  const auto found = kept_.find(text.hash);
  if (found == kept_.end()) return std::nullopt;
  std::vector<ForeseenCall>& calls = found->second;
  if (!(calls.back().text == text)) return std::nullopt;
  PendingAnswer pending = std::move(calls.back().pending);
  calls.pop_back();
  --num_kept_;
  if (calls.empty()) kept_.erase(found);
  return pending;
}

void ForeseenCalls::Drop(absl::FunctionRef<bool(const ForeseenCall&)> condition) {
  std::deque<ForeseenCall> others;
  size_t bytes = 0, submitted = 0, seen = 0;
  for (ForeseenCall& call : calls_) {
    const bool was_submitted = seen++ < submitted_;
    if (condition(call)) continue;
    submitted += was_submitted;
    bytes += call.text.bytes();
    others.push_back(std::move(call));
  }
  calls_.swap(others);
  submitted_ = submitted;
  bytes_ = bytes;
}

void ForeseenCalls::DropAll() {
  calls_.clear();
  submitted_ = bytes_ = 0;
}

void ForeseenCalls::Clear() {
  DropAll();
  DropKept([](const ForeseenCall&) {});
  num_under_way_ = num_ripe_ = 0;
}

void ForeseenCalls::DropDoubtful(const void* site) {
  Drop([site](const ForeseenCall& call) { return call.behind != nullptr && call.site == site; });
}

void ForeseenCalls::KeepAside() {
  while (!calls_.empty()) {
    ForeseenCall& last = calls_.back();
    if (last.pending.submitted()) {
      kept_[last.text.hash].push_back(std::move(last));
      ++num_kept_;
    }
    calls_.pop_back();
  }
  submitted_ = bytes_ = num_ripe_ = 0;
}

void ForeseenCalls::DropKept(absl::FunctionRef<void(const ForeseenCall&)> passed_over) {
  for (const auto& [hash, calls] : kept_) {
    for (const ForeseenCall& call : calls) passed_over(call);
  }
  kept_.clear();
  num_kept_ = 0;
}

void ForeseenCalls::Submit(size_t width, size_t of_place) {
  SiteCounts seen;
  for (size_t i = of_place < calls_.size() ? 0 : submitted_; i < calls_.size(); ++i) {
    if (of_place < calls_.size() && ++seen[calls_[i].site] > of_place) return;
    if (i < submitted_) continue;
    PendingAnswer& pending = calls_[i].pending;
    if (!pending.submitted()) {
      if (num_under_way_ >= width || !pending.Submit()) return;
      pending.Collect();
      num_under_way_ += !pending.answered();
    }
    ++submitted_;
  }
}

void ForeseenCalls::Look() {
  num_under_way_ = num_ripe_ = 0;
  int not_there = 0;
  auto look = [&](ForeseenCall& call) {
    if (not_there < kLookedAt && call.pending.submitted() && !call.pending.answered()) {
      call.pending.Collect();
      // Those that another model is asked about are not in that order.
      not_there += !call.pending.answered() && !call.pending.escalated();
    }
    num_under_way_ += call.pending.submitted() && !call.pending.answered();
    return call.pending.answered();
  };
  for (ForeseenCall& call : calls_) num_ripe_ += look(call) && call.unknown;
  for (auto& [hash, calls] : kept_) {
    for (ForeseenCall& call : calls) look(call);
  }
}

}  // namespace lm

#include "extension/batch/foreseen_calls.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace lm {
namespace {

constexpr int64_t kLongBefore = 256;  // in calls

// Asking for an answer that is not there costs a lock and a system call, and answers come about in
// the order of their requests: once this many are not there, no further ones are asked for.
constexpr int kLookedAt = 8;

}  // namespace

ForeseenCall& ForeseenCalls::Add(RowPrompt row, CallText text, const void* site, int64_t number,
                                 const void* behind) {
  assert(calls_.empty() || calls_.back().number < number);
  std::optional<PendingAnswer> kept = TakeKept(text);
  calls_.push_back({.text = std::move(text),
                    .pending = kept.has_value() ? *std::move(kept) : PendingAnswer(std::move(row)),
                    .site = site,
                    .number = number,
                    .behind = behind});
  const auto call = std::prev(calls_.end());
  call->under_way = call->pending.submitted() && !call->pending.answered();
  num_under_way_ += call->under_way;
  bytes_ += call->text.bytes();
  if (unsubmitted_ == calls_.end()) unsubmitted_ = call;
  if (unanswered_ == calls_.end()) unanswered_ = call;
  return *call;
}

const ForeseenCall* ForeseenCalls::Find(const CallText& text) const {
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [&text](const ForeseenCall& call) { return call.text == text; });
  return found != calls_.end() ? &*found : nullptr;
}

PendingAnswer ForeseenCalls::Take(const ForeseenCall& taken, int64_t last,
                                  absl::FunctionRef<void(const ForeseenCall&)> passed_over) {
  auto call = calls_.begin();
  while (&*call != &taken) {
    const bool passed =
        call->number < last && (call->site == taken.site || call->behind == taken.site ||
                                call->number + kLongBefore < taken.number);
    if (passed) passed_over(*call);
    call = passed ? Erase(call) : std::next(call);
  }
  PendingAnswer pending = std::move(call->pending);
  Erase(call);
  return pending;
}

std::optional<PendingAnswer> ForeseenCalls::TakeKept(const CallText& text) {
  const auto found = kept_.find(text.hash);
  if (found == kept_.end()) return std::nullopt;
  Calls& calls = found->second;
  ForeseenCall& first = calls.front();
  if (!(first.text == text)) return std::nullopt;
  PendingAnswer pending = std::move(first.pending);
  num_under_way_ -= first.under_way;
  calls.pop_front();
  --num_kept_;
  if (calls.empty()) kept_.erase(found);
  return pending;
}

// For a call that is about to leave calls_: it is not counted there any more. It may still be under
// way.
void ForeseenCalls::Leave(Calls::iterator call) {
  if (unsubmitted_ == calls_.end() || call->number < unsubmitted_->number) {
    size_t& of_its_place = num_submitted_of_.find(call->site)->second;
    assert(of_its_place > 0);
    --of_its_place;
  }
  if (call == unsubmitted_) ++unsubmitted_;
  if (call == unanswered_) ++unanswered_;
  bytes_ -= call->text.bytes();
  num_ripe_ -= std::exchange(call->ripe, false);
}

ForeseenCalls::Calls::iterator ForeseenCalls::Erase(Calls::iterator call) {
  Leave(call);
  num_under_way_ -= call->under_way;
  return calls_.erase(call);
}

void ForeseenCalls::DropAll() {
  while (!calls_.empty()) Erase(calls_.begin());
  assert(bytes_ == 0 && num_ripe_ == 0);
}

void ForeseenCalls::Clear() {
  DropAll();
  DropKept([](const ForeseenCall&) {});
  assert(num_kept_ == 0 && num_under_way_ == 0);
  num_submitted_of_.clear();
}

void ForeseenCalls::DropDoubtful(const void* site) {
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool doubtful = call->behind != nullptr && call->site == site;
    call = doubtful ? Erase(call) : std::next(call);
  }
}

void ForeseenCalls::KeepAside() {
  while (!calls_.empty()) {
    const auto last = std::prev(calls_.end());
    if (!last->pending.submitted()) {
      Erase(last);
      continue;
    }
    Calls& alike = kept_[last->text.hash];
    Leave(last);
    last->unknown = false;
    alike.splice(alike.begin(), calls_, last);
    ++num_kept_;
  }
}

void ForeseenCalls::DropKept(absl::FunctionRef<void(const ForeseenCall&)> passed_over) {
  for (const auto& [hash, calls] : kept_) {
    for (const ForeseenCall& call : calls) passed_over(call);
  }
  for (const auto& [hash, calls] : kept_) {
    for (const ForeseenCall& call : calls) num_under_way_ -= call.under_way;
  }
  kept_.clear();
  num_kept_ = 0;
}

void ForeseenCalls::Submit(size_t width, size_t of_place) {
  for (; unsubmitted_ != calls_.end(); ++unsubmitted_) {
    ForeseenCall& call = *unsubmitted_;
    size_t& of_its_place = num_submitted_of_[call.site];
    if (of_its_place >= of_place) return;
    if (!call.pending.submitted()) {
      if (num_under_way_ >= width || !call.pending.Submit()) return;
      call.under_way = true;
      ++num_under_way_;
      Collect(call);
    }
    ++of_its_place;
  }
}

// Keeps the answer where it is there.
void ForeseenCalls::Collect(ForeseenCall& call) {
  assert(call.under_way && !call.ripe);
  call.pending.Collect();
  if (!call.pending.answered()) return;
  call.under_way = false;
  --num_under_way_;
  call.ripe = call.unknown;
  num_ripe_ += call.ripe;
}

void ForeseenCalls::Look() {
  int not_there = 0;
  size_t unseen = num_under_way_;
  auto look = [&](ForeseenCall& call) {
    if (!call.under_way) return;
    --unseen;
    Collect(call);
    // Those that another model is asked about are not in that order; texts in parts go on whatever
    // is before them.
    not_there += call.under_way && !call.pending.escalated() && !call.pending.in_parts();
  };
  auto enough = [&] { return unseen == 0 || not_there == kLookedAt; };
  while (unanswered_ != calls_.end() && unanswered_->pending.answered()) ++unanswered_;
  for (auto call = unanswered_; call != calls_.end() && !enough(); ++call) look(*call);
  for (auto& [hash, calls] : kept_) {
    for (auto call = calls.begin(); call != calls.end() && !enough(); ++call) look(*call);
  }
}

}  // namespace lm

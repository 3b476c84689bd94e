#include "extension/batch/look_ahead.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/batch_state.h"
#include "extension/batch/shadow_text.h"
#include "extension/connection/spending.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

constexpr size_t kMostBytes = 64 << 20;  // of the texts of foreseen calls
constexpr int64_t kSearched = 256;  // calls around the expected place of the statement
constexpr int kRowsAtATime = 1024;  // that the shadow is stepped, whether they have prompts or not
constexpr size_t kMostSqlBytes = 4 << 20;
constexpr int kMostScanned = 5'000'000;  // rows a run reads: reading them twice should cost little
constexpr int64_t kSinglesInARow = 4;
constexpr size_t kMostUnbegun = 65536;  // answers remembered before there is a shadow

// What walks may cost, in steps of SQLite's machine (some 30 ns each): a call of ours in a walk,
// and what a call that the model has answered is worth.
constexpr int64_t kStepsOfCall = 300;
constexpr int64_t kStepsAtFirst = 200'000;
constexpr int64_t kStepsEarned = 20'000;
constexpr int64_t kWalksOfRemembered = 3;  // in calls; SQLite's own steps are some of it

std::string ExpandedSql(sqlite3_stmt* statement) {
  char* text = sqlite3_expanded_sql(statement);
  std::string sql = text != nullptr ? text : "";
  sqlite3_free(text);
  return sql;
}

// For the call that the statement waits for, beside guesses.
std::shared_ptr<const CallOptions> Urgent(const CallOptions& options) {
  auto urgent = std::make_shared<CallOptions>(options);
  urgent->generation.priority = Priority::kInteractive;
  return urgent;
}

absl::Status OtherOrder() {
  return absl::FailedPreconditionError("its rows come in another order than foreseen");
}

}  // namespace

const void* RowPath::Enter(const void* site) {
  const auto again = std::find_if(calls_.begin(), calls_.end(),
                                  [site](const Visited& call) { return call.site == site; });
  calls_.erase(again, calls_.end());
  const auto unknown =
      std::find_if(calls_.begin(), calls_.end(), [](const Visited& call) { return call.unknown; });
  const void* const behind = unknown != calls_.end() ? unknown->site : nullptr;
  calls_.push_back({site, false});
  return behind;
}

LookAhead::LookAhead(std::shared_ptr<Connection> connection, std::string function, Owner owner)
    : connection_(std::move(connection)),
      owner_(owner),
      hints_(std::move(function), owner == Owner::kCursor) {
  FindLeader();
  BatchOf(*connection_).running.push_back(this);  // last: if it threw, no destructor would run
}

LookAhead::~LookAhead() {
  shadow_ = {};
  std::erase(BatchOf(*connection_).running, this);
  hints_.Leave(BatchOf(*connection_), num_asked_, width_.num_hits());
}

absl::StatusOr<PendingAnswer> LookAhead::Await(RowPrompt row) {
  if (scan_ == nullptr) {
    if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) scan_ = work->scan();
  }
  const CallText text(row);
  const int64_t missing = width_.num_missing();
  PendingAnswer pending = Take(text, std::move(row));
  const bool asked = pending.NeedsModel();
  if (asked && !begun_ && IsTimeToBegin()) {
    begun_ = true;
    absl::Status begun = Begin(text);
    if (EndsStatementAround(begun)) return begun;
    if (!begun.ok()) Stop(std::move(begun));
  }
  RETURN_IF_ERROR(Advance(text, width_.num_missing() > missing));
  RETURN_IF_ERROR(pending.Await(connection_->db(), [&] { return Advance(text, false); }));
  Learn(text, pending.answer());
  last_ = text;
  return pending;
}

PendingAnswer LookAhead::Take(const CallText& text, RowPrompt row) {
  ++num_calls_;
  std::optional<PendingAnswer> foreseen = TakeForeseen(text);
  const bool serial = !foreseen.has_value();
  if (serial && calls_.num_under_way() > 0) row.options = Urgent(*row.options);
  PendingAnswer pending = serial ? PendingAnswer(std::move(row)) : *std::move(foreseen);
  if (pending.submitted()) {
    ++BatchOf(*connection_).num_foreseen;
    if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) work->CountForeseen(1);
  }
  pending.Submit();
  const bool asked = pending.NeedsModel();
  num_asked_ += asked;
  if (asked && serial) hints_.CountSerial(width_.num_hits());
  if (serial && walk_ != Walk::kNone) CountMiss(text, asked);
  return pending;
}

std::optional<PendingAnswer> LookAhead::TakeForeseen(const CallText& text) {
  if (walk_ == Walk::kNone) return std::nullopt;
  const ForeseenCall* const found = calls_.Find(text);
  if (found == nullptr) {
    std::optional<PendingAnswer> kept = calls_.TakeKept(text);
    if (kept.has_value()) {
      width_.CountHit();
      ++num_unforeseen_;
      taken_early_.push_back(text.hash);
    }
    return kept;
  }
  const int64_t wrong = width_.num_wrong();
  const size_t distrusted = distrusted_.size();
  // Equal calls may be foreseen, and the one that is taken may be another than the statement's:
  // calls before it have been passed over only where the call before came from behind them, too.
  num_learned_ += found->unknown;
  const int64_t last = std::exchange(place_, found->number);
  last_site_ = found->site;
  PendingAnswer pending =
      calls_.Take(*found, last, [this](const ForeseenCall& call) { PassOver(call); });
  for (size_t i = distrusted; i < distrusted_.size(); ++i) calls_.DropDoubtful(distrusted_[i]);
  width_.CountHit(last_site_);
  if (width_.num_wrong() > wrong) width_.Narrow();
  if (width_.IsMostlyWrong()) Stop(OtherOrder());
  return pending;
}

// The statement has not made it and has made a later one.
void LookAhead::PassOver(const ForeseenCall& call) {
  if (call.behind == nullptr) {
    const bool under_way = call.pending.submitted() && !call.pending.answered();
    if (under_way && call.pending.NeedsModel()) width_.CountWrong();
  } else if (std::find(distrusted_.begin(), distrusted_.end(), call.site) == distrusted_.end()) {
    distrusted_.push_back(call.site);
  }
}

// What is remembered costs nothing, foreseen or not.
void LookAhead::CountMiss(const CallText& text, bool asked) {
  // SQLite may ask for a row again at once.
  if (!asked && last_.has_value() && *last_ == text) return;
  ++num_unforeseen_;
  // In its row the statement has made this call instead of one that was in doubt.
  while (calls_.size() > 0 && last_site_ != nullptr && calls_.front().behind == last_site_) {
    PassOver(calls_.front());
    calls_.DropDoubtful(calls_.front().site);
  }
  dependent_ = dependent_ || learning_;
  // A step that was ended early, and cannot be afforded again yet, has not looked for it.
  width_.CountMiss(asked && walk_ != Walk::kFull);
  if (width_.IsMostlyMissing()) {
    Stop(absl::FailedPreconditionError("its rows could not be foreseen"));
  }
}

// One row needs no company, and what is remembered is there at once. After a few statements of one
// row each the next will be one, too.
bool LookAhead::IsTimeToBegin() const {
  if (num_asked_ > 1) return true;
  if (owner_ == Owner::kCursor) return false;
  if (BatchOf(*connection_).num_single >= kSinglesInARow) return false;
  const absl::StatusOr<sqlite3_stmt*> statement = FindStatement();
  return statement.ok() && sqlite3_stmt_readonly(*statement) == 0;
}

LookAhead* LookAhead::leader() {
  const std::vector<LookAhead*>& running = BatchOf(*connection_).running;
  const bool there = std::find(running.begin(), running.end(), leader_) != running.end();
  return there ? leader_ : this;
}

// Of a statement that runs alone, the first look-ahead leads.
void LookAhead::FindLeader() {
  const std::vector<LookAhead*>& running = BatchOf(*connection_).running;
  if (running.empty()) return;
  const std::vector<sqlite3_stmt*> busy = BusyStatements(connection_->db());
  const auto shadows = std::count_if(busy.begin(), busy.end(), [](sqlite3_stmt* statement) {
    return IsShadow(sqlite3_sql(statement));
  });
  if (static_cast<size_t>(shadows) + 1 != busy.size()) return;
  leader_ = running.front();
}

absl::StatusOr<sqlite3_stmt*> LookAhead::FindStatement() const {
  std::vector<sqlite3_stmt*> callers, others;
  for (sqlite3_stmt* statement : BusyStatements(connection_->db())) {
    const std::vector<LookAhead*>& running = BatchOf(*connection_).running;
    const bool known = std::any_of(running.begin(), running.end(), [&](const LookAhead* other) {
      return other->statement() == statement;
    });
    if (known || IsShadow(sqlite3_sql(statement))) continue;
    (CallsGenerate(sqlite3_sql(statement)) ? callers : others).push_back(statement);
  }
  if (callers.empty()) callers.swap(others);  // it reads a view
  if (callers.size() > 1) {
    return absl::FailedPreconditionError("several statements run at a time");
  }
  if (callers.empty()) return absl::FailedPreconditionError("its text is not known");
  return callers.front();
}

// Makes the shadow and steps it to where the statement is: at the call `now`.
absl::Status LookAhead::Begin(const CallText& now) {
  ASSIGN_OR_RETURN(sqlite3_stmt * statement, FindStatement());
  statement_ = statement;
  if (connection_->settings().lookahead == "off") {
    return absl::FailedPreconditionError("lm_settings has lookahead 'off'");
  }
  // Ours have some thousand instructions; one that is too long ends the statement that runs as if
  // there were no memory.
  constexpr int kLeastProgram = 25'000;
  if (sqlite3_limit(connection_->db(), SQLITE_LIMIT_VDBE_OP, -1) < kLeastProgram) {
    return absl::FailedPreconditionError("the host limits how long programs may be");
  }
  const int runs = std::max(sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_RUN, 0), 1);
  if (sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0) / runs > kMostScanned) {
    return absl::FailedPreconditionError("it reads too many rows");
  }
  const std::string sql = ExpandedSql(statement);
  if (sql.empty() || sql.size() > kMostSqlBytes) {
    return absl::FailedPreconditionError("its text is too long");
  }
  hints_.set_limited(HasLimit(sql));
  ASSIGN_OR_RETURN(const std::vector<std::string> shadows, ShadowsOf(sql, connection_->db()));
  absl::StatusOr<Shadow> shadow;
  for (size_t i = 0; i < shadows.size() && !shadow.ok() && !EndsStatementAround(shadow.status());
       ++i) {
    shadow = PrepareShadow(connection_->db(), shadows[i], TargetOf(sql));
  }
  RETURN_IF_ERROR(shadow.status());
  shadow_ = *std::move(shadow);
  const bool to_its_end = sqlite3_stmt_readonly(statement) == 0 && !shadow_.limit.has_value();
  // One place that generates cannot depend on another; but a loop may end by its answer, and where
  // labels are weighed, it may ask again behind what they begin with.
  const bool weighs_labels = now.chooses && now.question.empty();
  const bool independent =
      shadow_.num_sites <= 1 && !shadow_.leaves_loops && !weighs_labels && now.begun.empty();
  const bool in_order = !independent || now.parts != nullptr;
  if (HasBudget(now.options->generation) && in_order) {
    return absl::FailedPreconditionError("its budget is spent in the order of its calls");
  }
  width_.Begin({.most_under_way = now.options->session().generator().most_under_way(),
                .to_its_end = to_its_end,
                .independent = independent,
                .limit = shadow_.limit,
                .num_sites = shadow_.num_sites,
                .num_calls = num_calls_});
  place_ = 0;
  num_unforeseen_ = num_calls_ - 1;
  RETURN_IF_ERROR(WalkTo(now));
  if (independent) {
    learning_ = false;
    known_.Clear();
  }
  return absl::OkStatus();
}

// Looks further ahead, as far as what is under way leaves room. An error is an interrupt.
absl::Status LookAhead::Advance(const CallText& now, bool missed) {
  if (walk_ == Walk::kNone) return absl::OkStatus();
  calls_.Look();
  calls_.Submit(width_.size(), width_.MostOfPlace());
  if (ShouldWalk(missed)) RETURN_IF_ERROR(WalkTo(now));
  for (int i = 0; i < kRowsAtATime && WantsMore(); ++i) RETURN_IF_ERROR(StepOnce());
  if (walk_ == Walk::kOver || calls_.size() > most_kept_) {
    calls_.DropKept([this](const ForeseenCall& call) { PassOver(call); });
  }
  calls_.Submit(width_.size(), width_.MostOfPlace());
  return absl::OkStatus();
}

bool LookAhead::ShouldWalk(bool missed) const {
  const bool idle = 4 * calls_.num_under_way() <= width_.size();
  const bool has_room = calls_.size() < width_.MostAhead(dependent_);
  if (walk_ == Walk::kFull && idle && has_room) return CanAffordWalk();
  if (!dependent_) return false;
  // What the statement has taken the shadow knows, too: where a second pass depends on a first one,
  // nothing else is left of that.
  const bool knows_more = calls_.num_ripe() > 0 || num_learned_ > 0;
  return ((missed && knows_more) || (idle && 4 * calls_.num_ripe() >= width_.size())) &&
         CanAffordWalk();
}

// What was remembered the statement has made as well: a first walk to where it is, and a second one
// behind it, cost no more than that did.
bool LookAhead::CanAffordWalk() const {
  const int64_t steps = sqlite3_stmt_status(shadow_.statement.get(), SQLITE_STMTSTATUS_VM_STEP, 0) +
                        num_foreseen_ * kStepsOfCall;
  const int64_t remembered = num_calls_ - num_asked_;
  return steps <=
         kStepsAtFirst + num_asked_ * kStepsEarned + remembered * kWalksOfRemembered * kStepsOfCall;
}

// Begins a walk, and goes on until the shadow has made the call at which the statement is.
absl::Status LookAhead::WalkTo(const CallText& now) {
  most_kept_ = 2 * (calls_.size() + calls_.num_kept()) + width_.most();
  calls_.KeepAside();
  num_learned_ = 0;
  shadow_.statement.Reset();
  walk_ = Walk::kAhead;
  path_.Clear();
  sites_.clear();  // those of a program that was compiled anew are others
  taken_early_.clear();
  num_walked_ = 0;
  num_rows_walked_ = 0;
  expected_ = std::min(place_ + num_unforeseen_, num_calls_ - 1);
  placed_ = false;
  now_ = &now;
  const absl::Cleanup found = [this] { now_ = nullptr; };
  while (walk_ == Walk::kAhead && now_ != nullptr) RETURN_IF_ERROR(StepOnce());
  if (!placed_ && walk_ != Walk::kFull) Stop(OtherOrder());
  return absl::OkStatus();
}

// Whether the shadow's call of this number is before the statement's place, or at it.
bool LookAhead::IsPlace(const CallText& text, int64_t number) {
  if (now_ == nullptr) return false;
  if (number + kSearched < expected_) return true;
  // Rows may be alike: of several it is the one that is nearest to the expected place.
  const int64_t distance = std::abs(number - expected_);
  const int64_t best = placed_ ? std::abs(place_ - expected_) : kSearched;
  if (text == *now_ && distance <= best) {
    placed_ = true;
    place_ = number;
    num_unforeseen_ = 0;
    calls_.DropAll();
    has_place_ = true;
    if (number >= expected_) now_ = nullptr;
    return true;
  }
  if (number > expected_ && distance >= best) now_ = nullptr;
  return !placed_;
}

bool LookAhead::IsShadowsCall(const void* site, bool is_table) {
  if (!is_table && std::find(sites_.begin(), sites_.end(), site) != sites_.end()) return true;
  for (sqlite3_stmt* busy : BusyStatements(connection_->db())) {
    const bool since =
        std::find(busy_outside_.begin(), busy_outside_.end(), busy) == busy_outside_.end();
    if (since && busy != shadow_.statement.get() && CallsGenerate(sqlite3_sql(busy))) return false;
  }
  if (!is_table) sites_.push_back(site);
  return true;
}

absl::StatusOr<std::optional<PendingAnswer>> LookAhead::Foresee(const void* site, RowPrompt row) {
  const void* const behind = path_.Enter(site);
  if (++num_in_step_ > expected_ + kSearched + width_.MostCallsOfStep()) {
    return FarEnough();
  }
  if (!HasPrompt(row)) {  // and so has an answer
    PendingAnswer pending(std::move(row));
    pending.Submit();
    return pending;
  }
  row.scan = scan_;
  CallText text(row);
  ++num_foreseen_;
  const bool distrusted = behind != nullptr && std::find(distrusted_.begin(), distrusted_.end(),
                                                         site) != distrusted_.end();
  if (IsPlace(text, num_walked_++) || distrusted) return Known(text);
  const auto early = std::find(taken_early_.begin(), taken_early_.end(), text.hash);
  if (early != taken_early_.end()) {
    taken_early_.erase(early);
    return Known(text);
  }
  if (now_ == nullptr &&
      (calls_.size() >= width_.MostInStep(dependent_) || calls_.bytes() > kMostBytes)) {
    return FarEnough();
  }
  const RowPrompt again{.options = row.options};
  ForeseenCall& call = calls_.Add(std::move(row), std::move(text), site, num_walked_ - 1, behind);
  if (now_ == nullptr) calls_.Submit(width_.size(), width_.MostOfPlace());
  if (call.pending.answered()) return PendingAnswer(again, call.pending.answer());
  std::optional<PendingAnswer> known = Known(call.text);
  call.unknown = !known.has_value();
  if (call.unknown && now_ == nullptr && MayHaveAllRows(++unknown_ahead_[site])) {
    return FarEnough();
  }
  return known;
}

// Ends the shadow's step.
absl::Status LookAhead::FarEnough() {
  walk_ = Walk::kFull;
  return absl::ResourceExhaustedError("far enough");
}

// Whether the statement has all rows that its LIMIT allows, or as many more as are guessed at a
// time, if `unknown` calls, which one place has made in this step behind the statement's own, let
// their rows through. The shadow may look for another such call in vain, for as long as its tables
// last.
bool LookAhead::MayHaveAllRows(size_t unknown) const {
  const size_t own = has_place_ ? 1 : 0;
  // Where a row comes without its answer, each step has one such call.
  if (!shadow_.limit.has_value() || unknown + own < 2) return false;
  const size_t wanted = *shadow_.limit - std::min(*shadow_.limit, num_rows_walked_);
  const size_t most = width_.MostOfPlace();
  return unknown + own >= (most < *shadow_.limit ? wanted : most + own);
}

std::optional<PendingAnswer> LookAhead::Known(const CallText& text) {
  if (const RowAnswer* answer = known_.Find(text)) {
    return PendingAnswer({.options = text.options}, *answer);
  }
  path_.SetUnknown();
  return std::nullopt;
}

void LookAhead::Learn(const CallText& text, const RowAnswer& answer) {
  if (!learning_ || (!begun_ && known_.size() > kMostUnbegun)) return;
  if (known_.Add(text, answer)) return;
  learning_ = dependent_ = false;
  known_.Clear();
}

bool LookAhead::WantsMore() const {
  if (walk_ != Walk::kAhead) return false;
  if (calls_.num_kept() > 0 && calls_.size() <= most_kept_) return true;
  return calls_.num_under_way() < width_.size() && calls_.size() < width_.MostAhead(dependent_) &&
         calls_.bytes() <= kMostBytes;
}

absl::Status LookAhead::StepOnce() {
  BatchState& batch = BatchOf(*connection_);
  if (sites_.size() < shadow_.num_sites) busy_outside_ = BusyStatements(connection_->db());
  batch.stepping = this;
  num_in_step_ = 0;
  has_place_ = false;
  unknown_ahead_.clear();
  const absl::StatusOr<bool> row = [&] {
    const absl::Cleanup stepped = [&batch] { batch.stepping = nullptr; };
    return shadow_.statement.Step();
  }();
  if (EndsStatementAround(row.status())) return row.status();
  if (row.ok() && *row) {
    ++num_rows_walked_;
    path_.Clear();
  } else if (walk_ == Walk::kFull) {
    width_.CountFullStep();
  } else {
    walk_ = Walk::kOver;
  }
  return absl::OkStatus();
}

void LookAhead::Stop(absl::Status why) {
  hints_.set_off(std::move(why));
  shadow_ = {};
  sites_.clear();
  walk_ = Walk::kNone;
  calls_.Clear();
  known_.Clear();
  learning_ = dependent_ = false;
}

}  // namespace lm

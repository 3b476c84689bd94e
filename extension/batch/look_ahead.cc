#include "extension/batch/look_ahead.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/batch/batch_state.h"
#include "extension/batch/shadow_statement.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// Auxiliary data with a negative index belongs to the run of a statement; the number is arbitrary,
// so that no other extension hits on it.
constexpr int kLookAheadIndex = -0x6c6d32;

// Of a SELECT; doubled at each call, up to what a batch form keeps under way.
constexpr size_t kFirstWidth = 8;
constexpr size_t kMostWidth = AnswerQueue::kMostUnderWay;
constexpr int64_t kSearched = 64;  // hints among which the statement's place must be found
constexpr size_t kMostHints = 4096;
constexpr int kRowsAtATime = 1024;  // that the shadow is stepped, whether they have prompts or not
constexpr size_t kMostSqlBytes = 4 << 20;
constexpr int kMostScanned = 5'000'000;  // rows a run reads: reading them twice should cost little
constexpr int64_t kTolerated = 16;       // wrong guesses that are nothing to worry about
constexpr int64_t kWorthAHint = 16;      // rows that waited one by one

// The look-ahead of the statement that makes the call; nullptr where there is no memory.
LookAhead* Of(const Call& call) {
  auto* ahead = static_cast<LookAhead*>(sqlite3_get_auxdata(call.context(), kLookAheadIndex));
  if (ahead != nullptr) return ahead;
  auto first = std::make_unique<LookAhead>(call.shared_connection(), call.function());
  // May delete it at once: the pointer is SQLite's from here on.
  sqlite3_set_auxdata(call.context(), kLookAheadIndex, first.release(),
                      [](void* data) { delete static_cast<LookAhead*>(data); });
  return static_cast<LookAhead*>(sqlite3_get_auxdata(call.context(), kLookAheadIndex));
}

std::string ExpandedSql(sqlite3_stmt* statement) {
  char* text = sqlite3_expanded_sql(statement);
  std::string sql = text != nullptr ? text : "";
  sqlite3_free(text);
  return sql;
}

bool Foreseeable(const RowPrompt& row) {
  return row.prompt.ok() && row.prompt->has_value() && row.system.ok();
}

}  // namespace

absl::StatusOr<std::optional<PendingAnswer>> AwaitRow(const Call& call, RowPrompt row) {
  if (LookAhead* ahead = BatchOf(call.connection()).stepping) {
    sqlite3_result_null(call.context());
    RETURN_IF_ERROR(ahead->Foresee(std::move(row)));
    return std::nullopt;
  }
  const bool alone = call.connection().only_counts() || !Foreseeable(row);
  LookAhead* ahead = alone ? nullptr : Of(call);
  const int64_t foreseen = BatchOf(call.connection()).num_foreseen;
  PendingAnswer pending =
      ahead != nullptr ? ahead->Take(std::move(row)) : PendingAnswer(std::move(row));
  if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
    work->CountForeseen(BatchOf(call.connection()).num_foreseen - foreseen);
  }
  RETURN_IF_ERROR(pending.Await(call.connection().db()));
  return pending;
}

absl::Status AnswerRow(const Call& call, RowPrompt row, AnswerType type) {
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return absl::OkStatus();
  return ResultAnswer(call.context(), pending->answer(), pending->on_error(), type);
}

LookAhead::RowText::RowText(const RowPrompt& row)
    : prompt(**row.prompt),
      system(row.system->value_or("")),
      question(row.question),
      embed(row.embed),
      options(row.options) {}

bool LookAhead::RowText::operator==(const RowText& other) const {
  return prompt == other.prompt && system == other.system && question == other.question &&
         embed == other.embed &&
         (options == other.options || (options->generation == other.options->generation &&
                                       &options->generator() == &other.options->generator()));
}

LookAhead::LookAhead(std::shared_ptr<Connection> connection, std::string function)
    : connection_(std::move(connection)), function_(std::move(function)), most_hints_(kMostHints) {
  BatchOf(*connection_).running.push_back(this);
}

LookAhead::~LookAhead() {
  shadow_ = Statement();
  std::erase(BatchOf(*connection_).running, this);
  if (num_serial_ < kWorthAHint) return;
  try {
    BatchOf(*connection_).hint = Slowness();
  } catch (...) {  // no memory, no hint
  }
}

std::string LookAhead::Slowness() const {
  const bool embeds = function_ == "lm_embed";
  return absl::StrCat(
      "a statement called ", function_, "() for ", num_serial_,
      " rows one at a time (no look-ahead: ", off_.ok() ? "unforeseen" : off_.message(), ")",
      embeds ? ""
             : "; lm_map(...) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING), lm_query or "
               "lm_prefetch decode many rows together, with generate()'s options");
}

void LookAhead::Warn() const {
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  if (work == nullptr) return;
  work->SetHint(Slowness());
  sqlite3_log(SQLITE_WARNING, "sqlite-lm: %s() is answered row by row (%s): %s", function_.c_str(),
              off_.ok() ? "unforeseen" : std::string(off_.message()).c_str(), work->sql().c_str());
}

PendingAnswer LookAhead::Take(RowPrompt row) {
  const RowText text(row);
  ++num_calls_;
  std::optional<PendingAnswer> foreseen = TakeHint(text);
  const bool serial = !foreseen.has_value();
  PendingAnswer pending = serial ? PendingAnswer(std::move(row)) : *std::move(foreseen);
  pending.Submit();
  const bool asked = pending.NeedsModel();
  num_asked_ += asked;
  num_serial_ += asked && serial;
  if (asked && serial && num_serial_ == kWorthAHint) Warn();
  if (asked && !begun_ && IsTimeToBegin()) {
    begun_ = true;
    absl::Status begun = Begin(text);
    if (!begun.ok()) Stop(std::move(begun));
  }
  if (shadow_.prepared() || !hints_.empty()) {
    width_ = std::clamp(2 * width_, kFirstWidth, kMostWidth);
    StepShadow();
    SubmitHints();
  }
  last_ = text;
  return pending;
}

size_t LookAhead::Find(const RowText& text) const {
  const auto found = std::find_if(hints_.begin(), hints_.end(),
                                  [&text](const Hint& hint) { return hint.text == text; });
  return found - hints_.begin();
}

std::optional<PendingAnswer> LookAhead::TakeHint(const RowText& text) {
  if (hints_.empty()) return std::nullopt;
  const size_t found = Find(text);
  if (found == hints_.size()) {
    // SQLite may ask for a row again at once; the memo has it.
    num_missing_ += !(last_ == text);
    if (num_missing_ > kTolerated && num_missing_ > num_taken_) {
      Stop(absl::FailedPreconditionError("its rows could not be foreseen"));
    }
    return std::nullopt;
  }
  PendingAnswer pending = std::move(hints_[found].pending);
  DropHints(found + 1);
  ++num_taken_;
  BatchOf(*connection_).num_foreseen += pending.submitted();
  num_wrong_ += static_cast<int64_t>(found);
  if (num_wrong_ > 4 * kTolerated && num_wrong_ > 2 * num_taken_) {
    Stop(absl::FailedPreconditionError("its rows come in another order than foreseen"));
  }
  return pending;
}

// One row needs no company, and what is remembered is there at once.
bool LookAhead::IsTimeToBegin() const {
  if (num_asked_ > 1) return true;
  const absl::StatusOr<sqlite3_stmt*> statement = FindStatement();
  return statement.ok() && sqlite3_stmt_readonly(*statement) == 0;
}

absl::StatusOr<sqlite3_stmt*> LookAhead::FindStatement() const {
  sqlite3_stmt* found = nullptr;
  for (sqlite3_stmt* statement : BusyStatements(connection_->db())) {
    const std::vector<const LookAhead*>& running = BatchOf(*connection_).running;
    const bool others = std::any_of(running.begin(), running.end(), [&](const LookAhead* other) {
      return other->statement() == statement;
    });
    if (others || IsShadow(sqlite3_sql(statement)) || !CallsGenerate(sqlite3_sql(statement))) {
      continue;
    }
    if (found != nullptr) {
      return absl::FailedPreconditionError("several statements that generate run at a time");
    }
    found = statement;
  }
  if (found == nullptr) return absl::FailedPreconditionError("its text is not known");
  return found;
}

// Makes the shadow and steps it to where the statement is: at the row `now`.
absl::Status LookAhead::Begin(const RowText& now) {
  ASSIGN_OR_RETURN(sqlite3_stmt * statement, FindStatement());
  statement_ = statement;
  if (connection_->settings().lookahead == "off") {
    return absl::FailedPreconditionError("lm_settings has lookahead 'off'");
  }
  const int runs = std::max(sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_RUN, 0), 1);
  if (sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0) / runs > kMostScanned) {
    return absl::FailedPreconditionError("it reads too many rows");
  }
  const std::string sql = ExpandedSql(statement);
  if (sql.empty() || sql.size() > kMostSqlBytes) {
    return absl::FailedPreconditionError("its text is too long");
  }
  ASSIGN_OR_RETURN(const std::string shadow, ShadowOf(sql));
  // As many calls ago as the statement has made, as a rule; where SQLite evaluates a call more
  // often in the statement than in its shadow, nearer to the beginning.
  const int64_t likely = std::max<int64_t>(num_calls_ - kSearched / 2, 0);
  for (const int64_t skipped : {likely, int64_t{0}}) {
    ASSIGN_OR_RETURN(shadow_, PrepareShadow(connection_->db(), shadow));
    if (!FindPlace(now, skipped)) continue;
    width_ = sqlite3_stmt_readonly(statement) != 0 ? 0 : kMostWidth;
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError("its rows come in another order than foreseen");
}

// Steps a new shadow to the row `now`, which is not among its first `skipped` calls.
bool LookAhead::FindPlace(const RowText& now, int64_t skipped) {
  DropHints(hints_.size());
  num_foreseen_ = 0;
  num_skipped_ = skipped;
  width_ = kSearched;
  while (shadow_.prepared() && hints_.size() < width_) StepShadow();
  // Rows may be alike: where the calls so far fit, they are the first ones.
  const size_t expected = static_cast<size_t>(num_calls_ - 1 - skipped);
  const bool fits = expected < hints_.size() && hints_[expected].text == now;
  const size_t here = fits ? expected : Find(now);
  if (here == hints_.size()) return false;
  DropHints(here + 1);
  return true;
}

absl::Status LookAhead::Foresee(RowPrompt row) {
  if (!Foreseeable(row) || ++num_foreseen_ <= num_skipped_) return absl::OkStatus();
  if (hints_.size() >= most_hints_) {
    full_ = true;
    return absl::ResourceExhaustedError("far enough");
  }
  RowText text(row);
  hints_.push_back({std::move(text), PendingAnswer(std::move(row))});
  return absl::OkStatus();
}

void LookAhead::StepShadow() {
  for (int i = 0; i < kRowsAtATime && shadow_.prepared() && hints_.size() < width_; ++i) {
    StepOnce();
  }
}

void LookAhead::StepOnce() {
  BatchState& batch = BatchOf(*connection_);
  batch.stepping = this;
  const absl::StatusOr<bool> row = [&] {
    const absl::Cleanup stepped = [&batch] { batch.stepping = nullptr; };
    return shadow_.Step();
  }();
  if (row.ok() && *row) return;
  if (!full_) {  // it is at its end, or has failed as the statement may yet do
    shadow_ = Statement();
    return;
  }
  full_ = false;
  num_skipped_ = std::exchange(num_foreseen_, 0) - 1;
  most_hints_ *= 2;  // or the rows known already would be read too often
}

void LookAhead::DropHints(size_t count) {
  for (size_t i = 0; i < count; ++i) hints_.pop_front();
  submitted_ -= std::min(submitted_, count);
}

void LookAhead::SubmitHints() {
  while (submitted_ < std::min(width_, hints_.size()) && hints_[submitted_].pending.Submit()) {
    ++submitted_;
  }
}

void LookAhead::Stop(absl::Status why) {
  off_ = std::move(why);
  shadow_ = Statement();
  hints_.clear();
  submitted_ = 0;
}

}  // namespace lm

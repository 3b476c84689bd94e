#include "extension/batch/look_ahead_hints.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "extension/connection/statement_call.h"
#include "extension/host/sqlite_api.h"

namespace lm {
namespace {

constexpr int64_t kWorthAHint = 16;  // rows that waited one by one

}  // namespace

LookAheadHints::LookAheadHints(std::string function, bool of_cursor)
    : function_(std::move(function)), of_cursor_(of_cursor) {}

void LookAheadHints::CountSerial(int64_t num_hits) {
  ++num_serial_;
  if (!off_.ok() && IsSlow(num_hits) && !std::exchange(warned_, true)) Warn();
}

void LookAheadHints::Leave(BatchState& batch, int64_t num_asked, int64_t num_hits) const noexcept {
  HintAtSingles(batch, num_asked);
  if (!IsSlow(num_hits)) {
    if (num_hits > 0) batch.Batched();
    return;
  }
  try {
    batch.hint = Slowness();
  } catch (...) {  // no memory, no hint
  }
}

// Statements that ask for one row each, one after the other: no look-ahead sees them coming.
void LookAheadHints::HintAtSingles(BatchState& batch, int64_t num_asked) const noexcept {
  if (num_asked == 0 || of_cursor_) return;
  batch.num_single = num_asked == 1 ? batch.num_single + 1 : 0;
  if (batch.num_single < kWorthAHint) return;
  try {
    batch.hint = absl::StrCat(batch.num_single, " statements in a row called ", function_,
                              "() for one row each; SELECT lm_prefetch(...) over all their rows, "
                              "with generate()'s arguments, decodes them together before");
  } catch (...) {  // no memory, no hint
  }
}

// Whether a quarter of the rows waited one by one, or more. All foreseen rows count, not only those
// whose answers were yet to come when the statement asked: how many these are is a matter of time.
bool LookAheadHints::IsSlow(int64_t num_hits) const {
  return num_serial_ >= kWorthAHint && 3 * num_serial_ >= num_hits;
}

std::string LookAheadHints::Slowness() const {
  const bool embeds =
      function_ == "lm_embed" || function_ == "lm_rerank" || function_ == "lm_similarity";
  const char* advice =
      "; lm_map(...) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING), lm_query or lm_prefetch "
      "decode many rows together, with generate()'s options";
  // A window function is called for all rows, whatever the LIMIT.
  if (limited_) {
    advice =
        "; lm_query over a SELECT that has the LIMIT, or a question about a temporary table of its "
        "rows, decodes many rows together";
  }
  if (embeds) advice = "";
  if (function_ == "lm_summarize") {
    advice =
        "; without a budget, a job whose options have \"summarize\":true reads many texts together";
  }
  return absl::StrCat("a statement called ", function_, "() for ", num_serial_,
                      " rows one at a time (no look-ahead: ",
                      off_.ok() ? "unforeseen" : off_.message(), ")", advice);
}

void LookAheadHints::Warn() const {
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  if (work == nullptr) return;
  work->SetHint(Slowness());
  sqlite3_log(SQLITE_WARNING, "sqlite-lm: %s() is answered row by row (%s): %s", function_.c_str(),
              std::string(off_.message()).c_str(), work->sql().c_str());
}

}  // namespace lm

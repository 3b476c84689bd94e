// lm_query(select_sql [, options]): the rows of a SELECT, answered together
//   -> id, value, error, finish, tokens_in, tokens_cached, tokens_out
//
//   SELECT id, value FROM lm_query('SELECT id, body, ''Label the review.'' FROM reviews');
//
//   -- Into a table, without a write lock on the database while the model runs.
//   CREATE TEMP TABLE answers AS
//     SELECT id, value, error FROM lm_query('SELECT id, body FROM reviews WHERE label IS NULL');
//
// The SELECT has the columns id (any value, handed through), prompt and, if you like, system: what
// rows have in common, which is computed once. It is read as the answers come, 256 rows ahead at
// first and up to 4096 later, so it may have any number of rows. Within those, prompts with a
// common beginning are submitted one after the other. Rows come in the SELECT's order, or, with
// {"order":"finished"}, each as soon as it is done. All other options are generate()'s.
//
// It must be a single SELECT (WITH, VALUES) without parameters; what could write is refused. A NULL
// prompt has the value NULL. A prompt that fails has the value NULL and says why in `error`, and
// the others go on; {"on_error":"error"} ends the statement instead, {"on_error":"json"} puts the
// object of lm_try into `value`. A LIMIT outside cancels what is under way.
//
// Within a join or a correlated subquery, scans with the same arguments have the rows of the first
// one, which are asked about once (passed_answers.h).
#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/pending_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/table_function.h"
#include "extension/connection/await.h"
#include "extension/connection/own_options.h"
#include "extension/host/interrupt.h"
#include "extension/tables/passed_answers.h"
#include "extension/tables/query_rows.h"
#include "extension/tables/read_while_written.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class QueryCursor : public TableCursor {
 public:
  enum Column { kId, kAnswer };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    rows_.clear();
    waiting_.clear();
    select_.reset();
    num_read_ = 0;
    passed_.Begin(connection().db());
    window_ = kFirstWindow;
    ASSIGN_OR_RETURN(std::optional<std::string> sql, args.Text(0));
    if (!sql.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(OwnOptions own, OwnOptions::TakeOfCall(json, {"order"}));
    ASSIGN_OR_RETURN(const std::optional<std::string> order, own.Text("order"));
    if (order.has_value() && *order != "query" && *order != "finished") {
      return absl::InvalidArgumentError(
          absl::StrCat("order must be 'query' or 'finished', got '", *order, "'"));
    }
    as_finished_ = order == "finished";
    ASSIGN_OR_RETURN(CallOptions options,
                     ReadCallOptions(own.rest(), connection(), {.on_error = OnError::kNull}));
    options_ = std::make_shared<const CallOptions>(std::move(options));
    ASSIGN_OR_RETURN(QueryRows select, QueryRows::Prepare(connection().db(), *sql));
    select_ = std::move(select);
    reads_all_ = MayReadWhatIsWritten(connection().db(), *sql);
    return AwaitCurrent();
  }

  bool can_rewind() const override { return passed_.CanRewind(); }
  void Rewind() override { passed_.Rewind(); }

  bool AtEnd() const override { return passed_.current() == nullptr && rows_.empty(); }

  absl::Status Next() override {
    if (passed_.Next()) return absl::OkStatus();
    std::erase(waiting_, rows_.begin());  // one that the engine had no room for
    Row& row = rows_.front();
    passed_.Add(row.number, std::move(row.id), row.pending.answer());
    rows_.pop_front();
    return AwaitCurrent();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    const PassedAnswer* passed = passed_.current();
    if (column == kId) {
      sqlite3_result_value(context, (passed != nullptr ? passed->id : rows_.front().id).get());
    } else {
      ResultAnswerColumn(context,
                         passed != nullptr ? passed->answer : rows_.front().pending.answer(),
                         column - kAnswer, options_->generation);
    }
    return absl::OkStatus();
  }

  int64_t rowid() const override {
    const PassedAnswer* passed = passed_.current();
    return passed != nullptr ? passed->number : rows_.front().number;
  }

 private:
  // How many rows are read, and sorted, at a time: each time twice as many, so that the first ones
  // come soon, and prefixes that the cache has no room for together are computed seldom.
  static constexpr size_t kFirstWindow = Generator::kMostUnderWay;
  static constexpr size_t kMostWindow = 4096;
  static constexpr size_t kMostWindowBytes = 16 << 20;  // of prompts

  struct Row {
    int64_t number;  // in the SELECT, from 0 on: a row's own, in whatever order they are finished
    OwnedValue id;
    std::string place;  // in the order of submission, until it is submitted
    PendingAnswer pending;
  };

  absl::Status AwaitCurrent() {
    RETURN_IF_ERROR(ReadMore());
    if (rows_.empty()) return absl::OkStatus();
    if (rows_.size() > 1 && rows_.front().pending.NeedsModel()) StatementCall::Batched();
    if (as_finished_) RETURN_IF_ERROR(BringFinishedToFront());
    RETURN_IF_ERROR(rows_.front().pending.Await(connection().db()));
    const RowAnswer& answer = rows_.front().pending.answer();
    if (answer.null_prompt || answer.generation.status.ok() ||
        options_->generation.on_error != OnError::kError) {
      return absl::OkStatus();
    }
    return OfRow(rows_.front().number + 1, answer.generation.status);
  }

  absl::Status ReadMore() {
    while (select_.has_value() && (reads_all_ || rows_.size() < kFirstWindow)) {
      std::vector<std::list<Row>::iterator> read;
      for (size_t bytes = 0; read.size() < window_ && bytes < kMostWindowBytes;) {
        ASSIGN_OR_RETURN(std::optional<QueryRow> row, select_->Next());
        if (!row.has_value()) {
          select_.reset();
          if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
            work->AnnounceRows(num_read_);
          }
          break;
        }
        read.push_back(rows_.insert(rows_.end(), MakeRow(*std::move(row))));
        bytes += read.back()->place.size();
      }
      window_ = std::min(2 * window_, kMostWindow);
      std::stable_sort(read.begin(), read.end(),
                       [](const auto& a, const auto& b) { return a->place < b->place; });
      waiting_.insert(waiting_.end(), read.begin(), read.end());
      // Those that will be finished first are to be found first.
      for (const auto& row : read) {
        if (as_finished_) rows_.splice(rows_.end(), rows_, row);
      }
    }
    for (; !waiting_.empty() && waiting_.front()->pending.Submit(); waiting_.pop_front()) {
      waiting_.front()->place = {};
    }
    return absl::OkStatus();
  }

  Row MakeRow(QueryRow row) {
    RowPrompt prompt{std::move(row.prompt), std::move(row.system), options_};
    std::string place = PlaceOf(prompt);
    return {num_read_++, std::move(row.id), std::move(place), PendingAnswer(std::move(prompt))};
  }

  // Waits until any of the rows is done.
  absl::Status BringFinishedToFront() {
    InterruptPoll poll(connection().db());
    for (;;) {
      for (auto row = rows_.begin(); row != rows_.end(); ++row) {
        if (!row->pending.Done()) continue;
        rows_.splice(rows_.begin(), rows_, row);
        return absl::OkStatus();
      }
      // Where none is submitted, there is nothing to wait for but room.
      auto under_way = std::find_if(rows_.begin(), rows_.end(),
                                    [](const Row& row) { return row.pending.submitted(); });
      if (under_way == rows_.end()) return absl::OkStatus();
      under_way->pending.Done(kInterruptInterval);
      const absl::Status late = CheckStatementTime(options_->generation.max_seconds);
      if (!late.ok()) {  // then it is what became of each row, unless that is the statement's end
        return options_->generation.on_error == OnError::kError ? late : absl::OkStatus();
      }
      if (poll.Interrupted()) return absl::CancelledError("interrupted");
    }
  }

  std::optional<QueryRows> select_;  // while it may have more rows
  std::shared_ptr<const CallOptions> options_;
  bool as_finished_ = false;
  bool reads_all_ = false;  // before there is a row to write
  size_t window_ = kFirstWindow;
  PassedAnswers passed_;
  std::list<Row> rows_;                           // not passed yet, the next in front
  std::deque<std::list<Row>::iterator> waiting_;  // not submitted yet
  int64_t num_read_ = 0;                          // of the SELECT's rows
};

constexpr TableFunctionSpec kQuerySpec = {
    .name = "lm_query",
    .columns =
        "id, value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, tokens_cached INTEGER, "
        "tokens_out INTEGER",
    .num_columns = 1 + kNumAnswerColumns,
    .arguments = {"select_sql", "options"},
    .required = 1,
    .missing = "a SELECT is missing: lm_query('SELECT id, prompt FROM ...')",
    .estimated_rows = 1000,
    .open = &MakeCursor<QueryCursor>};

}  // namespace

int RegisterQuery(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kQuerySpec);
}

}  // namespace lm

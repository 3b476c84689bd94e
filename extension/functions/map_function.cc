// lm_map(prompt [, system [, options]]) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING)
//   TEXT: generate()'s answer for the row, with up to 64 rows decoded together
//
//   SELECT id, lm_map(body, 'Label the review.') OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING)
//     FROM reviews;
//
//   -- Rows with a common beginning one after the other share more of their prompts.
//   SELECT id, lm_map(body, manual)
//                OVER (ORDER BY manual ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING)
//     FROM questions;
//
// The frame is how far SQLite steps ahead: the rows of it are submitted before the current row's
// answer is asked for. Any number of FOLLOWING rows will do, UNBOUNDED FOLLOWING too, and ROWS
// CURRENT ROW (one at a time). A frame that gives a row the answers of others (the default one,
// PRECEDING, EXCLUDE, FILTER) is an error that says which frame to write. NULL, errors and options
// are generate()'s; an error says which row of its partition, in the window's order, it is about.
//
// HOW IT WORKS
//
// xStep submits a row, or keeps its texts where enough are under way, xValue waits for the oldest
// one, xInverse lets it go: for a frame that begins with the current row, the oldest one is the
// current one. SQLite says nothing of the frame, but the text of the statement, or of its views,
// does; counting the calls is the second line of defence. xFinal ends the partition, and cancels
// what is still under way.
#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"
#include "extension/host/boundary.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

using Tokens = std::vector<SqlToken>;

bool Follow(const Tokens& tokens, size_t at, absl::Span<const absl::string_view> words) {
  if (at + words.size() > tokens.size()) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!tokens[at + i].Is(words[i])) return false;
  }
  return true;
}

bool IsAny(const SqlToken& token, absl::Span<const absl::string_view> words) {
  for (absl::string_view word : words) {
    if (token.Is(word)) return true;
  }
  return false;
}

// The error that says which frame to write, because of `why`.
absl::Status WrongFrame(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("write lm_map(...) OVER (ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING), so that "
                   "each row gets its own answer: ",
                   why));
}

// A window definition: the tokens between its parentheses, whose indices these are.
absl::Status CheckDefinition(const Tokens& tokens, size_t open, size_t close) {
  const int depth = tokens[open].depth + 1;
  for (size_t i = open + 1; i < close; ++i) {
    if (tokens[i].depth != depth) continue;
    if (i + 3 == close && Follow(tokens, i, {"ROWS", "CURRENT", "ROW"})) return absl::OkStatus();
    if (Follow(tokens, i, {"EXCLUDE", "NO", "OTHERS"})) {
      return WrongFrame("with EXCLUDE, even NO OTHERS, SQLite asks for no row's answer");
    }
    if (!Follow(tokens, i, {"ROWS", "BETWEEN", "CURRENT", "ROW", "AND"})) continue;
    if (tokens[close - 1].Is("FOLLOWING")) return absl::OkStatus();
    if (i + 7 == close && Follow(tokens, i + 5, {"CURRENT", "ROW"})) return absl::OkStatus();
  }
  for (size_t i = open + 1; i < close; ++i) {
    if (tokens[i].depth == depth &&
        IsAny(tokens[i], {"ROWS", "RANGE", "GROUPS", "EXCLUDE", "PRECEDING"})) {
      return WrongFrame("this frame gives a row the answers of other rows");
    }
  }
  return WrongFrame("the default frame ends with the current row and its peers");
}

// OVER name: every window definition of that name, `name AS (...)`, that is no subquery.
absl::Status CheckNamed(const Tokens& tokens, const SqlToken& name) {
  absl::string_view text = name.text;
  if (name.kind == SqlToken::Kind::kQuotedName) text = text.substr(1, text.size() - 2);
  bool found = false;
  for (size_t i = 0; i + 3 < tokens.size(); ++i) {
    if (!tokens[i].Names(text) || !tokens[i + 1].Is("AS") || !tokens[i + 2].Is("(")) continue;
    if (IsAny(tokens[i + 3], {"SELECT", "WITH", "VALUES"})) continue;
    RETURN_IF_ERROR(CheckDefinition(tokens, i + 2, tokens[i + 2].match));
    found = true;
  }
  return found ? absl::OkStatus() : WrongFrame("its window is not defined here");
}

// SQLite tells a window function nothing of its frame, and computes one value for all peers of a
// RANGE or GROUPS frame, such as the default one: each of them would get the first one's answer.
// Whether the statement calls `function`. InvalidArgument, with the frame to write, unless every
// call has a frame that begins with the current row and then goes forward by ROWS, and no FILTER.
absl::StatusOr<bool> CheckFrames(const Tokens& tokens, absl::string_view function) {
  bool calls = false;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (!tokens[i].Names(function) || !tokens[i + 1].Is("(")) continue;
    calls = true;
    const size_t after = tokens[i + 1].match + 1;
    if (after >= tokens.size()) return WrongFrame("it is called without OVER");
    if (tokens[after].Is("FILTER")) return WrongFrame("FILTER leaves rows out of the frame");
    if (!tokens[after].Is("OVER") || after + 1 >= tokens.size()) {
      return WrongFrame("it is called without OVER");
    }
    const SqlToken& window = tokens[after + 1];
    RETURN_IF_ERROR(window.Is("(") ? CheckDefinition(tokens, after + 1, window.match)
                                   : CheckNamed(tokens, window));
  }
  return calls;
}

constexpr char kName[] = "lm_map";

// A view or trigger of temp: no others may call it.
struct Stored {
  bool trigger = false;
  std::string name, table, sql;
  bool reached = false;

  bool IsNamedIn(const Tokens& tokens) const {
    return std::any_of(tokens.begin(), tokens.end(), [this](const SqlToken& token) {
      return token.Names(name) || token.Names(table);
    });
  }
};

absl::StatusOr<std::vector<Stored>> StoredInTemp(sqlite3* db) {
  std::vector<Stored> all;
  ASSIGN_OR_RETURN(
      Statement rows,
      Statement::Prepare(db,
                         "SELECT type = 'trigger', name, tbl_name, sql FROM sqlite_temp_master "
                         "WHERE type IN ('view', 'trigger')"));
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, rows.Step());
    if (!row) return all;
    Stored stored;
    stored.trigger = rows.Integer(0) != 0;
    ASSIGN_OR_RETURN(stored.name, rows.Text(1));
    ASSIGN_OR_RETURN(stored.table, rows.Text(2));
    ASSIGN_OR_RETURN(stored.sql, rows.Text(3));
    all.push_back(std::move(stored));
  }
}

// CheckFrames of the texts and of all that they lead to.
absl::StatusOr<bool> CheckAll(std::vector<std::string> texts, std::vector<Stored>* stored) {
  bool found = false;
  while (!texts.empty()) {
    const std::string text = std::move(texts.back());
    texts.pop_back();
    const Tokens tokens = SqlTokens(text);
    ASSIGN_OR_RETURN(const bool calls, CheckFrames(tokens, kName));
    found = found || calls;
    for (Stored& one : *stored) {
      if (one.reached || !one.IsNamedIn(tokens)) continue;
      one.reached = true;
      texts.push_back(one.sql);
    }
  }
  return found;
}

// The statements that run, and the views and triggers of temp that they lead to.
absl::Status CheckCallers(sqlite3* db) {
  std::vector<std::string> texts;
  for (sqlite3_stmt* statement : BusyStatements(db)) texts.push_back(sqlite3_sql(statement));
  std::vector<Stored> stored;
  absl::StatusOr<std::vector<Stored>> in_temp = StoredInTemp(db);
  if (EndsStatementAround(in_temp.status())) return in_temp.status();
  if (in_temp.ok()) stored = *std::move(in_temp);
  ASSIGN_OR_RETURN(const bool called, CheckAll(std::move(texts), &stored));
  if (called) return absl::OkStatus();
  RETURN_IF_ERROR(in_temp.status());
  // A trigger of a table to which a trigger of the file, or a foreign key, leads.
  std::vector<std::string> others;
  for (Stored& one : stored) {
    if (one.trigger && !std::exchange(one.reached, true)) others.push_back(one.sql);
  }
  ASSIGN_OR_RETURN(const bool called_there, CheckAll(std::move(others), &stored));
  return called_there ? absl::OkStatus() : WrongFrame("the text that calls it is not known");
}

// The rows of one partition that are in the frame.
class MapWindow {
 public:
  absl::Status Step(Call& row) {
    if (num_steps_++ == 0) RETURN_IF_ERROR(CheckCallers(row.connection().db()));
    ASSIGN_OR_RETURN(RowPrompt prompt, ReadRow(row));
    not_pushed_.push_back(std::move(prompt));
    PushMore();
    return absl::OkStatus();
  }

  absl::Status Value(Call& call) {
    if (num_values_++ != num_inverses_ || queue_.empty()) {
      return WrongFrame("this frame does not begin with the current row");
    }
    PushMore();
    RETURN_IF_ERROR(queue_.AwaitFront(call.connection().db()));
    return OfRow(num_values_, ResultAnswer(call.context(), queue_.front_row()));
  }

  // Of an aggregate without a frame, or of a frame that SQLite computes anew for each row
  // (EXCLUDE), it asks for nothing before the end.
  absl::Status CheckEnd() const {
    if (num_steps_ == 0 || num_values_ > 0) return absl::OkStatus();
    return WrongFrame("no row asked for an answer of its own");
  }

  // The statement's record: a value is asked for without auxiliary data.
  std::shared_ptr<RunningWork>* work() { return &work_; }

  absl::Status Inverse() {
    if (++num_inverses_ > num_values_ || queue_.empty()) {
      return WrongFrame("this frame does not begin with the current row");
    }
    queue_.Pop();
    return absl::OkStatus();
  }

 private:
  void PushMore() {
    while (!not_pushed_.empty() && queue_.HasRoom()) {
      queue_.Push(std::move(not_pushed_.front()));
      not_pushed_.pop_front();
    }
  }

  AnswerQueue queue_;
  std::deque<RowPrompt> not_pushed_;  // beyond the queue's room: a frame may be a whole table
  std::shared_ptr<RunningWork> work_;
  int64_t num_steps_ = 0;
  int64_t num_values_ = 0;
  int64_t num_inverses_ = 0;
};

// SQLite's memory for a partition, zeroed at first.
MapWindow** WindowOf(sqlite3_context* context, bool create) {
  return static_cast<MapWindow**>(
      sqlite3_aggregate_context(context, create ? sizeof(MapWindow*) : 0));
}

template <typename Body>
void Run(sqlite3_context* context, Body&& body) noexcept {
  auto* self = static_cast<ScalarFunction*>(sqlite3_user_data(context));
  MapWindow** window = WindowOf(context, true);
  if (window == nullptr) return sqlite3_result_error_nomem(context);
  absl::Status status = RunForStatement(
      *self->connection, self->name,
      [window](bool) { return *window != nullptr ? (*window)->work() : nullptr; },
      [&]() -> absl::Status {
        if (*window == nullptr) *window = new MapWindow();
        return body(**window, self->connection);
      });
  if (!status.ok()) ResultError(context, self->name, status);
}

void Step(sqlite3_context* context, int num_args, sqlite3_value** args) noexcept {
  Run(context, [&](MapWindow& window, const std::shared_ptr<Connection>& connection) {
    Call call(context, connection, num_args, args);
    return window.Step(call);
  });
}

void Value(sqlite3_context* context) noexcept {
  Run(context, [&](MapWindow& window, const std::shared_ptr<Connection>& connection) {
    Call call(context, connection, 0, nullptr);
    return window.Value(call);
  });
}

void Inverse(sqlite3_context* context, int, sqlite3_value**) noexcept {
  Run(context, [](MapWindow& window, const auto&) { return window.Inverse(); });
}

void Final(sqlite3_context* context) noexcept {
  MapWindow** window = WindowOf(context, false);
  if (window == nullptr) {
    const absl::Status status =
        Guarded([] { return WrongFrame("not even the row itself is in this frame"); });
    return ResultError(context, kName, status);
  }
  if (*window == nullptr) return;
  const std::unique_ptr<MapWindow> over(std::exchange(*window, nullptr));
  const absl::Status status = Guarded([&] { return over->CheckEnd(); });
  if (!status.ok()) ResultError(context, kName, status);
}

}  // namespace

int RegisterMap(const std::shared_ptr<Connection>& connection) {
  for (int num_args = 1; num_args <= 3; ++num_args) {
    auto* data = new (std::nothrow) ScalarFunction{kName, connection, true};
    if (data == nullptr) return SQLITE_NOMEM;
    int code = sqlite3_create_window_function(
        connection->db(), kName, num_args, SQLITE_UTF8 | kDirectOnly | kReturnsJson, data, Step,
        Final, Value, Inverse, [](void* p) { delete static_cast<ScalarFunction*>(p); });
    if (code != SQLITE_OK) return code;
  }
  return SQLITE_OK;
}

}  // namespace lm

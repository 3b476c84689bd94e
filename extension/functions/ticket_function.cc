// lm_submit(prompt [, system [, options]])   INTEGER: a ticket for the answer, at once
// lm_await(ticket)                            TEXT: the answer
//
//   WITH asked AS MATERIALIZED (
//     SELECT id, lm_submit(body, 'Label the review.') AS ticket FROM reviews)
//   SELECT id, lm_await(ticket) FROM asked;
//
// A MATERIALIZED CTE is computed as a whole before its first row is used: all rows are submitted,
// and decode together, before one is waited for. Without MATERIALIZED, SQLite submits and awaits
// row by row, which is generate() with more words.
//
// A ticket belongs to its statement and is gone when that ends; answers that have not been awaited
// by then are cancelled. A connection may have 100,000 tickets at a time, and 256 MiB of prompts in
// them: for more rows there is lm_query. A ticket can be awaited more than once. lm_await gives
// what generate() would have given: an error, with the number of the submitted row, or NULL or a
// JSON object where lm_submit's options ask for it. NULL prompts have the ticket NULL, whose answer
// is NULL.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/batch_state.h"
#include "extension/batch/pending_answer.h"
#include "extension/batch/row_prompt.h"
#include "extension/binding/scalar_function.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

// The tickets of a statement, withdrawn when it is reset: auxiliary data with a negative index,
// which is any number that no other extension hits on.
constexpr int kTicketsIndex = -0x6c6d31;

struct StatementTickets {
  std::shared_ptr<Connection> connection;
  std::vector<int64_t> issued;

  ~StatementTickets() { BatchOf(*connection).tickets.Withdraw(issued); }
};

absl::Status Submit(Call& call) {
  ASSIGN_OR_RETURN(RowPrompt row, ReadRow(call));
  if (row.prompt.ok() && !row.prompt->has_value()) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  auto* tickets =
      static_cast<StatementTickets*>(sqlite3_get_auxdata(call.context(), kTicketsIndex));
  if (tickets == nullptr) {
    auto first = std::make_unique<StatementTickets>();
    first->connection = call.shared_connection();
    sqlite3_set_auxdata(call.context(), kTicketsIndex, first.release(),
                        [](void* data) { delete static_cast<StatementTickets*>(data); });
    // Null where there was no memory for it: then `first` is deleted.
    tickets = static_cast<StatementTickets*>(sqlite3_get_auxdata(call.context(), kTicketsIndex));
    if (tickets == nullptr) return absl::ResourceExhaustedError("out of memory");
  }
  tickets->issued.push_back(0);
  ASSIGN_OR_RETURN(tickets->issued.back(),
                   BatchOf(call.connection()).tickets.Issue(std::move(row)));
  sqlite3_result_int64(call.context(), tickets->issued.back());
  return absl::OkStatus();
}

// Which of its statement's rows a ticket is of: NULL prompts have none, and are not counted.
// nullopt for a ticket of another statement.
std::optional<int64_t> RowOf(const Call& call, int64_t ticket) {
  const auto* tickets =
      static_cast<const StatementTickets*>(sqlite3_get_auxdata(call.context(), kTicketsIndex));
  if (tickets == nullptr) return std::nullopt;
  const auto found = std::find(tickets->issued.begin(), tickets->issued.end(), ticket);
  if (found == tickets->issued.end()) return std::nullopt;
  return found - tickets->issued.begin() + 1;
}

absl::Status AwaitTicket(Call& call) {
  sqlite3_value* argument = call.value(0);
  const int type = sqlite3_value_type(argument);
  if (type == SQLITE_NULL) {
    sqlite3_result_null(call.context());
    return absl::OkStatus();
  }
  if (type != SQLITE_INTEGER) {
    return absl::InvalidArgumentError(
        absl::StrCat("ticket must be an integer from lm_submit(), got ", ShownValue(argument)));
  }
  Tickets& tickets = BatchOf(call.connection()).tickets;
  PendingAnswer* pending = tickets.Find(sqlite3_value_int64(argument));
  if (pending == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no ticket ", sqlite3_value_int64(argument),
                     "; a ticket of lm_submit() is good until its statement ends"));
  }
  tickets.SubmitMore();
  RETURN_IF_ERROR(pending->Await(call.connection().db()));
  const absl::Status status = ResultAnswer(call.context(), *pending);
  if (status.ok()) return status;
  const std::optional<int64_t> row = RowOf(call, sqlite3_value_int64(argument));
  return row.has_value() ? OfRow(*row, status) : status;
}

}  // namespace

int RegisterTickets(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&Submit>(connection, {"lm_submit", 1, 3, kDirectOnly});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&AwaitTicket>(connection, {"lm_await", 1, 1, kDirectOnly | kReturnsJson});
}

}  // namespace lm

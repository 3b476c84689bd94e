// lm_stream(prompt [, system [, options]]): an answer as it is made, one row a token
//   -> piece, token, logprob, ms
//
//   SELECT piece FROM lm_stream('Tell me a story.');          -- rows appear as they are produced
//   SELECT piece FROM lm_stream('Tell me a story.') LIMIT 20;               -- and then it stops
//   SELECT group_concat(piece, '') FROM lm_stream('Hello.');          -- what generate() returns
//   SELECT piece, exp(logprob) AS p, ms - lag(ms, 1, 0) OVER () AS took
//     FROM lm_stream('Hello.');
//
// piece is the text that has become certain with this token: whole characters only, so that it is
// empty where a token ends within one, or where the text may yet become a stop string. logprob is
// the natural logarithm of the probability that the model gave the token, NULL where a constraint
// left no choice and the model was not asked; only where a statement names it all logits are read.
// ms is the milliseconds from the call to the token, the first row's the time to first token.
//
// A row is there before the next token is computed; when the statement ends early (LIMIT, reset, an
// interrupt), so does the generation. Where text was held back to the end, a last row without a
// token (token and logprob NULL) brings it. prompt NULL gives no rows. A failure ends the statement
// with an error; with {"on_error":"null"} a last row of NULLs says that the answer is not whole,
// with {"on_error":"json"} that row's piece is the object of lm_try.
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/fork_guard.h"
#include "extension/batch/row_answer.h"
#include "extension/binding/table_function.h"
#include "extension/connection/await.h"
#include "extension/connection/own_options.h"
#include "extension/connection/spending_share.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class StreamCursor : public TableCursor {
 public:
  enum Column { kPiece, kToken, kLogprob, kMs };

  using TableCursor::TableCursor;
  ~StreamCursor() override { Abandon(); }

  absl::Status Filter(const TableArguments& args) override {
    Abandon();
    row_.reset();
    rowid_ = num_tokens_ = 0;
    absl::StatusOr<std::optional<std::string>> prompt = args.Text(0);
    if (prompt.ok() && !prompt->has_value()) return absl::OkStatus();
    absl::StatusOr<std::optional<std::string>> system = args.Text(1);
    if (system.ok() && system->has_value()) RETURN_IF_ERROR(CheckNotOptions(**system, "system"));
    ASSIGN_OR_RETURN(std::optional<std::string> json, args.Text(2));
    ASSIGN_OR_RETURN(options_,
                     ReadCallOptions(json, connection(), {.priority = Priority::kInteractive}));
    absl::Status refused = prompt.status();
    refused.Update(system.status());
    if (refused.ok()) {
      refused = Submit({.prompt = **prompt,
                        .system = options_.SystemOf(*system),
                        .options = options_.generation,
                        .stream = true,
                        .wants_logprob = args.Uses(kLogprob)});
    }
    if (refused.ok()) return Advance();
    Generation failed;
    failed.status = std::move(refused);
    return Fail(failed);
  }

  bool AtEnd() const override { return !row_.has_value(); }

  absl::Status Next() override {
    ++rowid_;
    row_.reset();
    return request_ != nullptr ? Advance() : absl::OkStatus();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    const bool has_token = row_->token.token >= 0;
    if (column == kPiece && row_->failure_json) {
      ResultJson(context, row_->token.piece);
    } else if (column == kPiece && !row_->failed) {
      ResultText(context, row_->token.piece);
    } else if (column == kToken && has_token) {
      sqlite3_result_int(context, row_->token.token);
    } else if (column == kLogprob && has_token) {
      sqlite3_result_double(context, row_->token.logprob);
    } else if (column == kMs && !row_->failed) {
      sqlite3_result_double(context, absl::ToDoubleMilliseconds(row_->token.since_submission));
    }
    return absl::OkStatus();
  }

  int64_t rowid() const override { return rowid_; }

 private:
  struct Row {
    StreamedToken token = {};
    bool failed = false;        // the last row of an answer that is not whole
    bool failure_json = false;  // and its piece says why
  };

  void Abandon() {
    if (request_ != nullptr) request_->Cancel();
    request_.reset();
    share_.Abandon(num_tokens_);
  }

  absl::Status Submit(const TextRequest& asked) {
    auto submit = [&asked](const Session& session) { return session.Submit(asked); };
    ASSIGN_OR_RETURN(request_, SpendingShare::Submit(options_, submit, &share_));
    return absl::OkStatus();
  }

  // Waits for the next row, or for the end.
  absl::Status Advance() {
    if (fork_guard_.forked()) return ForkGuard::Error();
    RETURN_IF_ERROR(AwaitToken(connection().db(), *request_));
    if (std::optional<StreamedToken> token = request_->TakeToken()) {
      if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
        work->CountAnswer(/*ok=*/true, token->token >= 0 ? 1 : 0);
      }
      num_tokens_ += token->token >= 0 ? 1 : 0;
      row_ = Row{.token = *std::move(token)};
      return absl::OkStatus();
    }
    const std::shared_ptr<Request> request = std::move(request_);
    share_.Settle(request->result());
    return request->result().status.ok() ? absl::OkStatus() : Fail(request->result());
  }

  // What on_error makes of an answer that failed.
  absl::Status Fail(const Generation& generation) {
    if (options_.generation.on_error == OnError::kError) return GenerationStatus(generation);
    row_ = Row{.failed = true};
    if (options_.generation.on_error == OnError::kJson) {
      row_->failure_json = true;
      row_->token.piece = GenerationJson(generation);
    }
    return absl::OkStatus();
  }

  const ForkGuard fork_guard_;
  CallOptions options_;
  std::shared_ptr<Request> request_;  // null: no more tokens come
  SpendingShare share_;
  int64_t num_tokens_ = 0;  // of the answer, so far
  std::optional<Row> row_;
  int64_t rowid_ = 0;
};

constexpr TableFunctionSpec kStreamSpec = {
    .name = "lm_stream",
    .columns = "piece TEXT, token INTEGER, logprob REAL, ms REAL",
    .num_columns = 4,
    .arguments = {"prompt", "system", "options"},
    .missing = "a prompt is missing: lm_stream(prompt)",
    .open = &MakeCursor<StreamCursor>,
};

}  // namespace

int RegisterStream(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kStreamSpec);
}

}  // namespace lm

// lm_each(prompts [, system [, options]]): many prompts, answered together
//   -> key, value, error, finish, tokens_in, tokens_cached, tokens_out
//
//   SELECT key, value FROM lm_each('["Name a colour.", "Name an animal."]');
//
//   -- A whole table, joined back to its rows.
//   WITH batch AS MATERIALIZED (SELECT row_number() OVER () - 1 AS key, id, body FROM notes)
//   SELECT batch.id, answer.value, answer.error
//     FROM lm_each((SELECT json_group_array(body) FROM (SELECT body FROM batch ORDER BY key)),
//                  'Summarise in one sentence.') AS answer JOIN batch USING (key);
//
// All prompts are submitted at once and decode in one batch, which reads the model's weights once
// for all of them: for more than a few rows this is the quick way. (256 at first, and up to 4096
// later, in the order of their texts, so that what they begin with alike is computed once.)
// `prompts` is a JSON array of strings; key is a prompt's index in it. Rows come in that order,
// each as soon as it and those before it are done; a LIMIT cancels the rest.
//
// A null has the value NULL. A prompt that fails has the value NULL and says why in `error`, and
// the others go on; {"on_error":"error"} ends the statement instead, {"on_error":"json"} puts the
// object of lm_try into `value`. An element that is neither a string nor a number nor null is an
// error of the whole call, which names its index. prompts NULL gives no rows.
//
// Within a join or a correlated subquery, scans with the same arguments have the rows of the first
// one, which are asked about once (passed_answers.h).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/flat_array.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/passed_answers.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class EachCursor : public TableCursor {
 public:
  enum Column { kKey, kAnswer };

  using TableCursor::TableCursor;

  // Sets the first prompts on their way; the others follow as answers come.
  absl::Status Filter(const TableArguments& args) override {
    queue_.emplace();
    prompts_.clear();
    pushed_ = index_ = 0;
    passed_.Begin(connection().db());
    window_ = kFirstWindow;
    ASSIGN_OR_RETURN(std::optional<std::string> prompts, args.Text(0));
    ASSIGN_OR_RETURN(std::optional<std::string> system, args.Text(1));
    ASSIGN_OR_RETURN(std::optional<std::string> json, args.Text(2));
    if (!prompts.has_value()) return absl::OkStatus();
    if (system.has_value()) RETURN_IF_ERROR(CheckNotOptions(*system, "system"));
    system_ = std::move(system);
    ASSIGN_OR_RETURN(CallOptions options,
                     ReadCallOptions(json, connection(), {.on_error = OnError::kNull}));
    options_ = std::make_shared<const CallOptions>(std::move(options));
    RETURN_IF_ERROR(ReadPrompts(*prompts));
    if (const std::shared_ptr<RunningWork> work = StatementCall::Work()) {
      work->AnnounceRows(static_cast<int64_t>(prompts_.size()));
    }
    PushMore();
    return AwaitCurrent();
  }

  bool can_rewind() const override { return passed_.CanRewind(); }
  void Rewind() override { passed_.Rewind(); }

  bool AtEnd() const override { return passed_.current() == nullptr && index_ >= prompts_.size(); }

  absl::Status Next() override {
    if (passed_.Next()) return absl::OkStatus();
    passed_.Add(rowid(), nullptr, queue_->front());
    queue_->Pop();
    ++index_;
    PushMore();
    return AwaitCurrent();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    if (column == kKey) {
      sqlite3_result_int64(context, rowid());
    } else {
      const PassedAnswer* passed = passed_.current();
      ResultAnswerColumn(context, passed != nullptr ? passed->answer : queue_->front(),
                         column - kAnswer, options_->generation);
    }
    return absl::OkStatus();
  }

  int64_t rowid() const override {
    const PassedAnswer* passed = passed_.current();
    return passed != nullptr ? passed->number : static_cast<int64_t>(index_);
  }

 private:
  static constexpr size_t kFirstWindow = Generator::kMostUnderWay;
  static constexpr size_t kMostWindow = 4096;
  static constexpr size_t kMostWindowBytes = 16 << 20;  // of prompts

  OnError on_error() const { return options_->generation.on_error; }

  absl::Status ReadPrompts(absl::string_view json) {
    constexpr absl::string_view kWanted = "a string or null";
    std::vector<std::optional<std::string>> prompts;
    RETURN_IF_ERROR(ReadFlatArray(
        json, "prompts", kWanted, [&](int64_t index, ArrayElement element) -> absl::Status {
          if (element.kind == ArrayElement::Kind::kBool) {
            return absl::InvalidArgumentError(
                absl::StrCat("prompts[", index, "] must be ", kWanted, ", got ", element.text));
          }
          prompts.emplace_back();
          if (element.kind != ArrayElement::Kind::kNull) prompts.back() = std::move(element.text);
          return absl::OkStatus();
        }));
    prompts_ = std::move(prompts);
    return absl::OkStatus();
  }

  // A window at a time, each twice as large, so that the first answers come soon.
  void PushMore() {
    while (pushed_ < prompts_.size() && queue_->HasRoom()) {
      std::vector<RowPrompt> rows;
      size_t bytes = 0;
      for (; pushed_ < prompts_.size() && rows.size() < window_ && bytes < kMostWindowBytes;
           ++pushed_) {
        std::optional<std::string> prompt = std::move(prompts_[pushed_]);
        absl::Status bad = prompt.has_value() ? CheckText(*prompt, "prompt") : absl::OkStatus();
        if (prompt.has_value()) bytes += prompt->size();
        rows.push_back({.prompt = std::move(prompt), .system = system_, .options = options_});
        if (!bad.ok()) rows.back().prompt = std::move(bad);
      }
      queue_->PushTogether(std::move(rows));
      window_ = std::min(2 * window_, kMostWindow);
    }
  }

  // Waits for the row the cursor stands on, and applies on_error 'error'.
  absl::Status AwaitCurrent() {
    if (AtEnd()) return absl::OkStatus();
    RETURN_IF_ERROR(queue_->AwaitFront(connection().db()));
    const RowAnswer& answer = queue_->front();
    const absl::Status& status = answer.generation.status;
    if (answer.null_prompt || status.ok() || on_error() != OnError::kError) return absl::OkStatus();
    return absl::Status(status.code(), absl::StrCat("prompts[", index_, "]: ", status.message()));
  }

  std::optional<std::string> system_;
  std::shared_ptr<const CallOptions> options_;
  std::vector<std::optional<std::string>> prompts_;  // taken away when they are pushed
  size_t pushed_ = 0;                                // prompts_[0, pushed_) are
  size_t window_ = kFirstWindow;                     // rows that are pushed together
  PassedAnswers passed_;
  size_t index_ = 0;                  // of the first row that is not passed yet
  std::optional<AnswerQueue> queue_;  // prompts_[index_, pushed_)
};

constexpr TableFunctionSpec kEachSpec = {
    .name = "lm_each",
    .columns =
        "key INTEGER, value TEXT, error TEXT, finish TEXT, tokens_in INTEGER, "
        "tokens_cached INTEGER, tokens_out INTEGER",
    .num_columns = 1 + kNumAnswerColumns,
    .arguments = {"prompts", "system", "options"},
    .missing = "a JSON array of prompts is missing: lm_each(prompts)",
    .ascending = EachCursor::kKey,
    .open = &MakeCursor<EachCursor>};

}  // namespace

int RegisterEach(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kEachSpec);
}

}  // namespace lm

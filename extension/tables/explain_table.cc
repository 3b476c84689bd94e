// lm_explain(select_sql [, options]): what a query would ask of the model; nothing is generated,
// but for a sample that one asks for
//   -> model, rows, prompts, tokens, tokens_shared, answer_tokens, prefill_seconds, decode_seconds,
//      seconds, basis, cost_in, cost_out, tokens_shared_ordered, field_order, tokens_stored
//
//   SELECT * FROM lm_explain('SELECT id, generate(body, ''Label it.'') FROM reviews');
//   SELECT rows, tokens, seconds FROM lm_explain('SELECT id, body, ''Label it.'' FROM reviews');
//   SELECT rows, seconds
//     FROM lm_explain('UPDATE reviews SET label = generate(body, ''Label it.'')');
//
// The query is run to its end, with every call that would generate answered at once: by an empty
// text, the first label (lm_classify, choices), JSON's null (generate_json, lm_extract, a schema),
// 0 (lm_if), 0.5 (lm_score) or zeros (lm_embed, lm_logprobs). Each is a row counted. A query
// without such a call is read as lm_query reads it: its columns are id, prompt and perhaps system,
// and `options` are the options of those prompts; what lm_query would refuse is refused. Of an
// UPDATE, DELETE or INSERT the rows are read, and nothing is written. Anything else that could
// write is refused (lm_run too), and so are parameters. A query that goes on differently for other
// answers (WHERE generate(...) = 'yes') is counted as it goes on with these ones.
//
// A row for each model: rows asked for, different prompts (equal ones are generated once, where
// their options are equal to the memo; without it, with {"cache":false} say, each time), their
// tokens, and how many of these are in a prefix that another prompt has too and need not be
// computed again; tokens_stored, how many of the others lm_settings('prefix_store') has, to be read
// instead of computed. answer_tokens is what the answers will take: those without a constraint are
// as long as this engine's without one were until now (the tokens of all of them, for each that
// came to its end by itself, once three have), the others have max_tokens, which is also the most
// that is counted for one (of choices, the longest). Choices that are only weighed, as lm_if does,
// count so, too: their answers have these tokens, though they take no decode step and no seconds.
//
// Seconds come from the engine's own past, where basis is 'measured': the share of this machine's
// arithmetic and bandwidth (lm_stats has the percentages) that it has reached in prefill and in
// decode, applied to these tokens, with up to 64 rows decoding together. An engine that has done
// too little to tell (256 tokens of prefill, 16 steps of decoding) is taken to reach 40% of the
// ceilings: basis is 'ceilings'. On a GPU there are no measured ceilings: without a past, NULL.
// Rows are taken to be submitted together, as lm_query, lm_each and lm_map do.
//
// With {"sample":32}, 32 of the prompts, chosen from all of them, are indeed asked, together, and
// the forecast is made of what they took: of their answers' length, their time in prefill and
// decode, and what else there was; basis is 'sample'. The memo keeps the sample's answers (unless
// {"cache":false}), and seconds, costs and answer_tokens are of what is then left to generate.
// max_seconds (of the whole lm_explain), max_total_tokens and max_cost beside it bound what the
// sample may take; what a call's own budgets do not reach for is not asked, either. Prompts that
// had no answer are left out of the sample; where none had one, the first failure is the error. Any
// other option beside calls that generate is an error: it belongs in the calls.
//
// A model on the network has no seconds without a sample; basis says whether its tokens were
// counted ('tokens': lm_models' option tokenizer) or guessed at four bytes each ('guessed tokens').
// cost_in and cost_out are what prompts and answers come to at its price_in and price_out; else
// NULL. A model of this machine may have prices, too (lm_models).
//
// Where prompts are lm_prompt()'s and their template has a {{*}}, field_order is the order of those
// fields (a JSON array; with several templates an object, template -> array) that makes the rows
// share most, as lm_field_order() finds it, and tokens_shared_ordered how many tokens would then be
// in a prefix that another prompt has too: the statement is counted once more with it. Elsewhere
// both are NULL.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/cost_forecast.h"
#include "engine/runtime/engine.h"
#include "extension/batch/shadow_text.h"
#include "extension/binding/table_function.h"
#include "extension/connection/await.h"
#include "extension/connection/own_options.h"
#include "extension/connection/statement_call.h"
#include "extension/host/given_statement.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/explain_sample.h"
#include "extension/tables/tables.h"
#include "extension/tables/token_cost.h"

namespace lm {
namespace {

constexpr int64_t kMostSampled = 1000;

// Lets a connection's models and lm_prompt only take note, as long as it lives.
class CountOnly {
 public:
  CountOnly(Connection& connection, PromptTally* tally, FieldCensus* census)
      : connection_(connection), before_(connection.tally()), census_(connection.field_census()) {
    connection_.set_tally(tally);
    connection_.set_field_census(census);
  }
  ~CountOnly() {
    connection_.set_tally(before_);
    connection_.set_field_census(census_);
  }
  CountOnly(const CountOnly&) = delete;
  CountOnly& operator=(const CountOnly&) = delete;

 private:
  Connection& connection_;
  PromptTally* const before_;  // of an lm_explain() around this one
  FieldCensus* const census_;
};

class ExplainCursor : public TableCursor {
 public:
  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    at_ = 0;
    rows_.clear();
    ASSIGN_OR_RETURN(std::optional<std::string> sql, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    if (!sql.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        const OwnOptions own,
        OwnOptions::TakeOfCall(json, {"sample", "max_seconds", "max_total_tokens", "max_cost"}));
    ASSIGN_OR_RETURN(const int64_t sample, own.Integer("sample", 0, 0, kMostSampled));
    ASSIGN_OR_RETURN(const SampleLimits limits, ReadLimits(own));
    PromptTally calls, columns;
    // Under another lm_explain() nothing is asked at all.
    if (!connection().only_counts()) {
      calls.set_sample(static_cast<size_t>(sample));
      columns.set_sample(static_cast<size_t>(sample));
    }
    // From here on max_seconds are counted.
    if (limits.max_seconds > 0) StatementCall::Work();
    FieldCensus census;
    RETURN_IF_ERROR(RunQuery(*sql, own.rest(), &census, &calls, &columns));
    if (!calls.empty()) RETURN_IF_ERROR(CheckNoneOfPrompts(own));
    const PromptTally& tally = calls.empty() ? columns : calls;
    Cell field_order;
    std::vector<PromptTally::Totals> ordered;
    if (!census.empty()) {
      field_order = OrderFields(&census);
      PromptTally ordered_calls, ordered_columns;
      RETURN_IF_ERROR(RunQuery(*sql, own.rest(), &census, &ordered_calls, &ordered_columns));
      ordered = (ordered_calls.empty() ? ordered_columns : ordered_calls).Count();
    }
    for (const PromptTally::Totals& totals : tally.Count()) {
      ASSIGN_OR_RETURN(std::vector<Cell> cells, CellsOf(totals, limits));
      cells.push_back(SharedBy(ordered, totals.generator));
      cells.push_back(cells.back().index() == 0 ? Cell() : field_order);
      cells.push_back(totals.tokens_stored);
      rows_.push_back(std::move(cells));
    }
    return absl::OkStatus();
  }

  bool AtEnd() const override { return at_ >= rows_.size(); }

  absl::Status Next() override {
    ++at_;
    return absl::OkStatus();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    ResultCell(context, rows_[at_][column]);
    return absl::OkStatus();
  }

  int64_t rowid() const override { return static_cast<int64_t>(at_); }

 private:
  // Counts what the statement's calls ask for, or, where it has none, its rows as prompts.
  absl::Status RunQuery(const std::string& sql, const std::optional<std::string>& json,
                        FieldCensus* census, PromptTally* calls, PromptTally* columns) {
    bool change = false;
    ASSIGN_OR_RETURN(Statement select, PrepareCounted(sql, &change));
    ASSIGN_OR_RETURN(const CallOptions options, ReadCallOptions(json, connection()));
    Session session = options.session();
    session.set_tally(columns);
    const CountOnly count_only(connection(), calls, census);
    const int num_columns = sqlite3_column_count(select.get());
    const bool prompts = !change && (num_columns == 2 || num_columns == 3);
    bool values = false;  // that are no prompts
    for (int64_t row = 1;; ++row) {
      ASSIGN_OR_RETURN(const bool has_row, select.Step());
      if (!has_row) break;
      values = values || !select.IsNull(0);
      if (prompts && calls->empty()) RETURN_IF_ERROR(TakePrompt(select, row, session, options));
    }
    if (prompts || !values || !calls->empty()) return absl::OkStatus();
    if (change && CallsGenerate(sql)) {
      return absl::InvalidArgumentError(
          "what this statement asks cannot be told before it has written: explain a SELECT that "
          "asks the same");
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "select_sql must call a function that generates, or have the columns id, prompt or id, "
        "prompt, system, as for lm_query; got ",
        change ? std::string("a statement that writes") : absl::StrCat(num_columns, " columns")));
  }

  // Has each template's fields from now on in the order that shares most, and says which that is.
  static std::string OrderFields(FieldCensus* census) {
    Json by_template = Json::MakeObject();
    Json names;
    for (auto& [text, form] : *census) {
      form.order = form.fields.Best().names;
      names = Json::MakeArray();
      for (const std::string& name : *form.order) names.Append(name);
      by_template.Add(text, names);
    }
    return census->size() == 1 ? names.Dump() : by_template.Dump();
  }

  // NULL where nothing was ordered.
  static Cell SharedBy(const std::vector<PromptTally::Totals>& ordered,
                       const std::shared_ptr<Generator>& generator) {
    for (const PromptTally::Totals& totals : ordered) {
      if (totals.generator == generator) return totals.tokens_shared;
    }
    return Cell();
  }

  // A SELECT, or one of the rows that a statement writes.
  absl::StatusOr<Statement> PrepareCounted(const std::string& sql, bool* change) {
    sqlite3* db = connection().db();
    absl::StatusOr<Statement> given = PrepareGivenChange(db, sql);
    *change = given.ok();
    if (absl::IsInvalidArgument(given.status()) && !TargetOf(sql).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("select_sql ", given.status().message()));
    }
    if (!given.ok()) return PrepareSelectArgument(db, sql, "select_sql");
    if (sqlite3_bind_parameter_count(given->get()) > 0) {
      return absl::InvalidArgumentError(
          "select_sql must have no parameters: write their values "
          "into it (format('%Q', ...))");
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> rows, ShadowsOf(sql));
    // The first has the most of its calls.
    for (const std::string& row : rows) {
      absl::StatusOr<Statement> select = PrepareSelectArgument(db, row, "select_sql");
      if (select.ok()) return select;
    }
    return absl::InvalidArgumentError(
        "the rows of this statement cannot be told from its text: explain a SELECT of them");
  }

  static absl::Status TakePrompt(const Statement& select, int64_t row, const Session& session,
                                 const CallOptions& options) {
    const int columns = sqlite3_column_count(select.get());
    auto named = [row](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat("row ", row, ": ", status.message()));
    };
    absl::StatusOr<std::optional<std::string>> prompt = select.CheckedText(1, "prompt");
    if (!prompt.ok()) return named(prompt.status());
    if (!prompt->has_value()) return absl::OkStatus();
    absl::StatusOr<std::optional<std::string>> system;
    system = std::optional<std::string>();
    if (columns == 3) system = select.CheckedText(2, "system");
    if (!system.ok()) return named(system.status());
    absl::Status taken =
        session.Submit(**prompt, options.SystemOf(*system), options.generation).status();
    return taken.ok() ? taken : named(taken);
  }

  static absl::StatusOr<SampleLimits> ReadLimits(const OwnOptions& own) {
    SampleLimits limits;
    ASSIGN_OR_RETURN(const std::optional<double> seconds, own.Amount("max_seconds"));
    ASSIGN_OR_RETURN(const std::optional<double> cost, own.Amount("max_cost"));
    ASSIGN_OR_RETURN(limits.max_total_tokens, own.Integer("max_total_tokens", 0, 0, INT64_MAX));
    limits.max_seconds = seconds.value_or(0);
    limits.max_cost = cost.value_or(0);
    return limits;
  }

  // Of a query whose calls say themselves how they are to be answered.
  static absl::Status CheckNoneOfPrompts(const OwnOptions& own) {
    if (!own.rest().has_value()) return absl::OkStatus();
    const std::optional<Json> object = Json::Parse(*own.rest());
    if (!object || !object->is_object() || object->size() == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "option '", object->members().front().first, "' must be written into the query: its calls ",
        "have options of their own, as their last argument; beside them lm_explain takes sample, ",
        "max_seconds, max_total_tokens and max_cost"));
  }

  absl::StatusOr<std::vector<Cell>> CellsOf(const PromptTally::Totals& totals,
                                            const SampleLimits& limits) {
    const ModelInfo& info = totals.generator->info();
    const Prices prices = connection().PricesOf(*totals.generator);
    RETURN_IF_ERROR(CheckPrices(limits.max_cost, prices));
    std::optional<MachineCeilings> ceilings;
    if (info.device == "cpu") {
      ASSIGN_OR_RETURN(ceilings, AwaitCeilings(connection().db()));
    }
    const std::shared_ptr<Engine>& engine = totals.generator->engine();
    const CostForecast forecast = Forecast(
        {.prefill_tokens = totals.tokens - totals.tokens_shared - totals.tokens_stored,
         .positions = totals.positions,
         .answers = totals.answers,
         .most_answer_tokens = totals.most_answer_tokens,
         .most_answer_positions = totals.most_answer_positions,
         .most_answer_reads = totals.most_answer_reads,
         .free_answers = totals.free_answers,
         .most_free_answer_tokens = totals.most_free_answer_tokens},
        engine != nullptr ? engine->StatsSinceLaidOut() : EngineStats(), info.cost, ceilings);
    auto seconds = [](const std::optional<absl::Duration>& d) {
      return d.has_value() ? Cell(absl::ToDoubleSeconds(*d)) : Cell();
    };
    std::optional<absl::Duration> both;
    if (forecast.prefill.has_value() && forecast.decode.has_value()) {
      both = *forecast.prefill + *forecast.decode;
    }
    std::string basis = forecast.measured ? "measured" : "ceilings";
    if (engine == nullptr) basis = totals.guessed ? "guessed tokens" : "tokens";
    SampledCost cost{.prompt_tokens = totals.tokens,
                     .answer_tokens = forecast.answer_tokens + totals.most_chosen_tokens,
                     .prefill = forecast.prefill,
                     .decode = forecast.decode,
                     .all = both};
    if (!totals.sample.empty()) {
      ASSIGN_OR_RETURN(cost, TrySample(connection(), totals, limits, ceilings));
      basis = "sample";
    }
    return std::vector<Cell>{connection().DisplayNameOf(*totals.generator),
                             totals.requests,
                             totals.prompts,
                             totals.tokens,
                             totals.tokens_shared,
                             cost.answer_tokens,
                             seconds(cost.prefill),
                             seconds(cost.decode),
                             seconds(cost.all),
                             std::move(basis),
                             TokenCost(cost.prompt_tokens, prices.in),
                             TokenCost(cost.answer_tokens, prices.out)};
  }

  std::vector<std::vector<Cell>> rows_;
  size_t at_ = 0;
};

constexpr TableFunctionSpec kExplainSpec = {
    .name = "lm_explain",
    .columns =
        "model TEXT, rows INTEGER, prompts INTEGER, tokens INTEGER, tokens_shared INTEGER, "
        "answer_tokens INTEGER, prefill_seconds REAL, decode_seconds REAL, seconds REAL, "
        "basis TEXT, cost_in REAL, cost_out REAL, tokens_shared_ordered INTEGER, "
        "field_order TEXT, tokens_stored INTEGER",
    .num_columns = 15,
    .arguments = {"select_sql", "options"},
    .missing = "a query is missing: lm_explain(select_sql)",
    .estimated_rows = 1,
    .open = &MakeCursor<ExplainCursor>,
};

}  // namespace

int RegisterExplain(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kExplainSpec);
}

}  // namespace lm

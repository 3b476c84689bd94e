// lm_stats: what each running model has done for this database, one row for each of its two phases
//
//   SELECT model, phase, requests, tokens_prefilled, tokens_reused, tokens_decoded,
//          round(tokens_per_second) AS speed FROM lm_stats;
//
//   -- How much of the prompts did the shared prefix save?
//   SELECT 100 * tokens_reused / (tokens_prefilled + tokens_reused) || '%'
//     FROM lm_stats WHERE phase = 'prefill';
//
//   -- Is it slow to start, or slow to stream?
//   SELECT max(ttft_p50_ms), max(itl_p50_ms) FROM lm_stats;
//
// Prefill reads the prompt: its tokens are computed (tokens_prefilled) or found in the prefix cache
// (tokens_reused); the time a user feels is that to the first token (ttft_*). Decode writes the
// answer: tokens_decoded, and the time between two tokens (itl_*); batch_occupancy is how many
// sequences a decode step served on average. Columns of the other phase are NULL; those of no phase
// (requests, failed, running, queued, preemptions, kv_*, memo_hits) are in both rows.
//
// What was asked is counted for each database: requests, failed, tokens_prefilled, tokens_reused,
// tokens_decoded and memo_hits are of this database's requests that have ended (of all that share
// its `salt`, see lm_settings), as lm_requests lists the last of them. The engine that serves them
// is the process's, and so are the columns that tell how it is doing, whichever database keeps it
// busy: running, queued, seconds (of model time), tokens_per_second, ttft_*, itl_*,
// batch_occupancy, preemptions, kv_bytes (the cache's size), kv_bytes_used (what running requests
// and the prefix cache hold of it), kv_bytes_cached (the prefix cache's share; this database's is
// in lm_cache), and all below.
//
// How good is that? arithmetic_percent is the phase's products with the weights per second of model
// time, against what this machine's processors can do at most; bandwidth_percent the bytes of
// weights and cache that it had to read, against what its memory gives. These ceilings are
// measured, in a quarter of a second, when a statement first asks for one of the two columns
// (lm_devices shows them); they are NULL for a model on another device than the CPU. 100 is the
// most: a model small enough for the caches is read faster than memory gives. `verdict` says what
// the model's time went to: 'prefill-bound (slow to start)': shared prefixes and shorter prompts
// help; 'decode-bound (slow to stream)': shorter answers and more rows at a time help.
//
// Tokens of an answer are guessed where that is quicker, and checked several in a step (option
// `speculate`): `drafted` were, `accepted` of them were right, and `steps_saved` says how many
// decode steps less the same rows took for it. `speculation` is 'on', with the draft model's name
// where there is one, or with the model's own layer for it.
//
// `prefix_store` says what lm_settings('prefix_store') has of this model, and what was refused or
// is wrong with it; or why it is off.
//
// A model on the network computes elsewhere, and of the engine's columns has ttft_* only. `cost` is
// what this database's tokens of the phase come to at the model's price_in or price_out (lm_models;
// one of this machine may have them, too), reused ones included: sum(cost) is the bill, as far as
// servers give no discounts.
//
// Reading loads no model; without a running one there are no rows. A model that is loaded anew, as
// with another number of threads (lm_settings), begins with no counts, in lm_requests and lm_cache
// too. `model` is the name this connection has for it, else the file's.
//
// Four columns are this connection's own. Where it has asked the model first (option escalate),
// `cascaded` says for how many rows, and `escalated` how many of these another model has answered:
//   SELECT model, 1.0 * escalated / cascaded AS rate FROM lm_stats WHERE cascaded > 0;
// `foreseen` is how many calls of generate() and the like found their answer under way, because
// look-ahead had seen them coming. `hint` says
//   what the last statement that had to ask row by row could do better, until a statement's rows
//     decode together;
//   what is wrong with the memo's file;
//   what the last statement that generated did not do (a budget has ended it; there was no room for
//     what lm_prefetch was to keep);
//   which members and formats of the last schema are not known;
//   or that a model made for one thing (engine/model/purpose.h) was asked for something else: the
//     one that ships labels and shortens descriptions of packages, and knows nothing else.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "engine/backend/machine_ceilings.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/remote_generator.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/generator_registry.h"
#include "extension/batch/batch_state.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/await.h"
#include "extension/tables/model_hint.h"
#include "extension/tables/tables.h"
#include "extension/tables/token_cost.h"

namespace lm {
namespace {

class StatsTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_stats"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_stats(model TEXT, phase TEXT, requests INTEGER, failed INTEGER, "
           "running INTEGER, queued INTEGER, tokens_prefilled INTEGER, tokens_reused INTEGER, "
           "tokens_decoded INTEGER, seconds REAL, tokens_per_second REAL, ttft_p50_ms REAL, "
           "ttft_p95_ms REAL, ttft_p99_ms REAL, itl_p50_ms REAL, itl_p95_ms REAL, itl_p99_ms REAL, "
           "batch_occupancy REAL, preemptions INTEGER, kv_bytes INTEGER, kv_bytes_used INTEGER, "
           "kv_bytes_cached INTEGER, memo_hits INTEGER, arithmetic_percent REAL, bandwidth_percent "
           "REAL, verdict TEXT, path TEXT, foreseen INTEGER, hint TEXT, cost REAL, cascaded "
           "INTEGER, escalated INTEGER, drafted INTEGER, accepted INTEGER, steps_saved INTEGER, "
           "speculation TEXT, prefix_store TEXT)";
  }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override { return RowsFor(~uint64_t{0}); }

  absl::StatusOr<std::vector<SnapshotRow>> RowsFor(uint64_t used) override {
    std::optional<MachineCeilings> ceilings;
    const uint64_t wanted = uint64_t{1} << kArithmeticPercent | uint64_t{1} << kBandwidthPercent;
    if ((used & wanted) != 0 && !RunningGenerators().empty()) {
      ASSIGN_OR_RETURN(ceilings, AwaitCeilings(connection().db()));
    }
    std::vector<SnapshotRow> rows;
    for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
      if (generator->engine() == nullptr) continue;
      for (bool prefill : {true, false}) {
        rows.push_back(
            {static_cast<int64_t>(rows.size()) + 1, PhaseRow(*generator, prefill, ceilings)});
      }
    }
    for (const std::shared_ptr<RemoteGenerator>& generator : RunningRemoteGenerators()) {
      for (bool prefill : {true, false}) {
        rows.push_back({static_cast<int64_t>(rows.size()) + 1, RemoteRow(*generator, prefill)});
      }
    }
    return rows;
  }

 private:
  static constexpr int kTtftP50 = 11;
  static constexpr int kMemoHits = 22;
  static constexpr int kArithmeticPercent = 23;
  static constexpr int kBandwidthPercent = 24;
  static constexpr int kPath = 26;

  // How much of what the machine could have done in this time was done.
  static Cell Percent(double amount, double ceiling, double seconds) {
    if (ceiling <= 0 || seconds <= 0) return Cell();
    return Cell(std::min(100 * amount / (ceiling * seconds), 100.0));
  }

  static Cell Verdict(const EngineStats& stats) {
    if (stats.prefill_time + stats.decode_time == absl::ZeroDuration()) return Cell();
    return stats.prefill_time > stats.decode_time ? "prefill-bound (slow to start)"
                                                  : "decode-bound (slow to stream)";
  }

  static Cell Rate(double amount, double per) { return per > 0 ? Cell(amount / per) : Cell(); }

  static void AppendLatency(const LatencySummary& latency, bool applies, std::vector<Cell>* cells) {
    for (absl::Duration value : {latency.p50, latency.p95, latency.p99}) {
      bool known = applies && latency.count > 0;
      cells->push_back(known ? Cell(absl::ToDoubleMilliseconds(value)) : Cell());
    }
  }

  std::vector<Cell> PhaseRow(const Generator& generator, bool prefill,
                             const std::optional<MachineCeilings>& ceilings) {
    const Engine& engine = *generator.engine();
    const EngineStats stats = engine.Stats();
    const std::string salt = connection().Salt();
    const RequestCounts own = engine.CountsOf(salt);
    const ModelInfo& info = generator.info();
    // An answer's first token comes with the last step of its prefill; decode steps make the
    // others.
    const int64_t stepped = stats.inter_token_latency.count;
    const int64_t tokens = prefill ? stats.tokens_prefilled : stepped;
    const double seconds = absl::ToDoubleSeconds(prefill ? stats.prefill_time : stats.decode_time);
    std::vector<Cell> cells = FirstCells(generator, prefill, own, stats);
    cells.push_back(seconds);
    cells.push_back(Rate(static_cast<double>(tokens), seconds));
    AppendLatency(stats.time_to_first_token, prefill, &cells);
    AppendLatency(stats.inter_token_latency, !prefill, &cells);
    cells.push_back(prefill ? Cell()
                            : Rate(static_cast<double>(stats.decode_rows),
                                   static_cast<double>(stats.decode_steps)));
    cells.push_back(stats.preemptions);
    cells.push_back(stats.kv_bytes_total);
    cells.push_back(stats.kv_bytes_total - stats.kv_bytes_free);
    cells.push_back(stats.kv_bytes_cached);
    cells.push_back(MemoHits(info));
    const Work& work = prefill ? stats.prefill_work : stats.decode_work;
    if (ceilings.has_value() && info.device == "cpu") {
      const double peak =
          info.cost.integers ? ceilings->int8_ops_per_second : ceilings->fp32_flops_per_second;
      cells.push_back(Percent(work.operations, peak, seconds));
      cells.push_back(Percent(work.bytes, ceilings->read_bytes_per_second, seconds));
    } else {
      cells.insert(cells.end(), {Cell(), Cell()});
    }
    cells.push_back(Verdict(stats));
    cells.push_back(info.path);
    AppendOwn(generator, &cells);
    cells.push_back(CostOf(generator, prefill, own));
    AppendCascades(info, &cells);
    AppendGuesses(stats, prefill, &cells);
    const std::string store = engine.stored().state();
    cells.push_back(store.empty() ? Cell() : Cell(store));
    return cells;
  }

  static void AppendGuesses(const EngineStats& stats, bool prefill, std::vector<Cell>* cells) {
    if (prefill) return cells->resize(cells->size() + 4);
    cells->push_back(stats.tokens_drafted);
    cells->push_back(stats.tokens_accepted);
    cells->push_back(std::llround(stats.steps_saved));
    cells->push_back(
        absl::StrCat("on", stats.draft_model.empty() ? "" : ", with ", stats.draft_model));
  }

  // What servers elsewhere did is theirs to tell: the columns of an engine are NULL.
  std::vector<Cell> RemoteRow(const RemoteGenerator& generator, bool prefill) {
    const RemoteStats stats = generator.Stats();
    const RequestCounts own = generator.CountsOf(connection().Salt());
    std::vector<Cell> cells = FirstCells(generator, prefill, own, stats);
    cells.resize(kTtftP50);
    AppendLatency(stats.time_to_first_token, prefill, &cells);
    cells.resize(kMemoHits);
    cells.push_back(MemoHits(generator.info()));
    cells.resize(kPath);
    const ModelInfo& info = generator.info();
    cells.push_back(info.path);
    AppendOwn(generator, &cells);
    cells.push_back(CostOf(generator, prefill, own));
    AppendCascades(info, &cells);
    cells.resize(cells.size() + 5);  // of guesses, and of a store
    return cells;
  }

  Cell CostOf(const Generator& generator, bool prefill, const RequestCounts& own) {
    const Prices prices = connection().PricesOf(generator);
    return prefill ? TokenCost(own.tokens_prefilled + own.tokens_reused, prices.in)
                   : TokenCost(own.tokens_decoded, prices.out);
  }

  // Up to tokens_decoded. `stats`: EngineStats or RemoteStats.
  template <typename Stats>
  std::vector<Cell> FirstCells(const Generator& generator, bool prefill, const RequestCounts& own,
                               const Stats& stats) {
    std::vector<Cell> cells = {connection().DisplayNameOf(generator),
                               std::string(prefill ? "prefill" : "decode"),
                               own.requests,
                               own.failed,
                               stats.running,
                               stats.queued};
    cells.push_back(prefill ? Cell(own.tokens_prefilled) : Cell());
    cells.push_back(prefill ? Cell(own.tokens_reused) : Cell());
    cells.push_back(prefill ? Cell() : Cell(own.tokens_decoded));
    return cells;
  }

  int64_t MemoHits(const ModelInfo& info) {
    const MemoStats memo = ProcessMemo().Stats(info.identity, connection().Salt());
    return memo.hits + memo.shared;
  }

  void AppendCascades(const ModelInfo& info, std::vector<Cell>* cells) {
    const auto& cascades = BatchOf(connection()).cascades;
    const auto counts = cascades.find(info.path);
    const bool known = counts != cascades.end();
    cells->push_back(known ? Cell(counts->second.asked) : Cell());
    cells->push_back(known ? Cell(counts->second.escalated) : Cell());
  }

  // The columns of this connection.
  void AppendOwn(const Generator& generator, std::vector<Cell>* cells) {
    cells->push_back(BatchOf(connection()).num_foreseen);
    std::vector<std::string> hints = {ModelHint(connection(), generator),
                                      BatchOf(connection()).hint};
    std::erase(hints, "");
    cells->push_back(hints.empty() ? Cell() : Cell(absl::StrJoin(hints, "; ")));
  }
};

}  // namespace

int RegisterStats(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_stats", &MakeTable<StatsTable>);
}

}  // namespace lm

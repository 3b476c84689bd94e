// lm_stats: what each running model has done so far, one row for each of its two phases
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
// sequences a decode step served on average. Columns of the other phase are NULL; those of the
// whole engine (requests, failed, running, queued, preemptions, kv_*) are in both rows. seconds is
// model time; kv_bytes the cache's size, kv_bytes_used what running requests and the prefix cache
// hold of it, kv_bytes_cached the prefix cache's share.
//
// The engines are the process's: other connections' work counts. Reading loads no model; without a
// running one there are no rows. `model` is the name this connection has for it, else the file's.
#include <string>

#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine_registry.h"
#include "extension/registrations.h"
#include "extension/snapshot_table.h"

namespace lm {
namespace {

class StatsTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_stats"; }
  const char* schema() const override {
    return "CREATE TABLE lm_stats(model TEXT, phase TEXT, requests INTEGER, failed INTEGER, "
           "running INTEGER, queued INTEGER, tokens_prefilled INTEGER, tokens_reused INTEGER, "
           "tokens_decoded INTEGER, seconds REAL, tokens_per_second REAL, ttft_p50_ms REAL, "
           "ttft_p95_ms REAL, ttft_p99_ms REAL, itl_p50_ms REAL, itl_p95_ms REAL, itl_p99_ms REAL, "
           "batch_occupancy REAL, preemptions INTEGER, kv_bytes INTEGER, kv_bytes_used INTEGER, "
           "kv_bytes_cached INTEGER, path TEXT)";
  }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (const std::shared_ptr<Engine>& engine : RunningEngines()) {
      for (bool prefill : {true, false}) {
        rows.push_back({static_cast<int64_t>(rows.size()) + 1, PhaseRow(*engine, prefill)});
      }
    }
    return rows;
  }

 private:
  static Cell Rate(double amount, double per) { return per > 0 ? Cell(amount / per) : Cell(); }

  static void AppendLatency(const LatencySummary& latency, bool applies, std::vector<Cell>* cells) {
    for (absl::Duration value : {latency.p50, latency.p95, latency.p99}) {
      bool known = applies && latency.count > 0;
      cells->push_back(known ? Cell(absl::ToDoubleMilliseconds(value)) : Cell());
    }
  }

  std::vector<Cell> PhaseRow(const Engine& engine, bool prefill) {
    const EngineStats stats = engine.Stats();
    const ModelInfo& info = engine.model().info();
    // An answer's first token comes with the last step of its prefill; decode steps make the
    // others.
    const int64_t stepped = stats.inter_token_latency.count;
    const int64_t tokens = prefill ? stats.tokens_prefilled : stepped;
    const double seconds = absl::ToDoubleSeconds(prefill ? stats.prefill_time : stats.decode_time);
    std::string name = connection().NameOf(engine);
    if (name.empty()) name = info.name;
    std::vector<Cell> cells = {name,           std::string(prefill ? "prefill" : "decode"),
                               stats.requests, stats.failed,
                               stats.running,  stats.queued};
    cells.push_back(prefill ? Cell(stats.tokens_prefilled) : Cell());
    cells.push_back(prefill ? Cell(stats.tokens_reused) : Cell());
    cells.push_back(prefill ? Cell() : Cell(stats.tokens_decoded));
    cells.push_back(seconds);
    cells.push_back(Rate(static_cast<double>(tokens), seconds));
    AppendLatency(stats.time_to_first_token, prefill, &cells);
    AppendLatency(stats.inter_token_latency, !prefill, &cells);
    cells.push_back(
        prefill ? Cell()
                : Rate(static_cast<double>(stepped), static_cast<double>(stats.decode_steps)));
    cells.push_back(stats.preemptions);
    cells.push_back(stats.kv_blocks_total * stats.kv_block_bytes);
    cells.push_back((stats.kv_blocks_total - stats.kv_blocks_free) * stats.kv_block_bytes);
    cells.push_back(stats.kv_blocks_cached * stats.kv_block_bytes);
    cells.push_back(info.path);
    return cells;
  }
};

}  // namespace

int RegisterStats(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_stats", &MakeTable<StatsTable>);
}

}  // namespace lm

// lm_requests: the last requests to the running models, one row each, with their timings
//
//   SELECT request, tokens_in, tokens_out, queued_ms, ttft_ms, total_ms FROM lm_requests
//     ORDER BY submitted DESC LIMIT 10;
//   SELECT error, count(*) FROM lm_requests WHERE finish = 'error' GROUP BY error;
//
// request numbers a model's requests; kind is 'generate', 'stream', 'score' (lm_logprobs) or
// 'embed'. finish is 'stop', 'length', 'context', 'cancelled' (it was not wanted any more: after an
// interrupt, or as a guess about a row that a LIMIT leaves out) or 'error', and then `error` says
// which. queued_ms is the time until the engine began, ttft_ms until the first token of the answer,
// total_ms until the end, all from `submitted` (UTC). itl_ms is the mean time between tokens.
// tokens_cached of the tokens_in were found in the prefix cache.
//
// The last 1,000 finished requests of each running model are kept, without any text. Those of other
// databases are not shown (of those with another `salt`, see lm_settings).
#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/generator_registry.h"
#include "extension/binding/snapshot_table.h"
#include "extension/tables/tables.h"
#include "extension/tables/timestamp.h"

namespace lm {
namespace {

class RequestsTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_requests"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_requests(model TEXT, request INTEGER, kind TEXT, submitted TEXT, "
           "finish TEXT, error TEXT, tokens_in INTEGER, tokens_cached INTEGER, tokens_out INTEGER, "
           "queued_ms REAL, ttft_ms REAL, itl_ms REAL, total_ms REAL)";
  }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    struct Entry {
      std::string model;
      RequestRecord record;
    };
    std::vector<Entry> entries;
    const std::string salt = connection().Salt();
    for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
      const std::shared_ptr<Engine>& engine = generator->engine();
      if (engine == nullptr) continue;
      const std::string model = connection().DisplayNameOf(*generator);
      for (RequestRecord& record : engine->RecentRequests(salt)) {
        entries.push_back({model, std::move(record)});
      }
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return a.record.submitted < b.record.submitted;
    });
    std::vector<SnapshotRow> rows;
    for (const Entry& entry : entries) {
      rows.push_back({static_cast<int64_t>(rows.size()) + 1, CellsOf(entry.model, entry.record)});
    }
    return rows;
  }

 private:
  static std::vector<Cell> CellsOf(const std::string& model, const RequestRecord& record) {
    auto ms = [](absl::Duration d) { return Cell(absl::ToDoubleMilliseconds(d)); };
    const bool has_token = record.time_to_first_token > absl::ZeroDuration();
    const int64_t gaps = record.tokens_out - 1;
    return {model,
            record.number,
            std::string(record.kind),
            Timestamp(record.submitted),
            std::string(record.finish),
            record.error.empty() ? Cell() : Cell(record.error),
            int64_t{record.tokens_in},
            int64_t{record.tokens_cached},
            int64_t{record.tokens_out},
            ms(record.queued),
            has_token ? ms(record.time_to_first_token) : Cell(),
            has_token && gaps > 0 ? ms((record.total - record.time_to_first_token) / gaps) : Cell(),
            ms(record.total)};
  }
};

}  // namespace

int RegisterRequests(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_requests", &MakeTable<RequestsTable>);
}

}  // namespace lm

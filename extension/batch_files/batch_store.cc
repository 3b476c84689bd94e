#include "extension/batch_files/batch_store.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "extension/jobs/job_schema.h"

namespace lm {
namespace {

constexpr char kBatchSchema[] = R"(
CREATE TABLE IF NOT EXISTS {db}.lm_job_batches(
  number INTEGER PRIMARY KEY,
  job TEXT NOT NULL,
  first INTEGER NOT NULL,  -- of its rows in lm_job_rows
  last INTEGER NOT NULL,
  failed INTEGER NOT NULL, -- whether it has failed rows, too
  model TEXT NOT NULL,     -- its name in lm_models
  url TEXT NOT NULL,
  key TEXT UNIQUE NOT NULL, -- what the server's own records know it by
  state TEXT NOT NULL CHECK(state IN ('making', 'submitting', 'submitted', 'ended')),
  file TEXT,    -- the server's numbers
  batch TEXT,
  lines INTEGER,
  status TEXT,  -- as the server last said
  note TEXT,
  worker TEXT,  -- who is at it
  lease INTEGER,
  changed TEXT
);
CREATE TRIGGER IF NOT EXISTS {db}.lm_job_batches_delete AFTER DELETE ON lm_jobs
  BEGIN DELETE FROM lm_job_batches WHERE job = old.name; END;
)";

// After how long without a sign of life a worker of which nothing else is known is taken for gone:
// longer than any file takes to be uploaded.
constexpr absl::Duration kBatchLease = absl::Hours(6);

constexpr char kActive[] = "job = ?1 AND state <> 'ended'";

}  // namespace

absl::StatusOr<Statement> BatchStore::Make(absl::string_view sql) {
  return Statement::Prepare(job_.database->db(), job_.database->Sql(sql));
}

absl::Status BatchStore::Prepare() {
  RETURN_IF_ERROR(job_.database->Transact(
      [this] { return Execute(job_.database->db(), job_.database->Sql(kBatchSchema).c_str()); }));
  return UpgradeJobTables(*job_.database);
}

absl::StatusOr<std::vector<JobBatch>> BatchStore::All() {
  ASSIGN_OR_RETURN(Statement all,
                   Make("SELECT number, first, last, failed, model, url, key, state, "
                        "coalesce(file, ''), coalesce(batch, ''), coalesce(lines, 0), "
                        "coalesce(status, ''), coalesce(note, '') "
                        "FROM {db}.lm_job_batches WHERE job = ? ORDER BY number"));
  all.Bind(1, job_.store->job().name);
  std::vector<JobBatch> batches;
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, all.Step());
    if (!row) return batches;
    JobBatch batch{.number = all.Integer(0),
                   .range = {all.Integer(1), all.Integer(2), all.Integer(3) != 0},
                   .lines = all.Integer(10)};
    std::string* const texts[] = {&batch.model, &batch.url,  &batch.key,
                                  &batch.state, &batch.file, &batch.batch};
    int column = 4;
    for (std::string* text : texts) {
      ASSIGN_OR_RETURN(*text, all.Text(column++));
    }
    ASSIGN_OR_RETURN(batch.status, all.Text(11));
    ASSIGN_OR_RETURN(batch.note, all.Text(12));
    batches.push_back(std::move(batch));
  }
}

absl::StatusOr<std::vector<BatchRange>> BatchStore::Uncovered(bool failed) {
  ASSIGN_OR_RETURN(const std::vector<JobBatch> batches, All());
  std::vector<BatchRange> taken, left;
  for (const JobBatch& batch : batches) {
    if (batch.state != "ended") taken.push_back(batch.range);
  }
  std::sort(taken.begin(), taken.end(),
            [](const BatchRange& a, const BatchRange& b) { return a.first < b.first; });
  int64_t first = 1;
  for (const BatchRange& range : taken) {
    if (range.first > first) left.push_back({first, range.first - 1, failed});
    first = std::max(first, range.last + 1);
  }
  left.push_back({first, INT64_MAX, failed});
  return left;
}

absl::StatusOr<bool> BatchStore::Add(JobBatch* batch, int64_t most) {
  bool added = false;
  RETURN_IF_ERROR(job_.database->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(Statement others,
                     Make(std::string("SELECT 1 FROM {db}.lm_job_batches WHERE ") + kActive +
                          " AND first <= ?3 AND last >= ?2"));
    others.Bind(1, job_.store->job().name).Bind(2, batch->range.first).Bind(3, batch->range.last);
    ASSIGN_OR_RETURN(const bool overlaps, others.Step());
    if (overlaps) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        Statement last,
        Make("SELECT max(number) FROM (SELECT number FROM {db}.lm_job_rows NOT INDEXED WHERE "
             "job = ?1 AND number BETWEEN ?2 AND ?3 AND (state = 'waiting' OR state = 'failed' "
             "AND ?4) AND vanished IS NULL ORDER BY number LIMIT ?5)"));
    last.Bind(1, job_.store->job().name).Bind(2, batch->range.first).Bind(3, batch->range.last);
    RETURN_IF_ERROR(last.Bind(4, int64_t{batch->range.failed}).Bind(5, most).Step().status());
    if (last.IsNull(0)) return absl::OkStatus();
    batch->range.last = last.Integer(0);
    last.Reset();
    ASSIGN_OR_RETURN(Statement add,
                     Make("INSERT INTO {db}.lm_job_batches(job, first, last, failed, model, url, "
                          "key, state, lines, worker, lease, changed) VALUES (?1, ?2, ?3, ?4, ?5, "
                          "?6, ?7, ?8, ?9, ?10, ?11, strftime('%Y-%m-%d %H:%M:%f', 'now'))"));
    add.Bind(1, job_.store->job().name).Bind(2, batch->range.first).Bind(3, batch->range.last);
    add.Bind(4, int64_t{batch->range.failed}).Bind(5, batch->model).Bind(6, batch->url);
    add.Bind(7, batch->key).Bind(8, batch->state).Bind(9, batch->lines);
    add.Bind(10, job_.store->worker().name())
        .Bind(11, absl::ToUnixMillis(absl::Now() + kBatchLease));
    RETURN_IF_ERROR(add.Run());
    batch->number = sqlite3_last_insert_rowid(job_.database->db());
    added = true;
    return absl::OkStatus();
  }));
  return added;
}

absl::Status BatchStore::Remove(const JobBatch& batch) {
  return job_.database->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(Statement remove, Make("DELETE FROM {db}.lm_job_batches WHERE key = ?"));
    return remove.Bind(1, batch.key).Run();
  });
}

absl::StatusOr<bool> BatchStore::Take(JobBatch* batch) {
  bool taken = false;
  RETURN_IF_ERROR(job_.database->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(Statement who,
                     Make("SELECT state, coalesce(worker, ''), coalesce(lease, 0), "
                          "coalesce(file, '') FROM {db}.lm_job_batches WHERE number = ?"));
    ASSIGN_OR_RETURN(const bool there, who.Bind(1, batch->number).Step());
    if (!there) return absl::OkStatus();
    ASSIGN_OR_RETURN(batch->state, who.Text(0));
    ASSIGN_OR_RETURN(const std::string worker, who.Text(1));
    ASSIGN_OR_RETURN(batch->file, who.Text(3));
    const bool free = worker.empty() || who.Integer(2) < absl::ToUnixMillis(absl::Now()) ||
                      JobWorker::IsGone(worker);
    who.Reset();
    if (!free || (batch->state != "making" && batch->state != "submitting")) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Statement take, Make("UPDATE {db}.lm_job_batches SET worker = ?2, lease = ?3 "
                                          "WHERE number = ?1"));
    take.Bind(1, batch->number).Bind(2, job_.store->worker().name());
    RETURN_IF_ERROR(take.Bind(3, absl::ToUnixMillis(absl::Now() + kBatchLease)).Run());
    taken = true;
    return absl::OkStatus();
  }));
  return taken;
}

absl::Status BatchStore::Update(const JobBatch& batch) {
  return job_.database->Transact([&]() -> absl::Status {
    ASSIGN_OR_RETURN(
        Statement update,
        Make("UPDATE {db}.lm_job_batches SET state = ?2, file = ?3, batch = ?4, "
             "status = ?5, note = ?6, lines = ?7, worker = ?8, lease = ?9, last = ?10, "
             "changed = strftime('%Y-%m-%d %H:%M:%f', 'now') "
             "WHERE key = ?1 AND state <> 'ended'"));
    auto bind = [&update](int position, const std::string& text) {
      if (text.empty()) {
        update.BindNull(position);
      } else {
        update.Bind(position, text);
      }
    };
    update.Bind(1, batch.key).Bind(2, batch.state).Bind(7, batch.lines).Bind(10, batch.range.last);
    bind(3, batch.file);
    bind(4, batch.batch);
    bind(5, batch.status);
    bind(6, batch.note);
    const bool at_it = batch.state == "making" || batch.state == "submitting";
    bind(8, at_it ? job_.store->worker().name() : "");
    if (at_it) {
      update.Bind(9, absl::ToUnixMillis(absl::Now() + kBatchLease));
    } else {
      update.BindNull(9);
    }
    return update.Run();
  });
}

}  // namespace lm

// lm_memo: the generations that are remembered
//   -> model, options, tokens, hits, bytes
//
//   SELECT model, count(*), sum(hits), sum(bytes) FROM lm_memo GROUP BY model;
//   DELETE FROM lm_memo;                                    -- forgets them all
//   INSERT INTO temp.lm_settings VALUES ('memo', 'memo.db');  -- keeps them in a file from now on
//
// At temperature 0, or with a seed of its own, an answer is a function of the model, the prompt and
// the options; so it is generated once. A row is one such answer: tokens counts those of its prompt
// and its own, hits how often it has spared a generation since it came into this process's memory,
// bytes what it takes there. {"cache": false} neither looks here nor leaves anything.
//
// In memory, 64 MiB are for all connections of the process together, and the longest unused answer
// goes first; a connection sees those of its own database (or salt). With lm_settings('memo') these
// are the answers in that file, for all who name it: at most 'memo_bytes' of them (1 GiB), of which
// the oldest go first. A row of the file whose model is empty is not ours, or damaged: it is never
// used. Forgetting does not follow ROLLBACK.
//
// The file is a cache: while it cannot be read or written (a lock, a full disk), answers are given
// without it, and lm_stats.hint says why. An answer is in the file before it is given, or else
// waits for the disk until the connection is closed.
#include <string>

#include "absl/strings/match.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/generator_registry.h"
#include "extension/connection/snapshot_table.h"
#include "extension/memo/memo_file.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class MemoTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_memo"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_memo(model TEXT, options TEXT, tokens INTEGER, hits INTEGER, "
           "bytes INTEGER)";
  }

  // So that what is said of writing is said below.
  int num_writable() const override { return 5; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    const std::shared_ptr<MemoFile> file = connection().MemoInUse();
    std::vector<MemoEntryInfo> entries;
    if (file != nullptr) {
      ASSIGN_OR_RETURN(entries, file->Entries());
    } else {
      entries = ProcessMemo().Entries(connection().Salt());
    }
    std::vector<SnapshotRow> rows;
    for (const MemoEntryInfo& entry : entries) {
      rows.push_back(
          {entry.id, {NameOf(entry.model), entry.options, entry.tokens, entry.hits, entry.bytes}});
    }
    return rows;
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Update(int64_t, absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Delete(int64_t rowid) override {
    const std::shared_ptr<MemoFile> file = connection().MemoInUse();
    if (file != nullptr) return file->Forget(rowid);
    ProcessMemo().Forget(connection().Salt(), rowid);
    return absl::OkStatus();
  }

  std::shared_ptr<const void> Save() const override { return nullptr; }
  void Restore(const void*) override {}

 private:
  static absl::Status Refused() {
    return absl::InvalidArgumentError("answers come here by being generated; rows can be deleted");
  }

  // The name of a running model with that digest, else the digest.
  std::string NameOf(const std::string& model) {
    for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
      const ModelInfo& info = generator->info();
      if (!absl::StartsWith(model, info.digest)) continue;
      const std::string name = connection().NameOf(*generator);
      return name.empty() ? info.name : name;
    }
    return model;
  }
};

}  // namespace

int RegisterMemo(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_memo", &MakeTable<MemoTable>);
}

}  // namespace lm

// lm_downloads: what this process downloads, or has downloaded, the oldest first
//   source, path, bytes, total, resumed, state, error, began, seconds
//
//   INSERT INTO temp.lm_models(name, path) VALUES ('qwen', 'hf:Qwen/Qwen3-0.6B-GGUF:Q8_0');
//   SELECT path, 100.0 * bytes / total AS percent FROM lm_downloads WHERE state = 'running';
//
// A row for each file of a model, read from another connection while the INSERT runs. `resumed` are
// the bytes that were there before; `state` is waiting (for another process that downloads it),
// running, done or failed. A file that was there already is done at once.
#include <string>

#include "engine/remote/download_list.h"
#include "extension/binding/snapshot_table.h"
#include "extension/tables/tables.h"
#include "extension/tables/timestamp.h"

namespace lm {
namespace {

class DownloadsTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_downloads"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_downloads(source TEXT, path TEXT, bytes INTEGER, total INTEGER, "
           "resumed INTEGER, state TEXT, error TEXT, began TEXT, seconds REAL)";
  }
  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (const DownloadInfo& info : Downloads()) {
      SnapshotRow row{static_cast<int64_t>(rows.size()) + 1, {info.source, info.path, info.bytes}};
      row.cells.push_back(info.total > 0 ? Cell(info.total) : Cell());
      row.cells.push_back(info.resumed);
      row.cells.push_back(std::string(info.state));
      row.cells.push_back(info.error.empty() ? Cell() : Cell(info.error));
      row.cells.push_back(Timestamp(info.began));
      row.cells.push_back(absl::ToDoubleSeconds(info.elapsed));
      rows.push_back(std::move(row));
    }
    return rows;
  }
};

}  // namespace

int RegisterDownloads(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_downloads", &MakeTable<DownloadsTable>);
}

}  // namespace lm

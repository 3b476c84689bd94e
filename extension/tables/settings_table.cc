// temp.lm_settings(key, value): this connection's defaults
//
//   SELECT key, value FROM temp.lm_settings;
//   INSERT INTO temp.lm_settings VALUES ('max_tokens', 100);        -- sets it, whatever it was
//   UPDATE temp.lm_settings SET value = 4 WHERE key = 'threads';
//   DELETE FROM temp.lm_settings WHERE key = 'max_tokens';          -- back to the default
//
//   model       the name (or path) of the model where the options name none: 'default'
//   threads     of the CPU a model runs on: as many as this process may use
//   device      where models run: 'cpu'; 'cuda', 'cuda:1', 'auto' (a GPU if there is one), or
//   several
//               that share the layers, 'cuda:0,cuda:1' or 'cuda:0=20,cpu' (the first 20 on the GPU)
//   kv_bytes    how much memory a model's KV cache may take
//   kv_type     of the KV cache's values: 'f16'; 'int8' keeps twice the tokens in the same bytes
//               and changes answers a little; 'f32'
//   max_tokens  of an answer: 256
//   memo        the file that remembers generations: an SQLite database of its own, made where
//               there is none. What is in it is not generated again, in no process. Default: they
//               are remembered in memory
//   salt        whose prefix cache this connection uses: that of its database file. Connections
//               with the same salt share the work done on equal beginnings of prompts
//   lookahead   'off': generate() and the like do not look at the rows to come ('on')
//
// All keys are always there; a value that is NULL has its default. threads, device, kv_bytes
// and kv_type act on models loaded from then on. Changes follow transactions.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/connection/snapshot_table.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

enum Column { kKey, kValue };

class SettingsTable : public WritableTable {
 public:
  using WritableTable::WritableTable;

  const char* name() const override { return "lm_settings"; }
  std::string Schema() const override { return "CREATE TABLE lm_settings(key TEXT, value)"; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (absl::string_view key : Settings::kKeys) {
      rows.push_back({static_cast<int64_t>(rows.size()) + 1,
                      {std::string(key), connection().settings().Get(key)}});
    }
    return rows;
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict) override {
    const auto* key = std::get_if<std::string>(&cells[kKey]);
    if (key == nullptr) return absl::InvalidArgumentError("key must be a text");
    RETURN_IF_ERROR(Set(*key, cells[kValue]));
    auto at = std::find(Settings::kKeys.begin(), Settings::kKeys.end(), *key);
    return at - Settings::kKeys.begin() + 1;
  }

  absl::Status Update(int64_t rowid, absl::Span<const Cell> cells, OnConflict) override {
    absl::string_view key = Settings::kKeys[rowid - 1];
    const auto* new_key = std::get_if<std::string>(&cells[kKey]);
    if (new_key == nullptr || *new_key != key) {
      return absl::InvalidArgumentError(absl::StrCat("the key '", key, "' cannot be renamed"));
    }
    return Set(key, cells[kValue]);
  }

  absl::Status Delete(int64_t rowid) override { return Set(Settings::kKeys[rowid - 1], Cell()); }

  std::shared_ptr<const void> Save() const override {
    return std::make_shared<const Settings>(connection().settings());
  }
  void Restore(const void* saved) override {
    connection().SetSettings(*static_cast<const Settings*>(saved));
  }

 private:
  absl::Status Set(absl::string_view key, const Cell& value) {
    Settings settings = connection().settings();
    RETURN_IF_ERROR(settings.Set(key, value));
    if (key == "memo" && settings.memo.has_value()) {
      ASSIGN_OR_RETURN(settings.memo, connection().CheckMemo(*settings.memo));
    }
    connection().SetSettings(std::move(settings));
    return absl::OkStatus();
  }
};

}  // namespace

int RegisterSettings(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_settings", &MakeTable<SettingsTable>);
}

}  // namespace lm

// temp.lm_settings(key, value, default_value, source): this connection's defaults
//
//   SELECT key, value, default_value, source FROM temp.lm_settings;
//   INSERT INTO temp.lm_settings VALUES ('max_tokens', 100);        -- sets it, whatever it was
//   UPDATE temp.lm_settings SET value = 4 WHERE key = 'threads';
//   DELETE FROM temp.lm_settings WHERE key = 'max_tokens';          -- back to the default
//
//   model       the name (or path) of the model where the options name none: 'default'
//   threads     of the CPU a model runs on: as many as this process may use
//   device      where models run: 'cpu'; 'cuda', 'cuda:1', 'auto' (a GPU if there is one), or
//               several that share the layers, 'cuda:0,cuda:1' or 'cuda:0=20,cpu' (the first 20 on
//               the GPU), or compute each together, 'cuda:0+cuda:1'. A GPU that is not there is
//               refused
//   kv_bytes    how much memory a model's KV cache may take; the default is that of a CPU, a GPU's
//               is half of what it has free beside the weights and the memory of steps
//   kv_type     of the KV cache's values: 'auto' is 'int16' on CPUs (14 bits with a scale for each
//               token and head, which CPUs multiply faster than 'f16'), 'f16' where a GPU has a
//               part; 'int8' keeps twice the tokens in the same bytes and changes answers a little;
//               'f32'. Encoders keep none: on CPUs they have 'int16', or 'f32' where it would be
//               another, and 'f16' where a GPU has a part, unless it is 'f32'
//   pack_cache  a folder for packed weights. The first process that loads a model lays its matrices
//               out for the processor and leaves them there; the next ones map that file: they pack
//               nothing, and share its memory. It is checked against its digests before the first
//               answer, and is about as large as the model. lm_models.pack_cache says what it was:
//               'written', 'mapped', 'read' (where the system does not promise to keep it), or why
//               it was of no use. Default: $LM_PACK_CACHE, or none
//   prefix_store  a folder in which the beginnings of prompts outlive the process. What a prompt
//               has found in the prefix cache, or an earlier one began with, was used twice: it is
//               written there (behind, by a thread, which a process that ends waits for), and read
//               instead of computed by the next process, and by this one when kv_bytes had no room
//               for it any more. lm_prefill() writes at once. What is stored is this database
//               file's (or salt's; what a database in memory asks is not stored), and found by the
//               same release, model, kv_type and context length on the same kind of device only. No
//               other user may read the files. What is damaged, cut short or another user's is
//               refused, full disks are borne: lm_stats.prefix_store says so, and lm_cache shows
//               what is there. Not on CUDA. Default: none
//   prefix_store_bytes  what that folder may hold; what was used longest ago goes: 4 GiB
//   memo        the file that remembers generations: an SQLite database of its own, made where
//               there is none. What is in it is not generated again, in no process. Default: they
//               are remembered in memory
//   memo_bytes  how much it may hold
//   salt        which prefix cache this connection uses; the default is its database file's.
//               Connections with the same salt share the work done on equal beginnings of prompts
//   lookahead   'off': generate() and the like do not look at the rows to come ('on')
//   network     'off': no model on the network is asked ('on'; the environment variable
//               LM_NETWORK=off is for the whole process, and LM_HOSTS names the hosts allowed)
//   system      the system prompt of generate(), generate_json(), lm_each() and others that take
//               one, where it is not given or NULL ('' is an empty one)
//   max_tokens, temperature, top_k, top_p, min_p, seed, repeat_penalty, thinking,
//   thinking_tokens, on_overflow, on_error, timeout_ms, max_seconds, max_total_tokens, max_cost,
//   speculate   generate()'s options, for calls whose own do not have them. Without a setting of
//               on_error, tables of answers and jobs go on at a row's failure ('null')
//
// All keys are always there. `value` is what holds: what was set, with the source 'lm_settings', or
// the default (source 'default', and 'database' for its own salt). A NULL value sets the default.
// default_value and source are hidden: SELECT * shows key and value, and INSERT without names takes
// these two. threads, device, kv_bytes, kv_type, pack_cache and prefix_store act on models loaded
// from then on: the next call loads the model anew, with an empty prefix cache, and lm_stats,
// lm_requests and lm_cache count from zero, unless another connection still runs the model as it
// was. What is remembered (lm_memo) stays. Changes follow transactions. A relative path is made
// absolute when it is set; $LM_PACK_CACHE and $LM_MODEL are seen from the working directory in
// which the process loaded the extension.
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/connection/absolute_path.h"
#include "extension/binding/snapshot_table.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class SettingsTable : public WritableTable {
 public:
  enum Column { kKey, kValue };

  using WritableTable::WritableTable;

  const char* name() const override { return "lm_settings"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_settings(key TEXT, value, default_value HIDDEN, source TEXT HIDDEN)";
  }
  int num_writable() const override { return 2; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (absl::string_view key : Settings::kKeys) {
      const Cell set = connection().settings().Get(key);
      const bool is_set = !std::holds_alternative<std::monostate>(set);
      const Cell otherwise = key == "salt" ? Cell(connection().OwnSalt()) : Settings::Default(key);
      const char* source = is_set ? "lm_settings" : key == "salt" ? "database" : "default";
      rows.push_back(
          {static_cast<int64_t>(rows.size()) + 1,
           {std::string(key), is_set ? set : otherwise, otherwise, std::string(source)}});
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
    if (key == "model" && connection().names().IsPath(settings.model.value_or(""))) {
      ASSIGN_OR_RETURN(std::string path, AbsolutePath(key, *settings.model));
      std::error_code error;
      // Else it may yet become a name of lm_models.
      if (std::filesystem::exists(path, error)) settings.model = std::move(path);
    }
    if (key == "model" && settings.model.has_value()) {
      RETURN_IF_ERROR(connection().names().CheckNotAddress(*settings.model));
    }
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

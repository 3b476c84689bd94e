// Connection: what the extension keeps for one sqlite3*. Every function and table registered there
// shares it; it goes when SQLite has dropped the last of them, at the end of sqlite3_close().
#ifndef LM_EXTENSION_CONNECTION_CONNECTION_H_
#define LM_EXTENSION_CONNECTION_CONNECTION_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/split_files.h"
#include "engine/remote/remote_generator.h"
#include "engine/runtime/fork_guard.h"
#include "engine/runtime/session.h"
#include "extension/connection/example_sets.h"
#include "extension/connection/field_census.h"
#include "extension/connection/model_names.h"
#include "extension/connection/options_cache.h"
#include "extension/connection/settings.h"
#include "extension/connection/statement_call.h"
#include "extension/host/progress_poll.h"
#include "extension/host/sqlite_api.h"

namespace lm {

// A loaded model as one statement uses it.
struct ModelUse {
  Session session;
  std::string options = {};  // the settings' defaults for calls, as JSON; empty: none
  std::string system = {};   // the system prompt of calls that give none
  Prices prices = {};
};

class MemoFile;
class Connection;

// Registers functions and tables with a connection; returns SQLite's code.
using Registrar = int (*)(const std::shared_ptr<Connection>& connection);

// What a room that a connection knows nothing of keeps for it (batch/batch_state.h).
struct ConnectionExtra {
  virtual ~ConnectionExtra() = default;
  // A statement's rows decode together.
  virtual void Batched() noexcept = 0;
};

// Not thread-safe: SQLite calls one function of a connection at a time.
class Connection {
 public:
  explicit Connection(sqlite3* db);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  sqlite3* db() const { return db_; }
  ProgressPoll& progress_poll() { return progress_poll_; }

  const Settings& settings() const { return settings_; }
  const ModelNames& names() const { return names_; }
  // What is no longer named is let go; the model goes if no other connection uses it.
  void SetSettings(Settings settings);
  void SetNames(ModelNames names);

  ExampleSets& examples() { return examples_; }
  const ExampleSets& examples() const { return examples_; }

  OptionsCache& options_cache() { return options_cache_; }

  // The model called `reference` (see ModelNames::Resolve), loaded if it is not. A file that was
  // replaced since is loaded anew; servers that are away (Generator::absence) are looked for again
  // where the last look is some time, or many calls, ago. FailedPrecondition in a forked child of
  // the process that opened the connection.
  absl::StatusOr<std::shared_ptr<const ModelUse>> Use(absl::string_view reference);
  // How long it looks for servers.
  void set_patience(Patience patience) { patience_ = patience; }

  // While it is set, models that Use gives out answer nothing and only take note (lm_explain).
  // A function that does more with answers than to return them must refuse to run then.
  void set_tally(PromptTally* tally) { tally_ = tally; }
  PromptTally* tally() const { return tally_; }
  bool only_counts() const { return tally_ != nullptr; }
  // While it is set, lm_prompt takes note of its fields, and keeps to the orders in there.
  void set_field_census(FieldCensus* census) { field_census_ = census; }
  FieldCensus* field_census() const { return field_census_; }

  // The generator that answers for `source` in this connection; nullptr where none is loaded.
  const Generator* FindLoaded(const ModelSource& source) const;
  // The name by which this connection knows a generator; empty where it does not.
  std::string NameOf(const Generator& generator) const;
  // The same, but the file's own name for one that it does not know.
  std::string DisplayNameOf(const Generator& generator) const;

  // What its tokens cost: by the first of its names in lm_models that says so.
  Prices PricesOf(const Generator& generator) const;

  // What the last statement that generated did not do, and why; empty: nothing.
  const std::string& note() const { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }

  // The file that lm_settings('memo') names; null where it names none.
  std::shared_ptr<MemoFile> MemoInUse();
  // This connection's part of the memo.
  MemoAccess AccessToMemo();
  // Opens `path` as a memo and returns it as an absolute path without symbolic links.
  // InvalidArgument for what is no path of a file, FailedPrecondition for a file that is no memo
  // and for this connection's own database, PermissionDenied where it may not ATTACH the file.
  absl::StatusOr<std::string> CheckMemo(const std::string& path);

  // For lm_running.
  WorkOwner work_owner() const { return {.db = db_, .connection = number_, .salt = Salt()}; }
  RunningStatements& running() { return running_; }

  // Registers what a job's own connection to the same database is to know of ours: functions and
  // tables that generate nothing.
  void set_register_pure(Registrar registrar) { register_pure_ = registrar; }
  // Registers these functions with `db`, a connection that has this one's models and settings.
  absl::Status RegisterPure(sqlite3* db) const;

  // The tables that this connection is to have in temp (CreateInTemp of binding/snapshot_table.h).
  void set_tables_of_temp(std::vector<const char*> names) { tables_of_temp_ = std::move(names); }
  const std::vector<const char*>& tables_of_temp() const { return tables_of_temp_; }

  // Null until the room above puts its state there; goes with the connection.
  std::unique_ptr<ConnectionExtra>& extra() { return extra_; }

  // Whether this connection asked the model last for something that it was not made for.
  bool HasStrayed(const Generator& generator) const;

  // Looks over a schema that answers are to be valid against, if `constraint` is one: what of it is
  // ignored is for SchemaHint.
  void NoteSchema(const AnswerConstraint& constraint);
  // What the last schema's author may want to know; empty if nothing.
  const std::string& SchemaHint() const { return schema_hint_; }

  // Whose prefix cache this connection uses: its database file's, unless the settings name another.
  // One without a file (":memory:", a temporary database) has a cache of its own.
  std::string Salt() const;
  // The same, whatever the settings say.
  std::string OwnSalt() const;

 private:
  struct LoadedModel {
    std::string reference;
    ModelSource source;
    ModelIdentity identity;
    std::shared_ptr<Generator> generator;
    std::shared_ptr<std::atomic<bool>> strayed = std::make_shared<std::atomic<bool>>(false);
  };

  std::shared_ptr<const ModelUse> UseOf(std::shared_ptr<Generator> generator,
                                        std::shared_ptr<std::atomic<bool>> strayed,
                                        const ModelSource& source);
  void DropUnnamed();

  sqlite3* const db_;
  ProgressPoll progress_poll_;
  const uint64_t number_;          // of this connection in the process
  const std::string number_salt_;  // of a database without a file: no other connection has it
  const ForkGuard fork_guard_;
  Settings settings_;
  ModelNames names_;
  ExampleSets examples_;
  OptionsCache options_cache_;
  std::vector<LoadedModel> loaded_;
  PromptTally* tally_ = nullptr;
  Patience patience_ = Patience::kOfARow;
  FieldCensus* field_census_ = nullptr;
  std::string noted_schema_;
  std::string schema_hint_;
  std::shared_ptr<MemoFile> memo_;  // of settings_.memo, once it was used
  RunningStatements running_;
  std::string note_;
  Registrar register_pure_ = nullptr;
  std::vector<const char*> tables_of_temp_;
  std::unique_ptr<ConnectionExtra> extra_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_CONNECTION_H_

// lm_memo: the generations that are remembered
//   -> model, prompt, answer, options, tokens, hits, bytes, created, used
//
//   SELECT model, count(*), sum(hits), sum(bytes) FROM lm_memo GROUP BY model;
//   SELECT prompt, answer, hits FROM lm_memo ORDER BY created DESC LIMIT 10;
//   DELETE FROM lm_memo WHERE prompt LIKE '%bicycle%';      -- forgets those
//   DELETE FROM lm_memo;                                    -- forgets them all
//   INSERT INTO temp.lm_settings VALUES ('memo', 'memo.db');  -- keeps them in a file from now on
//
// An answer is a function of the model, the prompt and the options (at a temperature the seed, by
// default 0, says what is drawn); so it is generated once. A row is one such answer: prompt is what
// was said in the conversation, the system prompt first, a line each, without the template's words;
// tokens counts those of its prompt and its own, hits how often it has spared a generation since it
// came into this process's memory, bytes what it takes there; created and used (last) are UTC.
// {"cache": false} neither looks here nor leaves anything.
//
// A row whose answer is NULL is a vector: what lm_embed, lm_similarity, lm_distinct and their like
// have made of a text (options has "embed": how it is pooled), or lm_rerank's score ("rank"; prompt
// has query and text). They are in memory only, in 16 MiB of their own: they push no answer out.
//
// In memory, 64 MiB are for all connections of the process together, and the longest unused answer
// goes first (so of the vectors), but for a statement with more rows than that, whose first ones
// stay (memo_shelf.h); a connection sees those of its own database (or salt). With
// lm_settings('memo') these are the answers in that file, for all who name it: at most 'memo_bytes'
// of them (1 GiB), of which the longest unused go first (used is when a process last took one out
// of the file). A row of the file whose model is empty is not ours, or damaged: it is never used.
// What this process has in memory alone (vectors, and what others have deleted from the file) is
// listed behind it, with rowids below 0. Forgetting does not follow ROLLBACK.
//
// The file is a cache: while it cannot be read or written (a lock, a full disk), answers are given
// without it, and lm_stats.hint says why. An answer is in the file before it is given, or else
// waits for the disk until the connection is closed.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/generator_registry.h"
#include "extension/binding/snapshot_table.h"
#include "extension/memo/memo_file.h"
#include "extension/memo/memo_listing.h"
#include "extension/tables/tables.h"
#include "extension/tables/timestamp.h"

namespace lm {
namespace {

Cell TimeOrNull(absl::Time time) {
  return time > absl::UnixEpoch() ? Cell(Timestamp(time)) : Cell();
}

// What is not the template's of a RequestSpec::text: of its JSON array, the strings.
std::string WordsOf(const std::string& text) {
  const std::optional<Json> pieces = Json::Parse(text);
  if (!pieces || !pieces->is_array()) return text;
  std::string words;
  for (const Json& piece : pieces->array()) {
    if (!piece.is_string() || piece.string().empty()) continue;
    absl::StrAppend(&words, words.empty() ? "" : "\n", piece.string());
  }
  return words;
}

// Whether a memo's file says so of the generator's model.
bool IsOfFile(const Generator& generator, const std::string& model) {
  if (generator.engine() == nullptr) return false;
  const std::optional<std::string> digest = generator.engine()->model().digest().known();
  return digest.has_value() && absl::StartsWith(model, *digest);
}

// The name of a running model that MemoKey::model says, else that.
std::string NameOf(Connection& connection, const std::string& model) {
  for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
    const ModelInfo& info = generator->info();
    if (!absl::StartsWith(model, info.identity) && !IsOfFile(*generator, model)) continue;
    const std::string name = connection.NameOf(*generator);
    return name.empty() ? info.name : name;
  }
  return model;
}

class MemoPages : public RowPages {
 public:
  MemoPages(Connection& connection, std::shared_ptr<MemoFile> file, std::string owner, bool texts)
      : connection_(connection), listing_(std::move(file), std::move(owner), texts) {}

  absl::StatusOr<std::vector<SnapshotRow>> Next() override {
    RETURN_IF_ERROR(CheckNotForked());
    ASSIGN_OR_RETURN(const std::vector<MemoEntryInfo> entries, listing_.NextPage());
    std::vector<SnapshotRow> rows;
    for (const MemoEntryInfo& entry : entries) {
      rows.push_back(
          {entry.id,
           {NameOf(connection_, entry.model), WordsOf(entry.prompt),
            entry.is_vector ? Cell() : Cell(entry.answer), entry.options, entry.tokens, entry.hits,
            entry.bytes, TimeOrNull(entry.created), TimeOrNull(entry.used)}});
    }
    return rows;
  }

 private:
  Connection& connection_;
  MemoListing listing_;
};

class MemoTable : public WritableTable {
 public:
  enum Column { kPrompt = 1, kAnswer = 2 };

  using WritableTable::WritableTable;

  const char* name() const override { return "lm_memo"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_memo(model TEXT, prompt TEXT, answer TEXT, options TEXT, "
           "tokens INTEGER, hits INTEGER, bytes INTEGER, created TEXT, used TEXT)";
  }

  // So that what is said of writing is said below.
  int num_writable() const override { return 9; }

  absl::StatusOr<std::unique_ptr<RowPages>> Scan(uint64_t used) override {
    RETURN_IF_ERROR(CheckNotForked());
    const bool texts = (used & (uint64_t{1} << kPrompt | uint64_t{1} << kAnswer)) != 0;
    MemoAccess access = connection().AccessToMemo();
    return std::make_unique<MemoPages>(connection(), connection().MemoInUse(),
                                       std::move(access.owner), texts);
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Update(int64_t, absl::Span<const Cell>, OnConflict) override { return Refused(); }
  absl::Status Delete(int64_t rowid) override {
    RETURN_IF_ERROR(CheckNotForked());
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
};

}  // namespace

int RegisterMemo(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_memo", &MakeTable<MemoTable>);
}

}  // namespace lm

// lm_cache: the prefixes of prompts that this database has in the running models' caches
//
//   SELECT tokens, bytes, hits, text FROM lm_cache WHERE hits > 0 ORDER BY hits DESC;
//   SELECT sum(bytes) FROM lm_cache;
//
// The cache is a tree: prompts that begin alike share what they have in common, and part from
// there. A row is a part that does not fork: own_tokens and bytes are its own, `parent` the row's
// prefix that it goes on from (NULL: none), tokens the length of the whole prefix up to its end.
// hits is how many prompts found it in the cache; last_used when one did last, or when it was made
// (UTC). text begins like its own tokens; control tokens are left out. lora says with which
// adapters it was computed, as the option of that name does (NULL: none); only prompts with these
// find it.
//
// place is 'memory', or 'store' for a file of lm_settings('prefix_store'): the prefix up to tokens,
// of which own_tokens are in the file; a prefix may be in both.
//
// What is not in use goes, least recently used first, when its memory is wanted. Other databases'
// prefixes are not shown (those with another `salt`, see lm_settings).
#include <string>

#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/generator_registry.h"
#include "engine/text/detokenizer.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/await.h"
#include "extension/tables/tables.h"
#include "extension/tables/timestamp.h"

namespace lm {
namespace {

std::string TextOf(const std::vector<int32_t>& tokens, const Tokenizer& tokenizer) {
  Detokenizer detokenizer(&tokenizer);
  std::string text;
  for (int32_t token : tokens) text += detokenizer.Append(token);
  return text;  // without a character that the last token only begins
}

class CacheTable : public SnapshotTable {
 public:
  using SnapshotTable::SnapshotTable;

  const char* name() const override { return "lm_cache"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_cache(model TEXT, prefix INTEGER, parent INTEGER, tokens INTEGER, "
           "own_tokens INTEGER, bytes INTEGER, hits INTEGER, last_used TEXT, text TEXT, lora TEXT, "
           "place TEXT)";
  }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
      const std::shared_ptr<Engine>& engine = generator->engine();
      if (engine == nullptr) continue;
      ASSIGN_OR_RETURN(const std::shared_ptr<CacheInspection> inspection,
                       AwaitInspection(connection().db(), *engine, connection().Salt()));
      const int64_t block_bytes = engine->Stats().kv_block_bytes;
      const int64_t first = static_cast<int64_t>(rows.size()) + 1;
      for (const PrefixTree::Run& run : inspection->runs()) {
        const int64_t number = static_cast<int64_t>(rows.size()) + 1;
        rows.push_back(
            {number,
             {connection().DisplayNameOf(*generator), number,
              run.parent < 0 ? Cell() : Cell(first + run.parent), run.tokens, run.own_tokens,
              run.blocks * block_bytes, run.hits, Timestamp(run.last_used),
              TextOf(run.beginning, engine->model().tokenizer()),
              run.adapters.empty() ? Cell() : Cell(run.adapters), "memory"}});
      }
      for (const PrefixStore::Listed& stored : engine->stored().List(connection().Salt())) {
        const int64_t number = static_cast<int64_t>(rows.size()) + 1;
        const auto tokens = static_cast<int64_t>(stored.tokens.size());
        const auto own = absl::MakeConstSpan(stored.tokens).subspan(stored.begin);
        const auto shown = own.subspan(0, PrefixTree::Run::kShownTokens);
        rows.push_back({number,
                        {connection().DisplayNameOf(*generator), number, Cell(), tokens,
                         tokens - stored.begin, stored.bytes, Cell(), Cell(),
                         TextOf({shown.begin(), shown.end()}, engine->model().tokenizer()),
                         stored.adapters.empty() ? Cell() : Cell(stored.adapters), "store"}});
      }
    }
    return rows;
  }
};

}  // namespace

int RegisterCache(const std::shared_ptr<Connection>& connection) {
  return RegisterReadOnlyTable(connection, "lm_cache", &MakeTable<CacheTable>);
}

}  // namespace lm

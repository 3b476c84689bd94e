// sqlite3_lm_init: registers everything, and nothing else. Called once for each connection that
// loads the extension, in any number, from any thread.
#include "engine/base/out_of_memory.h"
#include "extension/binding/snapshot_table.h"
#include "extension/connection/absolute_path.h"
#include "extension/connection/connection.h"
#include "extension/functions/functions.h"
#include "extension/host/boundary.h"
#include "extension/host/host.h"
#include "extension/host/statement.h"
#include "extension/tables/tables.h"
#include "lm/sqlite.h"

namespace lm {
namespace {

constexpr int kOldestSqlite = 3031000;  // SQLITE_DIRECTONLY

int Fail(char** message, const char* text) {
  if (message != nullptr) *message = sqlite3_mprintf("sqlite-lm: %s", text);
  return SQLITE_ERROR;
}

// A second load keeps the connection's models and settings.
bool IsRegistered(sqlite3* db) {
  absl::StatusOr<Statement> functions =
      Statement::Prepare(db, "SELECT 1 FROM pragma_function_list WHERE name = 'lm_debug'");
  const absl::StatusOr<bool> row = functions.ok() ? functions->Step() : functions.status();
  if (row.ok() && !*row) return false;
  // Where the list may not be read, too. To compile a call of what there is not is a mistake in
  // SQLite's error log.
  return Statement::Prepare(db, "SELECT lm_debug()").ok();
}

int RegisterPure(const std::shared_ptr<Connection>& connection) {
  for (auto register_one :
       {RegisterTokens, RegisterRender, RegisterPrompt, RegisterVersion, RegisterChunks}) {
    const int code = register_one(connection);
    if (code != SQLITE_OK) return code;
  }
  return SQLITE_OK;
}

int RegisterAll(sqlite3* db) {
  auto connection = std::make_shared<Connection>(db);
  connection->set_register_pure(&RegisterPure);
  for (auto register_one : {RegisterGenerate,
                            RegisterGenerateJson,
                            RegisterClassify,
                            RegisterJudge,
                            RegisterExtract,
                            RegisterTokens,
                            RegisterRender,
                            RegisterLogprobs,
                            RegisterMap,
                            RegisterPrefetch,
                            RegisterPrefill,
                            RegisterTickets,
                            RegisterVersion,
                            RegisterEach,
                            RegisterQuery,
                            RegisterEmbed,
                            RegisterStream,
                            RegisterCache,
                            RegisterDevices,
                            RegisterExplain,
                            RegisterRequests,
                            RegisterMemo,
                            RegisterDocuments,
                            RegisterChunks,
                            RegisterJobs,
                            RegisterRun,
                            RegisterModels,
                            RegisterSettings,
                            RegisterStats,
                            RegisterRunning,
                            RegisterInspect,
                            RegisterRerank,
                            RegisterBatchExport,
                            RegisterBatchImport,
                            RegisterBatchSubmit,
                            RegisterBatchPoll,
                            RegisterConvert,
                            RegisterDownloads,
                            RegisterJobDiff,
                            RegisterSimilarity,
                            RegisterClassifyScores,
                            RegisterRank,
                            RegisterTopK,
                            RegisterDistinct,
                            RegisterMatch,
                            RegisterCalibrate,
                            RegisterExtractEach,
                            RegisterPrompt,
                            RegisterExamples}) {
    int code = register_one(connection);
    if (code != SQLITE_OK) return code;
  }
  connection->set_tables_of_temp({"lm_batch_export", "lm_batch_import", "lm_batch_poll",
                                  "lm_batch_submit", "lm_examples", "lm_memo", "lm_models",
                                  "lm_run", "lm_running", "lm_settings"});
  const absl::StatusOr<bool> in_temp = CreateInTemp(*connection);
  return in_temp.ok() ? SQLITE_OK : sqlite3_errcode(db);
}

int Initialize(sqlite3* db, char** message) noexcept {
  if (sqlite3_libversion_number() < kOldestSqlite) {
    return Fail(message, "SQLite 3.31 or later is wanted");
  }
  int code = SQLITE_ERROR;
  absl::Status status = Guarded([&] {
    NoteStart();
    code = IsRegistered(db) ? SQLITE_OK : RegisterAll(db);
    return absl::OkStatus();
  });
  if (!status.ok()) return Fail(message, "out of memory");
  return code == SQLITE_OK ? InitResult() : Fail(message, sqlite3_errmsg(db));
}

}  // namespace
}  // namespace lm

extern "C" int sqlite3_lm_init(sqlite3* db, char** message, const sqlite3_api_routines* api) {
  return lm::AdoptHost(api, message) ? lm::Initialize(db, message) : SQLITE_ERROR;
}

// What entry.cc registers of this room: one function for each table. Each returns SQLITE_OK or the
// code SQLite refused with; calling one again replaces what it registered.
#ifndef LM_EXTENSION_TABLES_TABLES_H_
#define LM_EXTENSION_TABLES_TABLES_H_

#include <memory>

#include "absl/strings/string_view.h"
#include "extension/host/sqlite_api.h"

namespace lm {

class Connection;

int RegisterEach(const std::shared_ptr<Connection>& connection);
int RegisterQuery(const std::shared_ptr<Connection>& connection);
int RegisterStream(const std::shared_ptr<Connection>& connection);
int RegisterExamples(const std::shared_ptr<Connection>& connection);
int RegisterExplain(const std::shared_ptr<Connection>& connection);
int RegisterInspect(const std::shared_ptr<Connection>& connection);
int RegisterChunks(const std::shared_ptr<Connection>& connection);
int RegisterModels(const std::shared_ptr<Connection>& connection);
int RegisterSettings(const std::shared_ptr<Connection>& connection);
int RegisterMemo(const std::shared_ptr<Connection>& connection);
int RegisterCache(const std::shared_ptr<Connection>& connection);
int RegisterDownloads(const std::shared_ptr<Connection>& connection);
int RegisterDevices(const std::shared_ptr<Connection>& connection);
int RegisterRequests(const std::shared_ptr<Connection>& connection);
int RegisterStats(const std::shared_ptr<Connection>& connection);
int RegisterRunning(const std::shared_ptr<Connection>& connection);
int RegisterJobs(const std::shared_ptr<Connection>& connection);
int RegisterJobDiff(const std::shared_ptr<Connection>& connection);
int RegisterRun(const std::shared_ptr<Connection>& connection);
int RegisterBatchExport(const std::shared_ptr<Connection>& connection);
int RegisterBatchImport(const std::shared_ptr<Connection>& connection);
int RegisterBatchSubmit(const std::shared_ptr<Connection>& connection);
int RegisterClassifyScores(const std::shared_ptr<Connection>& connection);
int RegisterRank(const std::shared_ptr<Connection>& connection);
int RegisterDistinct(const std::shared_ptr<Connection>& connection);
int RegisterCalibrate(const std::shared_ptr<Connection>& connection);
int RegisterMatch(const std::shared_ptr<Connection>& connection);
int RegisterExtractEach(const std::shared_ptr<Connection>& connection);
int RegisterBatchPoll(const std::shared_ptr<Connection>& connection);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_TABLES_H_

// What entry.cc registers: one function for each file of SQL functions, one for each table. Each
// returns SQLITE_OK or the code SQLite refused with; calling one again replaces what it registered.
#ifndef LM_EXTENSION_REGISTRATIONS_H_
#define LM_EXTENSION_REGISTRATIONS_H_

#include <memory>

#include "extension/connection.h"

namespace lm {

int RegisterDocuments(const std::shared_ptr<Connection>& connection);
int RegisterGenerate(const std::shared_ptr<Connection>& connection);
int RegisterGenerateJson(const std::shared_ptr<Connection>& connection);
int RegisterClassify(const std::shared_ptr<Connection>& connection);
int RegisterJudge(const std::shared_ptr<Connection>& connection);
int RegisterExtract(const std::shared_ptr<Connection>& connection);
int RegisterTokens(const std::shared_ptr<Connection>& connection);
int RegisterRender(const std::shared_ptr<Connection>& connection);
int RegisterLogprobs(const std::shared_ptr<Connection>& connection);
int RegisterMap(const std::shared_ptr<Connection>& connection);
int RegisterPrefetch(const std::shared_ptr<Connection>& connection);
int RegisterTickets(const std::shared_ptr<Connection>& connection);
int RegisterVersion(const std::shared_ptr<Connection>& connection);

int RegisterEmbed(const std::shared_ptr<Connection>& connection);

int RegisterStream(const std::shared_ptr<Connection>& connection);
int RegisterEach(const std::shared_ptr<Connection>& connection);
int RegisterQuery(const std::shared_ptr<Connection>& connection);
int RegisterMemo(const std::shared_ptr<Connection>& connection);
int RegisterChunks(const std::shared_ptr<Connection>& connection);
int RegisterJobs(const std::shared_ptr<Connection>& connection);
int RegisterRun(const std::shared_ptr<Connection>& connection);
int RegisterModels(const std::shared_ptr<Connection>& connection);
int RegisterSettings(const std::shared_ptr<Connection>& connection);
int RegisterCache(const std::shared_ptr<Connection>& connection);
int RegisterExplain(const std::shared_ptr<Connection>& connection);
int RegisterDevices(const std::shared_ptr<Connection>& connection);
int RegisterRequests(const std::shared_ptr<Connection>& connection);
int RegisterStats(const std::shared_ptr<Connection>& connection);

}  // namespace lm

#endif  // LM_EXTENSION_REGISTRATIONS_H_

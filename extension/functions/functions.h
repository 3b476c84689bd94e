// What entry.cc registers of this room: one function for each file. Each returns SQLITE_OK or the
// code SQLite refused with; calling one again replaces what it registered.
#ifndef LM_EXTENSION_FUNCTIONS_FUNCTIONS_H_
#define LM_EXTENSION_FUNCTIONS_FUNCTIONS_H_

#include <memory>

namespace lm {

class Connection;

int RegisterGenerate(const std::shared_ptr<Connection>& connection);
int RegisterGenerateJson(const std::shared_ptr<Connection>& connection);
int RegisterConvert(const std::shared_ptr<Connection>& connection);
int RegisterClassify(const std::shared_ptr<Connection>& connection);
int RegisterJudge(const std::shared_ptr<Connection>& connection);
int RegisterExtract(const std::shared_ptr<Connection>& connection);
int RegisterDocuments(const std::shared_ptr<Connection>& connection);
int RegisterEmbed(const std::shared_ptr<Connection>& connection);
int RegisterTokens(const std::shared_ptr<Connection>& connection);
int RegisterRender(const std::shared_ptr<Connection>& connection);
int RegisterRerank(const std::shared_ptr<Connection>& connection);
int RegisterSimilarity(const std::shared_ptr<Connection>& connection);
int RegisterLogprobs(const std::shared_ptr<Connection>& connection);
int RegisterMap(const std::shared_ptr<Connection>& connection);
int RegisterPrefetch(const std::shared_ptr<Connection>& connection);
int RegisterPrefill(const std::shared_ptr<Connection>& connection);
int RegisterPrompt(const std::shared_ptr<Connection>& connection);
int RegisterTickets(const std::shared_ptr<Connection>& connection);
int RegisterTopK(const std::shared_ptr<Connection>& connection);
int RegisterVersion(const std::shared_ptr<Connection>& connection);

}  // namespace lm

#endif  // LM_EXTENSION_FUNCTIONS_FUNCTIONS_H_

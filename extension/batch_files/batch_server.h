// The Batch API of a model of lm_models.
#ifndef LM_EXTENSION_BATCH_FILES_BATCH_SERVER_H_
#define LM_EXTENSION_BATCH_FILES_BATCH_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/remote/batch_api.h"
#include "engine/remote/remote_options.h"
#include "extension/batch_files/batch_questions.h"
#include "extension/connection/connection.h"
#include "extension/connection/statement_call.h"
#include "extension/host/aside.h"

namespace lm {

struct BatchServer {
  std::string url;
  BatchTarget target = {};  // of questions to it
  std::shared_ptr<BatchApi> api = {};
};

// Asks the server for the model first, as any first use of it does. `url` is one of the model's
// addresses, or empty: the first; what a table says of an address is not spoken to unless it stands
// in lm_models. FailedPrecondition where it does not; InvalidArgument where the model is not on the
// network; Connection::Use's errors.
absl::StatusOr<BatchServer> OpenBatchServer(Connection& connection, const std::string& model,
                                            const std::string& url);

// What body(api, cancel) returns, which waits for the network; Cancelled where the statement on
// `user` is interrupted meanwhile (aside.h).
template <typename Body>
auto AskAside(sqlite3* user, const BatchServer& server, Body body) {
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  const WaitingFor network(work.get(), "network");
  return RunAside(
      user, [api = server.api, body](std::atomic<bool>& cancel) { return body(*api, cancel); });
}

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_FILES_BATCH_SERVER_H_

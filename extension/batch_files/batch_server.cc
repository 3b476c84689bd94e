#include "extension/batch_files/batch_server.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lm {

absl::StatusOr<BatchServer> OpenBatchServer(Connection& connection, const std::string& model,
                                            const std::string& url) {
  ASSIGN_OR_RETURN(const ModelSource source,
                   connection.names().Resolve(model, connection.settings()));
  if (!source.is_remote()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model '", source.name, "' is not on the network, and has no batches"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> urls, ParseRemotePath(source.path));
  ASSIGN_OR_RETURN(const RemoteOptions options, ParseRemoteOptions(source.remote_options));
  if (!url.empty() && std::find(urls.begin(), urls.end(), url) == urls.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the batch is at ", url, ", which is no address of '", source.name, "' in lm_models"));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelUse> use, connection.Use(model));
  RETURN_IF_ERROR(use->session.generator().absence());
  const ModelInfo& info = use->session.generator().info();
  BatchServer server{.url = url.empty() ? urls.front() : url};
  server.target = {.reference = model, .model = info.name};
  ASSIGN_OR_RETURN(server.target.spoken, ParseDialect(info.architecture));
  ASSIGN_OR_RETURN(server.api, OpenBatchApi(server.url, options));
  return server;
}

}  // namespace lm

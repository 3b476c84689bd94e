#include "extension/connection/hub_model.h"

#include <atomic>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/remote/hub_download.h"
#include "engine/remote/hub_reference.h"
#include "extension/connection/statement_call.h"
#include "extension/host/aside.h"

namespace lm {
namespace {

// What the user has to type, here or where there is a network.
absl::StatusOr<std::string> CommandFor(const HubReference& reference) {
  ASSIGN_OR_RETURN(const std::string folder, HubFolder(reference));
  const bool file = absl::EndsWithIgnoreCase(reference.variant, ".gguf");
  const std::string pattern = reference.variant.empty() ? "*.gguf"
                              : file                    ? reference.variant
                                                        : absl::StrCat("*", reference.variant, "*");
  return absl::StrCat("hf download ", reference.repository, " --revision ", reference.revision,
                      " --include '", pattern, "' --local-dir '", folder, "'");
}

}  // namespace

absl::StatusOr<std::string> FetchHubModel(const Connection& connection, const std::string& path) {
  ASSIGN_OR_RETURN(const HubReference reference, ParseHubReference(path));
  ASSIGN_OR_RETURN(const std::vector<std::string> there, FindDownloaded(reference));
  // Which one is recommended is the hub's list to say.
  if (!there.empty() && !reference.variant.empty()) return there.front();
  absl::StatusOr<std::vector<std::string>> files = absl::PermissionDeniedError(
      absl::StrCat("'", path, "' is on the network, and lm_settings has network 'off'"));
  if (connection.settings().network != "off") {
    const std::shared_ptr<RunningWork> work = StatementCall::Work();
    const WaitingFor network(work.get(), "network");
    files = RunAside(connection.db(), [reference](std::atomic<bool>& cancel) {
      return DownloadModel(reference, cancel);
    });
  }
  if (files.ok()) return files->front();
  const absl::Status& why = files.status();
  const bool unreachable = absl::IsPermissionDenied(why) || absl::IsUnavailable(why);
  if (!there.empty() && unreachable) return there.front();
  if (!absl::IsPermissionDenied(why) && !absl::IsFailedPrecondition(why)) return why;
  ASSIGN_OR_RETURN(const std::string command, CommandFor(reference));
  return absl::Status(why.code(),
                      absl::StrCat(why.message(), "; another way to have it: ", command));
}

absl::StatusOr<std::string> FindHubModel(const std::string& path) {
  ASSIGN_OR_RETURN(const HubReference reference, ParseHubReference(path));
  ASSIGN_OR_RETURN(const std::vector<std::string> there, FindDownloaded(reference));
  if (!there.empty()) return there.front();
  return absl::NotFoundError(
      absl::StrCat("'", path,
                   "' is not downloaded yet: INSERT INTO temp.lm_models(name, path) "
                   "VALUES ('default', '",
                   path, "') does that"));
}

}  // namespace lm

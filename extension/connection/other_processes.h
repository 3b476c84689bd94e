// What other processes of this user have under way for the same database, and its end there.
//
// A process that generates for a database with a file listens at a socket of the file system
// (process_sockets.h), and answers there what lm_running shows of it and ends what it is asked to.
#ifndef LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_
#define LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/connection/running_work.h"

namespace lm {

// Lets other processes see and end what runs here for `salt`, from now on until exit(); a database
// in memory belongs to no other process. Where it cannot, SQLite's log hears why. Costs nothing
// from the second call on.
void ShowToOtherProcesses(absl::string_view salt);

// From here on an id is that of another process's work, and unique here; below, this one's.
inline constexpr int64_t kIdsOfAProcess = 1'000'000'000;

// What the others have under way for `salt`. One that does not answer in time is left out.
// Cancelled where the statement is interrupted.
absl::StatusOr<std::vector<WorkInfo>> WorkOfOtherProcesses(absl::string_view salt);

// RunningWork::Cancel in the process that has the work of that id; nothing where there is none.
// REQUIRES: id >= kIdsOfAProcess.
absl::Status CancelInOtherProcess(int64_t id, const WorkOwner& canceller);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_

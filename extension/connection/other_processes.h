// What other processes of this user have under way for the same database, and its end there.
//
// A process that generates for a database with a file listens at a socket of the file system,
// DIRECTORY/<its number>, and answers there what lm_running shows of it and ends what it is asked
// to. DIRECTORY is $LM_RUNTIME_DIR (empty: no process of it listens or asks), else
// $XDG_RUNTIME_DIR/sqlite-lm, else /tmp/sqlite-lm-<user>; nobody else may enter it. Where it cannot
// be had there is only this process to be seen.
#ifndef LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_
#define LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "extension/connection/running_work.h"

namespace lm {

// Lets others see and end what runs here for `salt`, from now on until exit(); a database in memory
// is nobody else's. Does nothing where it cannot, and costs nothing from the second call on.
void ShowToOtherProcesses(absl::string_view salt);

// What the others have under way for `salt`. One that does not answer in time is left out.
std::vector<WorkInfo> WorkOfOtherProcesses(absl::string_view salt);

// RunningWork::Cancel in another process; WorkInfo tells both numbers.
void CancelInProcess(int64_t process, int64_t id, const WorkOwner& canceller);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_OTHER_PROCESSES_H_

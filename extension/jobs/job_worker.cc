#include "extension/jobs/job_worker.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/random.h"

namespace lm {
namespace {

// The runs of this process that are not over, as far as this copy of the library has begun them.
// Never destroyed.
struct LiveRuns {
  absl::Mutex mutex;
  int64_t last ABSL_GUARDED_BY(mutex) = 0;
  std::set<int64_t> numbers ABSL_GUARDED_BY(mutex);

  static LiveRuns& Instance() {
    static LiveRuns* const runs = new LiveRuns();
    return *runs;
  }
};

// Tells this copy of the library from others that the process has loaded: they have numbers of
// their own.
std::string Copy() {
  const auto place = reinterpret_cast<uintptr_t>(&LiveRuns::Instance());
  return absl::StrCat(absl::Hex(RandomBits(place, 0), absl::kZeroPad16));
}

int64_t Begin() {
  LiveRuns& runs = LiveRuns::Instance();
  absl::MutexLock lock(&runs.mutex);
  runs.numbers.insert(++runs.last);
  return runs.last;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// When the process began, in ticks since boot; empty where none of that number lives, nullopt where
// that is not to be seen, as others' processes are not with hidepid.
std::optional<std::string> StartTime(int32_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return "";
  const std::string line = FirstLine(absl::StrCat("/proc/", pid, "/stat"));
  // "pid (name) state ...": the name may hold anything. The start is the 22nd field.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  if (state == "Z" || state == "X") return "";  // dead, and only its parent has not asked yet
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

// The machine since it was booted, and the name space in which its process numbers count.
std::string Place() {
  char space[64];
  const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space);
  std::string digits;
  for (ssize_t i = 0; i < length; ++i) {
    if (space[i] >= '0' && space[i] <= '9') digits += space[i];
  }
  return absl::StrCat(digits, ".", FirstLine("/proc/sys/kernel/random/boot_id"));
}

std::string ProcessName() {
  return absl::StrCat(getpid(), ".", StartTime(getpid()).value_or(""), ".", Place());
}

}  // namespace

JobWorker::JobWorker()
    : number_(Begin()), name_(absl::StrCat(ProcessName(), "#", Copy(), ".", number_)) {}

JobWorker::~JobWorker() {
  LiveRuns& runs = LiveRuns::Instance();
  absl::MutexLock lock(&runs.mutex);
  runs.numbers.erase(number_);
}

bool JobWorker::IsGone(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('#', 1));
  const std::vector<absl::string_view> process =
      absl::StrSplit(parts[0], absl::MaxSplits('.', 2));  // number, start, place
  if (parts.size() != 2 || process.size() != 3 || process[2] != Place()) return false;
  int32_t pid;
  if (!absl::SimpleAtoi(process[0], &pid) || process[1].empty()) return false;
  if (parts[0] != ProcessName()) {
    const std::optional<std::string> started = StartTime(pid);
    return started.has_value() && *started != process[1];
  }
  const std::vector<absl::string_view> run = absl::StrSplit(parts[1], '.');  // copy, number
  int64_t number;
  if (run.size() != 2 || run[0] != Copy() || !absl::SimpleAtoi(run[1], &number)) return false;
  LiveRuns& runs = LiveRuns::Instance();
  absl::MutexLock lock(&runs.mutex);
  return !runs.numbers.contains(number);
}

}  // namespace lm

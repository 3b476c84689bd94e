#include "extension/connection/process_sockets.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "engine/base/checkpoint.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::Duration kAnswerTime = absl::Milliseconds(400);
constexpr size_t kMostAnswer = 64 << 20;
// Of this process's descriptors, which the host has as well.
constexpr size_t kMostAtOnce = 64;
constexpr int kMostRemoved = 1000;  // in passing

// Linux's own limit.
constexpr int64_t kMostProcesses = int64_t{1} << 22;
// This many namespaces in a row have different keys for one process number.
constexpr int64_t kNamespaces = 2039;

// 0 where there is no /proc.
uint64_t OwnNamespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// nullopt for what is no socket's name, perhaps because another version of this library made it.
std::optional<ProcessSocket> ParseSocket(const std::string& directory, absl::string_view name,
                                         uint64_t own_namespace) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(name, '-');
  int64_t process;
  uint64_t pid_namespace;
  if (!absl::SimpleAtoi(parts.first, &process) || !absl::SimpleAtoi(parts.second, &pid_namespace) ||
      process <= 0 || process >= kMostProcesses) {
    return std::nullopt;
  }
  int64_t key = process;
  if (pid_namespace != own_namespace) {
    key += (1 + static_cast<int64_t>(pid_namespace % kNamespaces)) * kMostProcesses;
  }
  return ProcessSocket{.path = absl::StrCat(directory, "/", name), .process = process, .key = key};
}

void ListSockets(const std::string& directory, std::vector<ProcessSocket>* sockets) {
  if (!CheckPrivate(directory).ok()) return;
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  const absl::Cleanup close = [entries] { closedir(entries); };
  const std::string own = OwnSocketName();
  const uint64_t own_namespace = OwnNamespace();
  while (const dirent* entry = readdir(entries)) {
    if (own == entry->d_name) continue;
    auto socket = ParseSocket(directory, entry->d_name, own_namespace);
    if (socket.has_value()) sockets->push_back(*std::move(socket));
  }
}

// Null where nobody listens; the socket of a process that was killed is taken away.
std::unique_ptr<Descriptor> Connect(const std::string& path) {
  const std::optional<sockaddr_un> address = SocketAddress(path);
  auto fd = std::make_unique<Descriptor>(OpenSocket());
  if (!address.has_value() || !fd->open()) return nullptr;
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
    return fd;
  }
  if (errno == ECONNREFUSED) unlink(path.c_str());
  return nullptr;
}

// A question under way. Once it is over it has no descriptor.
class Conversation {
 public:
  Conversation(const std::string& path, absl::string_view question, std::optional<Json>* answer)
      : until_(MonotonicTime::Now() + kAnswerTime),
        fd_(Connect(path)),
        unsent_(question),
        answer_(*answer) {}

  bool over() const { return fd_ == nullptr; }
  bool late() const { return MonotonicTime::Now() >= until_; }
  pollfd polled() const { return {fd_->get(), wanted_, 0}; }

  // As far as it goes without waiting.
  void GoOn() {
    Progress progress = Progress::kDone;
    if (wanted_ == POLLOUT) progress = SendSome(fd_->get(), &unsent_);
    if (progress == Progress::kDone) {
      wanted_ = POLLIN;
      progress = ReceiveSome(fd_->get(), kMostAnswer, &received_);
      if (progress == Progress::kDone) answer_ = Json::Parse(received_);
    }
    if (progress != Progress::kWaits) fd_.reset();
  }

 private:
  const MonotonicTime until_;
  std::unique_ptr<Descriptor> fd_;
  absl::string_view unsent_;
  std::string received_;
  std::optional<Json>& answer_;
  short wanted_ = POLLOUT;  // what it waits for
};

}  // namespace

int OpenSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

std::optional<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

std::vector<std::string> SocketDirectories() {
  if (const char* own = std::getenv("LM_RUNTIME_DIR")) {
    return *own != '\0' ? std::vector<std::string>{own} : std::vector<std::string>{};
  }
  const std::string everywhere = absl::StrCat("/tmp/sqlite-lm-", geteuid());
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') {
    return {absl::StrCat(runtime, "/sqlite-lm"), everywhere};
  }
  return {everywhere, absl::StrCat("/run/user/", geteuid(), "/sqlite-lm")};
}

absl::Status CheckPrivate(const std::string& directory) {
  struct stat info;
  auto error = [&directory](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("'", directory, "' ", what));
  };
  if (!SocketAddress(absl::StrCat(directory, "/", OwnSocketName(), kUnready)).has_value()) {
    return error("is too long a path for a socket");
  }
  if (lstat(directory.c_str(), &info) != 0) {
    const absl::StatusCode code =
        errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition;
    return absl::Status(code, absl::StrCat("'", directory, "': ", std::strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode)) return error("is no directory");
  if (info.st_uid != geteuid()) return error("is another user's");
  if ((info.st_mode & 077) != 0) return error("is open to others: its mode has to be 0700");
  return absl::OkStatus();
}

absl::Status WhyApart() {
  absl::Status first;
  for (const std::string& directory : SocketDirectories()) {
    const absl::Status status = CheckPrivate(directory);
    if (status.ok() || absl::IsNotFound(status)) return absl::OkStatus();
    first.Update(status);
  }
  return first;
}

absl::Status MakePrivate(const std::string& directory) {
  // What a session or the system has not made is not made for it.
  const bool is_named = std::getenv("LM_RUNTIME_DIR") != nullptr;
  for (size_t end = is_named ? directory.find('/', 1) : directory.npos; end != directory.npos;
       end = directory.find('/', end + 1)) {
    mkdir(directory.substr(0, end).c_str(), 0700);
  }
  mkdir(directory.c_str(), 0700);  // it may be there
  return CheckPrivate(directory);
}

void RemoveDeadSockets(const std::string& directory) {
  std::vector<ProcessSocket> sockets;
  ListSockets(directory, &sockets);
  int removed = 0;
  for (const ProcessSocket& socket : sockets) {
    // Who lives is not bothered; and of another namespace's processes nothing is known.
    const bool is_dead = socket.key == socket.process &&
                         kill(static_cast<pid_t>(socket.process), 0) != 0 && errno == ESRCH;
    if (is_dead && Connect(socket.path) == nullptr && ++removed == kMostRemoved) return;
  }
}

std::string OwnSocketName() { return absl::StrCat(getpid(), "-", OwnNamespace()); }

std::vector<ProcessSocket> OtherSockets() {
  std::vector<ProcessSocket> sockets;
  for (const std::string& directory : SocketDirectories()) ListSockets(directory, &sockets);
  return sockets;
}

Progress SendSome(int fd, absl::string_view* unsent) {
  while (!unsent->empty()) {
    const ssize_t sent = send(fd, unsent->data(), unsent->size(), MSG_NOSIGNAL);
    if (sent > 0) {
      unsent->remove_prefix(sent);
    } else if (errno == EAGAIN) {
      return Progress::kWaits;
    } else if (errno != EINTR) {
      return Progress::kFailed;
    }
  }
  return shutdown(fd, SHUT_WR) == 0 ? Progress::kDone : Progress::kFailed;
}

Progress ReceiveSome(int fd, size_t most, std::string* text) {
  char buffer[4096];
  for (;;) {
    const ssize_t received = recv(fd, buffer, sizeof(buffer), 0);
    if (received == 0) return Progress::kDone;
    if (received > 0) {
      text->append(buffer, received);
      if (text->size() > most) return Progress::kFailed;
    } else if (errno == EAGAIN) {
      return Progress::kWaits;
    } else if (errno != EINTR) {
      return Progress::kFailed;
    }
  }
}

absl::StatusOr<std::vector<std::optional<Json>>> AskAll(const std::vector<ProcessSocket>& sockets,
                                                        const Json& question) {
  constexpr auto kSlice = static_cast<int>(kCheckpointInterval.count());
  const std::string text = question.Dump();
  std::vector<std::optional<Json>> answers(sockets.size());
  std::vector<std::unique_ptr<Conversation>> waiting;
  size_t next = 0;  // to be asked
  for (std::vector<pollfd> polled;;) {
    std::erase_if(waiting, [](const auto& asked) { return asked->over() || asked->late(); });
    // Not many that nobody answers at, either, before those who have answered are heard.
    const size_t end = std::min(next + kMostAtOnce - waiting.size(), sockets.size());
    for (; next < end; ++next) {
      auto asked = std::make_unique<Conversation>(sockets[next].path, text, &answers[next]);
      if (!asked->over()) waiting.push_back(std::move(asked));
    }
    RETURN_IF_ERROR(Checkpoint());
    if (waiting.empty() && next == sockets.size()) return answers;
    polled.clear();
    for (const auto& asked : waiting) polled.push_back(asked->polled());
    const bool more = waiting.size() < kMostAtOnce && next < sockets.size();
    const int ready = poll(polled.data(), polled.size(), more ? 0 : kSlice);
    if (ready < 0 && errno != EINTR) return answers;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) waiting[i]->GoOn();
    }
  }
}

}  // namespace lm

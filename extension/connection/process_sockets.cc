#include "extension/connection/process_sockets.h"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

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
  if (!IsPrivate(directory)) return;
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

// A question under way.
class Conversation {
 public:
  Conversation(const std::string& path, absl::string_view question)
      : fd_(OpenSocket()), unsent_(question) {
    const std::optional<sockaddr_un> address = SocketAddress(path);
    if (!address.has_value() || !fd_.open()) return;
    if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
      wanted_ = POLLOUT;
    } else if (errno == ECONNREFUSED) {
      unlink(path.c_str());  // it was killed
    }
  }

  bool over() const { return wanted_ == 0; }
  pollfd polled() const { return {fd_.get(), wanted_, 0}; }
  std::optional<Json> TakeAnswer() { return std::move(answer_); }

  // As far as it goes without waiting.
  void GoOn() {
    Progress progress = Progress::kDone;
    if (wanted_ == POLLOUT) progress = SendSome(fd_.get(), &unsent_);
    if (progress == Progress::kDone) {
      wanted_ = POLLIN;
      progress = ReceiveSome(fd_.get(), kMostAnswer, &received_);
      if (progress == Progress::kDone) answer_ = Json::Parse(received_);
    }
    if (progress != Progress::kWaits) wanted_ = 0;
  }

 private:
  const Descriptor fd_;
  absl::string_view unsent_;
  std::string received_;
  std::optional<Json> answer_;
  short wanted_ = 0;  // what it waits for; 0: it is over
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

bool IsPrivate(const std::string& directory) {
  struct stat info;
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && (info.st_mode & 077) == 0;
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
  const MonotonicTime until = MonotonicTime::Now() + kAnswerTime;
  const std::string text = question.Dump();
  std::vector<std::unique_ptr<Conversation>> conversations;
  std::vector<Conversation*> waiting;
  for (const ProcessSocket& socket : sockets) {
    conversations.push_back(std::make_unique<Conversation>(socket.path, text));
    waiting.push_back(conversations.back().get());
  }
  for (std::vector<pollfd> polled;;) {
    std::erase_if(waiting, [](const Conversation* conversation) { return conversation->over(); });
    if (waiting.empty() || MonotonicTime::Now() >= until) break;
    RETURN_IF_ERROR(Checkpoint());
    polled.clear();
    for (const Conversation* conversation : waiting) polled.push_back(conversation->polled());
    if (poll(polled.data(), polled.size(), kSlice) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) waiting[i]->GoOn();
    }
  }
  std::vector<std::optional<Json>> answers;
  for (const auto& conversation : conversations) answers.push_back(conversation->TakeAnswer());
  return answers;
}

}  // namespace lm

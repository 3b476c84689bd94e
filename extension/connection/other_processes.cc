#include "extension/connection/other_processes.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/exit_guard.h"
#include "engine/base/json.h"
#include "engine/base/out_of_memory.h"

namespace lm {
namespace {

// A question and its answer are a JSON text each; the end of each is that of its direction:
//   {"salt": ...}                                   -> [work, ...]
//   {"salt": ..., "cancel": id, "process": ..., "connection": ...}   (who asks) -> []
constexpr absl::Duration kAnswerTime = absl::Milliseconds(400);
constexpr absl::Duration kQuestionTime = absl::Milliseconds(100);
constexpr size_t kMostQuestion = 64 << 10;
constexpr size_t kMostAnswer = 64 << 20;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  const int fd_;
};

int OpenSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Empty: none is wanted.
std::string Directory() {
  if (const char* own = std::getenv("LM_RUNTIME_DIR")) return own;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return absl::StrCat(runtime, "/sqlite-lm");
  return absl::StrCat("/tmp/sqlite-lm-", geteuid());
}

// Whether it is a directory of this user's that nobody else can enter: what is asked there is
// answered to all who can.
bool IsPrivate(const std::string& directory) {
  struct stat info;
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

std::optional<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Whether `fd` is ready for `events` by then; not where `wake` is.
bool WaitFor(int fd, short events, absl::Time until, int wake = -1) {
  for (;;) {
    const absl::Duration left = std::min(until - absl::Now(), absl::Minutes(1));
    if (left <= absl::ZeroDuration()) return false;
    pollfd polled[] = {{fd, events, 0}, {wake, POLLIN, 0}};
    const int ready = poll(polled, 2, static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return polled[1].revents == 0;
  }
}

bool Send(int fd, absl::string_view text, absl::Time until, int wake = -1) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !WaitFor(fd, POLLOUT, until, wake))) {
      return false;
    }
  }
  return shutdown(fd, SHUT_WR) == 0;
}

std::optional<Json> Receive(int fd, size_t most, absl::Time until, int wake = -1) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t received = recv(fd, buffer, sizeof(buffer), 0);
    if (received == 0) return Json::Parse(text);
    if (received > 0) {
      text.append(buffer, received);
      if (text.size() > most) return std::nullopt;
    } else if (errno != EINTR && (errno != EAGAIN || !WaitFor(fd, POLLIN, until, wake))) {
      return std::nullopt;
    }
  }
}

// ---- What is said of a work ----

Json ToJson(const WorkInfo& info) {
  const WorkCounts& counts = info.counts;
  Json json = Json::MakeObject();
  json.Add("id", info.id);
  json.Add("connection", info.connection);
  json.Add("kind", WorkKindName(info.kind));
  json.Add("sql", info.sql);
  json.Add("name", info.name);
  json.Add("hint", info.hint);
  json.Add("waiting_for", info.waiting_for);
  json.Add("total", counts.total.has_value() ? Json(*counts.total) : Json());
  json.Add("done", counts.done);
  json.Add("failed", counts.failed);
  json.Add("before", counts.before);
  json.Add("foreseen", counts.foreseen);
  json.Add("tokens", counts.tokens);
  json.Add("began_us", absl::ToUnixMicros(info.began));
  json.Add("elapsed_us", absl::ToInt64Microseconds(info.elapsed));
  return json;
}

std::string Text(const Json& json, absl::string_view name) {
  const Json* found = json.Find(name);
  return found != nullptr && found->is_string() ? found->string() : "";
}

std::optional<int64_t> Number(const Json& json, absl::string_view name) {
  const Json* found = json.Find(name);
  if (found == nullptr || !found->is_unsigned() || found->unsigned_integer() > INT64_MAX) {
    return std::nullopt;
  }
  return found->integer();
}

// nullopt for what another version of this library may say.
std::optional<WorkInfo> FromJson(const Json& json, int64_t process) {
  auto number = [&json](absl::string_view name) { return Number(json, name).value_or(0); };
  const std::optional<int64_t> id = Number(json, "id");
  const std::optional<WorkKind> kind = WorkKindOf(Text(json, "kind"));
  if (!id.has_value() || !kind.has_value()) return std::nullopt;
  return WorkInfo{.id = *id,
                  .process = process,
                  .connection = static_cast<uint64_t>(number("connection")),
                  .kind = *kind,
                  .sql = Text(json, "sql"),
                  .name = Text(json, "name"),
                  .hint = Text(json, "hint"),
                  .counts = {.total = Number(json, "total"),
                             .done = number("done"),
                             .failed = number("failed"),
                             .before = number("before"),
                             .foreseen = number("foreseen"),
                             .tokens = number("tokens")},
                  .began = absl::FromUnixMicros(number("began_us")),
                  .elapsed = absl::Microseconds(number("elapsed_us")),
                  .waiting_for = Text(json, "waiting_for")};
}

// ---- The one who answers ----

Json Answer(const Json& question) {
  Json works = Json::MakeArray();
  const std::string salt = Text(question, "salt");
  if (const std::optional<int64_t> id = Number(question, "cancel")) {
    RunningWork::Cancel(
        *id, {.process = Number(question, "process").value_or(0),
              .connection = static_cast<uint64_t>(Number(question, "connection").value_or(0)),
              .salt = salt});
    return works;
  }
  for (const WorkInfo& info : RunningWork::All(salt)) works.Append(ToJson(info));
  return works;
}

// Has a thread, until exit().
class Listener {
 public:
  // Where it cannot listen there is none.
  static void Begin(const std::string& directory) {
    static std::atomic<int> inherited{-1};
    std::unique_ptr<Listener> listener(new Listener(absl::StrCat(directory, "/", getpid())));
    if (!listener->Open()) return;
    // A child that kept it would let others believe that there is still somebody who listens.
    inherited = listener->socket_.get();
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { close(inherited.exchange(-1)); });
    try {
      std::thread([self = listener.get()] { self->Loop(); }).detach();
      listener.release();
    } catch (...) {  // no more threads, or no memory
      inherited = -1;
      unlink(listener->path_.c_str());
    }
  }

 private:
  explicit Listener(std::string path)
      : path_(std::move(path)), socket_(OpenSocket()), wake_(eventfd(0, EFD_CLOEXEC)) {}

  // Under another name until it listens: who finds one where nobody does takes it away.
  bool Open() const {
    const std::string unready = absl::StrCat(path_, ".new");
    const std::optional<sockaddr_un> address = Address(unready);
    if (!address.has_value() || !socket_.open() || !wake_.open()) return false;
    unlink(unready.c_str());  // of a process of that number that was killed
    return bind(socket_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) ==
               0 &&
           listen(socket_.get(), 16) == 0 && std::rename(unready.c_str(), path_.c_str()) == 0;
  }

  void Loop() noexcept {
    ReadyToThrow();
    ExitGuard guard([](void* self) { static_cast<Listener*>(self)->Stop(); }, this);
    while (guard.allowed() && !stop_) {
      if (!WaitFor(socket_.get(), POLLIN, absl::InfiniteFuture(), wake_.get())) continue;
      try {
        AnswerOne();
      } catch (...) {  // no memory; who asked hears nothing
      }
    }
    unlink(path_.c_str());
  }

  void AnswerOne() const {
    const Descriptor asker(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ucred peer = {};
    socklen_t size = sizeof(peer);
    if (!asker.open() || getsockopt(asker.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != geteuid() && peer.uid != 0)) {
      return;
    }
    const absl::Time until = absl::Now() + kQuestionTime;
    const std::optional<Json> question = Receive(asker.get(), kMostQuestion, until, wake_.get());
    if (!question.has_value()) return;
    Send(asker.get(), Answer(*question).Dump(), absl::Now() + kQuestionTime, wake_.get());
  }

  void Stop() {
    stop_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  const std::string path_;
  const Descriptor socket_, wake_;
  std::atomic<bool> stop_{false};
};

// ---- The one who asks ----

Json Question(absl::string_view salt) {
  Json question = Json::MakeObject();
  question.Add("salt", salt);
  return question;
}

std::optional<Json> Ask(const std::string& directory, int64_t process, const Json& question) {
  const std::string path = absl::StrCat(directory, "/", process);
  const std::optional<sockaddr_un> address = Address(path);
  const Descriptor fd(OpenSocket());
  if (!address.has_value() || !fd.open()) return std::nullopt;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    if (errno == ECONNREFUSED) unlink(path.c_str());  // it was killed
    return std::nullopt;
  }
  const absl::Time until = absl::Now() + kAnswerTime;
  if (!Send(fd.get(), question.Dump(), until)) return std::nullopt;
  return Receive(fd.get(), kMostAnswer, until);
}

bool IsShared(absl::string_view salt) { return !absl::StartsWith(salt, "connection:"); }

}  // namespace

void ShowToOtherProcesses(absl::string_view salt) {
  static std::atomic<pid_t> tried{0};
  if (!IsShared(salt) || tried.exchange(getpid()) == getpid()) return;
  const std::string directory = Directory();
  if (directory.empty()) return;
  mkdir(directory.c_str(), 0700);  // it may be there
  if (IsPrivate(directory)) Listener::Begin(directory);
}

std::vector<WorkInfo> WorkOfOtherProcesses(absl::string_view salt) {
  std::vector<WorkInfo> all;
  const std::string directory = Directory();
  if (!IsShared(salt) || !IsPrivate(directory)) return all;
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return all;
  const absl::Cleanup close = [entries] { closedir(entries); };
  const Json question = Question(salt);
  while (const dirent* entry = readdir(entries)) {
    int64_t process;
    if (!absl::SimpleAtoi(entry->d_name, &process) || process == getpid()) continue;
    const std::optional<Json> answer = Ask(directory, process, question);
    if (!answer.has_value() || !answer->is_array()) continue;
    for (const Json& work : answer->array()) {
      if (std::optional<WorkInfo> info = FromJson(work, process)) all.push_back(*std::move(info));
    }
  }
  return all;
}

void CancelInProcess(int64_t process, int64_t id, const WorkOwner& canceller) {
  const std::string directory = Directory();
  if (!IsShared(canceller.salt) || !IsPrivate(directory)) return;
  Json question = Question(canceller.salt);
  question.Add("cancel", id);
  question.Add("process", static_cast<int64_t>(getpid()));
  question.Add("connection", canceller.connection);
  Ask(directory, process, question);
}

}  // namespace lm

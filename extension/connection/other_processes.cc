#include "extension/connection/other_processes.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/exit_guard.h"
#include "engine/base/json.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/own_thread.h"
#include "engine/base/status_macros.h"
#include "engine/base/this_process.h"
#include "extension/connection/process_sockets.h"
#include "extension/host/sqlite_api.h"

namespace lm {
namespace {

// A question and its answer are a JSON text each; the end of each is that of its direction:
//   {"salt": ...}                                   -> [work, ...]
//   {"salt": ..., "cancel": id, "process": ..., "connection": ...}   (the asker) -> []
constexpr absl::Duration kQuestionTime = absl::Milliseconds(100);
constexpr size_t kMostQuestion = 64 << 10;

// Whether `fd` is ready for `events` by then; not where `wake` is.
bool WaitFor(int fd, short events, MonotonicTime until, int wake) {
  for (;;) {
    const absl::Duration left = std::min(until - MonotonicTime::Now(), absl::Minutes(1));
    if (left <= absl::ZeroDuration()) return false;
    pollfd polled[] = {{fd, events, 0}, {wake, POLLIN, 0}};
    const int ready = poll(polled, 2, static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return polled[1].revents == 0;
  }
}

// Goes on with `some` until it is over; whether it came to its end by then.
template <typename Some>
bool Finish(int fd, short events, MonotonicTime until, int wake, Some some) {
  for (;;) {
    const Progress progress = some();
    if (progress != Progress::kWaits) return progress == Progress::kDone;
    if (!WaitFor(fd, events, until, wake)) return false;
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
std::optional<WorkInfo> FromJson(const Json& json, const ProcessSocket& from) {
  auto number = [&json](absl::string_view name) { return Number(json, name).value_or(0); };
  const std::optional<int64_t> id = Number(json, "id");
  const std::optional<WorkKind> kind = WorkKindOf(Text(json, "kind"));
  if (!id.has_value() || *id >= kIdsOfAProcess || !kind.has_value()) return std::nullopt;
  return WorkInfo{.id = from.key * kIdsOfAProcess + *id,
                  .process = from.process,
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

// ---- The process that answers ----

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

// Has a thread, until exit(), whose it is.
class Listener {
 public:
  ~Listener() { inherited_ = -1; }  // before it is closed
  // Where it cannot listen there, there is none.
  static absl::Status Begin(const std::string& directory) {
    const std::string path = absl::StrCat(directory, "/", OwnSocketName());
    std::unique_ptr<Listener> listener(new Listener(path));
    if (!listener->Open()) {
      return absl::UnavailableError(absl::StrCat("'", path, "': ", std::strerror(errno)));
    }
    // A child that kept the socket would let others believe that it listens there.
    inherited_ = listener->socket_.get();
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { close(inherited_.exchange(-1)); });
    try {
      StartThread([self = std::move(listener)] { self->Loop(); }).detach();
      return absl::OkStatus();
    } catch (const std::exception& e) {  // no more threads, or no memory
      unlink(path.c_str());
      return absl::UnavailableError(e.what());
    }
  }

 private:
  explicit Listener(std::string path)
      : path_(std::move(path)), socket_(OpenSocket()), wake_(eventfd(0, EFD_CLOEXEC)) {}

  // Under another name until it listens: a process that finds a socket where none listens takes it
  // away.
  bool Open() const {
    const std::string unready = absl::StrCat(path_, kUnready);
    const std::optional<sockaddr_un> address = SocketAddress(unready);
    if (!address.has_value() || !socket_.open() || !wake_.open()) return false;
    unlink(unready.c_str());  // of a process of that name that was killed
    return bind(socket_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) ==
               0 &&
           listen(socket_.get(), 16) == 0 && std::rename(unready.c_str(), path_.c_str()) == 0;
  }

  void Loop() noexcept {
    ReadyToThrow();
    ExitGuard guard([](void* self) { static_cast<Listener*>(self)->Stop(); }, this);
    while (guard.allowed() && !stop_) {
      if (!WaitFor(socket_.get(), POLLIN, MonotonicTime::InfiniteFuture(), wake_.get())) continue;
      try {
        AnswerOne();
      } catch (...) {  // no memory; the asker hears nothing
      }
    }
    unlink(path_.c_str());
  }

  void AnswerOne() const {
    const Descriptor asker(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!asker.open()) {
      // Out of descriptors, perhaps: the asker is there still, and poll would say so at once.
      WaitFor(-1, 0, MonotonicTime::Now() + kQuestionTime, wake_.get());
      return;
    }
    ucred peer = {};
    socklen_t size = sizeof(peer);
    if (getsockopt(asker.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != geteuid() && peer.uid != 0)) {
      return;
    }
    std::string text;
    auto receive = [&] { return ReceiveSome(asker.get(), kMostQuestion, &text); };
    const MonotonicTime until = MonotonicTime::Now() + kQuestionTime;
    if (!Finish(asker.get(), POLLIN, until, wake_.get(), receive)) return;
    const std::optional<Json> question = Json::Parse(text);
    if (!question.has_value()) return;
    const std::string answer = Answer(*question).Dump();
    absl::string_view unsent = answer;
    auto send = [&] { return SendSome(asker.get(), &unsent); };
    Finish(asker.get(), POLLOUT, MonotonicTime::Now() + kQuestionTime, wake_.get(), send);
  }

  void Stop() {
    stop_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  static inline std::atomic<int> inherited_{-1};  // its socket, which a child closes
  const std::string path_;
  const Descriptor socket_, wake_;
  std::atomic<bool> stop_{false};
};

// ---- The process that asks ----

Json Question(absl::string_view salt) {
  Json question = Json::MakeObject();
  question.Add("salt", salt);
  return question;
}

bool IsShared(absl::string_view salt) { return !absl::StartsWith(salt, "connection:"); }

}  // namespace

void ShowToOtherProcesses(absl::string_view salt) {
  static std::atomic<uint64_t> tried{0};
  if (!IsShared(salt) || tried.exchange(ThisProcess()) == ThisProcess()) return;
  absl::Status first;
  for (const std::string& directory : SocketDirectories()) {
    absl::Status status = MakePrivate(directory);
    if (status.ok()) status = Listener::Begin(directory);
    if (status.ok()) return RemoveDeadSockets(directory);
    first.Update(status);
  }
  if (first.ok()) return;  // none is wanted
  sqlite3_log(SQLITE_WARNING, "sqlite-lm: lm_running of other processes does not show this one: %s",
              std::string(first.message()).c_str());
}

absl::StatusOr<std::vector<WorkInfo>> WorkOfOtherProcesses(absl::string_view salt) {
  std::vector<WorkInfo> all;
  if (!IsShared(salt)) return all;
  const std::vector<ProcessSocket> sockets = OtherSockets();
  ASSIGN_OR_RETURN(const std::vector<std::optional<Json>> answers, AskAll(sockets, Question(salt)));
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!answers[i].has_value() || !answers[i]->is_array()) continue;
    for (const Json& work : answers[i]->array()) {
      if (std::optional<WorkInfo> info = FromJson(work, sockets[i])) {
        all.push_back(*std::move(info));
      }
    }
  }
  return all;
}

absl::Status CancelInOtherProcess(int64_t id, const WorkOwner& canceller) {
  if (!IsShared(canceller.salt)) return absl::OkStatus();
  std::vector<ProcessSocket> sockets = OtherSockets();
  std::erase_if(sockets, [id](const ProcessSocket& s) { return s.key != id / kIdsOfAProcess; });
  Json question = Question(canceller.salt);
  question.Add("cancel", id % kIdsOfAProcess);
  question.Add("process", static_cast<int64_t>(getpid()));
  question.Add("connection", canceller.connection);
  return AskAll(sockets, question).status();
}

}  // namespace lm

// Where processes of this user can be asked, each at a socket of the file system, and a
// conversation there: a question, its end, an answer.
//
//   DIRECTORY/<the process's number>-<the number of its PID namespace>
//
// Containers that share a directory may have processes of one number: the namespace tells them
// apart. A process listens in the first DIRECTORY that it can have, and is looked for in all:
//   $LM_RUNTIME_DIR/   and no other, where it is set; where it is empty there is none
//   $XDG_RUNTIME_DIR/sqlite-lm
//   /tmp/sqlite-lm-<user>
//   /run/user/<user>/sqlite-lm, where $XDG_RUNTIME_DIR is not set: a session's, seen from outside
#ifndef LM_EXTENSION_CONNECTION_PROCESS_SOCKETS_H_
#define LM_EXTENSION_CONNECTION_PROCESS_SOCKETS_H_

#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"

namespace lm {

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

int OpenSocket();  // that never waits; -1 where there is none
// nullopt for a path that is too long for one.
std::optional<sockaddr_un> SocketAddress(const std::string& path);

// Where to listen, the best first.
std::vector<std::string> SocketDirectories();
// OK for a directory of this user's that no other user can enter, for a socket in it answers all
// that can, and whose path is short enough for one. NotFound where there is none. Errors name it.
absl::Status CheckPrivate(const std::string& directory);
// The same; makes it first where it is not there, and those above the one of LM_RUNTIME_DIR.
absl::Status MakePrivate(const std::string& directory);
// Why this process can neither listen in any of the directories nor find others there.
absl::Status WhyApart();
// This process's socket in a directory; and what follows its name until it listens there.
std::string OwnSocketName();
inline constexpr absl::string_view kUnready = ".new";

struct ProcessSocket {
  std::string path;
  int64_t process = 0;  // its number, as its own namespace has it
  // The same, but for a process of another namespace: there it is a larger number. < 2^33.
  int64_t key = 0;
};
// Of the other processes; some may be there no more.
std::vector<ProcessSocket> OtherSockets();
// Takes away, some at a time, what killed processes of this namespace have left in a directory.
void RemoveDeadSockets(const std::string& directory);

// How far one has come with what it sends or receives, without waiting.
enum class Progress { kDone, kWaits, kFailed };
// Ends its direction when all is sent.
Progress SendSome(int fd, absl::string_view* unsent);
// Done at the end of the other's direction; fails for more than `most` bytes.
Progress ReceiveSome(int fd, size_t most, std::string* text);

// Asks them, 64 at once, and takes their answers, in the same order. nullopt for one that has not
// answered 400 ms later, or not with JSON. Cancelled where the statement is interrupted
// (checkpoint.h). Takes away the sockets of processes that are there no more.
absl::StatusOr<std::vector<std::optional<Json>>> AskAll(const std::vector<ProcessSocket>& sockets,
                                                        const Json& question);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_PROCESS_SOCKETS_H_

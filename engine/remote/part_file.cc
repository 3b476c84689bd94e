#include "engine/remote/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/no_file_size_signal.h"
#include "engine/base/status_macros.h"
#include "engine/base/write_all.h"

namespace lm {
namespace {

constexpr absl::Duration kLockLook = absl::Milliseconds(20);
constexpr size_t kReadBytes = 1 << 20;

std::string PartOf(const std::string& path) { return path + ".part"; }
std::string NoteOf(const std::string& path) { return path + ".part.json"; }
std::string LockOf(const std::string& path) { return path + ".lock"; }

int64_t SizeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

// When the file was last written, in nanoseconds; -1 where there is none.
int64_t ChangeOf(const std::string& path) {
  const absl::StatusOr<FileIdentity> file = IdentifyFile(path);
  return file.ok() ? file->modified_ns : -1;
}

}  // namespace

absl::Status PartFile::Failed(absl::string_view doing, const std::string& path) const {
  const int error = errno;
  const std::string message = absl::StrCat(
      doing, " '", path, "': ", std::strerror(error),
      size_ > 0 ? " (what is there of it stays, and the next try goes on from it)" : "");
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return denied ? absl::PermissionDeniedError(message) : absl::ResourceExhaustedError(message);
}

absl::StatusOr<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path, FileFacts facts,
                                                         const std::atomic<bool>& cancel) {
  std::unique_ptr<PartFile> part(new PartFile(path, std::move(facts)));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("making '", folder.string(), "': ", error.message()));
  }
  const absl::Status locked = part->Lock(cancel);
  // Where nothing may be written, the file may be there.
  if (!absl::IsPermissionDenied(locked)) RETURN_IF_ERROR(locked);
  if (SizeOf(path) == part->facts_.size) {
    ASSIGN_OR_RETURN(const std::string digest, part->DigestThere(cancel));
    part->is_there_ = digest == part->facts_.sha256;
  }
  if (part->is_there_) return part;
  RETURN_IF_ERROR(locked);
  RETURN_IF_ERROR(part->Resume(cancel));
  return part;
}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);
  if (lock_ >= 0) close(lock_);
}

// The lock goes with whoever holds it, however he ends; its file stays, so that all lock the same,
// and says what the file itself is.
absl::Status PartFile::Lock(const std::atomic<bool>& cancel) {
  const std::string name = LockOf(path_);
  lock_ = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) return Failed("making", name);
  while (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Failed("locking", name);
    if (cancel) return absl::CancelledError("the download was cancelled");
    absl::SleepFor(kLockLook);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PartFile::DigestThere(const std::atomic<bool>& cancel) {
  std::stringstream text;
  text << std::ifstream(LockOf(path_)).rdbuf();
  const Json known = Json::Parse(text.str()).value_or(Json());
  const Json* changed = known.Find("changed");
  if (changed != nullptr && *changed == Json(ChangeOf(path_))) return known.TextAt("sha256");
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("opening", path_);
  const absl::Cleanup close_it = [fd] { close(fd); };
  const int64_t change = ChangeOf(path_);  // what changes from here on is looked at again
  Sha256 hash;
  RETURN_IF_ERROR(
      ReadAll(fd, path_, cancel, [&hash](absl::string_view bytes) { hash.Add(bytes); }));
  std::string digest = hash.Hex();
  NoteDigest(digest, change);
  return digest;
}

// Where it cannot be written, the file is read once more the next time.
void PartFile::NoteDigest(const std::string& sha256, int64_t change) const {
  Json note = Json::MakeObject();
  note.Add("sha256", sha256);
  note.Add("changed", change);
  const NoFileSizeSignal no_signal;
  std::ofstream(LockOf(path_), std::ios::trunc) << note.Dump();
}

absl::Status PartFile::ReadAll(int fd, const std::string& name, const std::atomic<bool>& cancel,
                               absl::FunctionRef<void(absl::string_view)> take) const {
  std::vector<char> bytes(kReadBytes);
  for (;;) {
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("reading", name);
    if (n == 0) return absl::OkStatus();
    if (cancel) return absl::CancelledError("the download was cancelled");
    take({bytes.data(), static_cast<size_t>(n)});
  }
}

absl::Status PartFile::Resume(const std::atomic<bool>& cancel) {
  const std::string part = PartOf(path_);
  std::ifstream note(NoteOf(path_));
  std::stringstream text;
  text << note.rdbuf();
  const std::optional<Json> parsed = Json::Parse(text.str());
  if (!parsed) RETURN_IF_ERROR(Checkpoint());  // it was not read to its end
  const Json known = parsed.value_or(Json());
  const bool same =
      known.TextAt("sha256") == facts_.sha256 && SizeOf(part) >= 0 && SizeOf(part) <= facts_.size;
  if (!same) return Restart("");
  fd_ = open(part.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ < 0) return Failed("opening", part);
  etag_ = known.TextAt("etag");
  return ReadAll(fd_, part, cancel, [this](absl::string_view bytes) {
    hash_.Add(bytes);
    size_ += static_cast<int64_t>(bytes.size());
  });
}

absl::Status PartFile::Restart(const std::string& etag) {
  const std::string part = PartOf(path_);
  if (fd_ < 0) fd_ = open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return Failed("making", part);
  // First the bytes go, then they are of another version.
  if (ftruncate(fd_, 0) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return Failed("writing", part);
  Json note = Json::MakeObject();
  note.Add("sha256", facts_.sha256);
  note.Add("size", facts_.size);
  note.Add("etag", etag);
  const NoFileSizeSignal no_signal;
  std::ofstream file(NoteOf(path_), std::ios::trunc);
  file << note.Dump();
  if (!file.flush()) return Failed("writing", NoteOf(path_));
  size_ = 0;
  etag_ = etag;
  hash_ = Sha256();
  return absl::OkStatus();
}

absl::Status PartFile::Append(absl::string_view bytes) {
  if (size_ + static_cast<int64_t>(bytes.size()) > facts_.size) {
    Forget();
    return absl::DataLossError(absl::StrCat("'", path_, "': more came than the ", facts_.size,
                                            " bytes that the hub said; what was there is removed"));
  }
  absl::string_view left = bytes;
  const absl::Status status =
      WriteAll(fd_, &left) ? absl::OkStatus() : Failed("writing", PartOf(path_));
  bytes.remove_suffix(left.size());  // what the part has
  hash_.Add(bytes);
  size_ += static_cast<int64_t>(bytes.size());
  return status;
}

void PartFile::Forget() {
  unlink(PartOf(path_).c_str());
  unlink(NoteOf(path_).c_str());
}

absl::Status PartFile::Commit() {
  const std::string got = hash_.Hex();
  if (size_ != facts_.size || got != facts_.sha256) {
    Forget();
    return absl::DataLossError(absl::StrCat("'", path_, "': what came has SHA-256 ", got,
                                            ", the hub said ", facts_.sha256, "; it is removed"));
  }
  if (fsync(fd_) != 0) return Failed("writing", PartOf(path_));
  if (std::rename(PartOf(path_).c_str(), path_.c_str()) != 0) return Failed("making", path_);
  unlink(NoteOf(path_).c_str());
  NoteDigest(got, ChangeOf(path_));
  is_there_ = true;
  return absl::OkStatus();
}

}  // namespace lm

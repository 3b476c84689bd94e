#include "engine/cache/prefix_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr char kMagic[16] = "sqlite-lm kv 1\n";
constexpr uint64_t kMostDescription = 64 << 20;

struct FixedHead {
  char magic[16];
  uint64_t description_bytes;
  uint64_t data_bytes;
  Digest description;
  Digest data;
};
static_assert(sizeof(FixedHead) == 64);

absl::string_view View(absl::Span<const char> bytes) { return {bytes.data(), bytes.size()}; }

absl::Status Damaged(const std::string& path, absl::string_view how) {
  return absl::DataLossError(absl::StrCat("the stored prefix '", path, "' ", how));
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// What a directory entry's change takes to be on the disk.
void SyncFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

std::string JsonOf(const PrefixDescription& description) {
  Json json = Json::MakeObject();
  json.Add("model", description.model);
  json.Add("owner", description.owner);
  json.Add("begin", description.begin);
  Json tokens = Json::MakeArray();
  for (const int32_t token : description.tokens) tokens.Append(token);
  json.Add("tokens", std::move(tokens));
  return json.Dump();
}

std::optional<PrefixDescription> DescriptionIn(absl::string_view text) {
  const std::optional<Json> json = Json::Parse(text);
  if (!json || !json->is_object()) return std::nullopt;
  const Json *model = json->Find("model"), *owner = json->Find("owner");
  const Json *begin = json->Find("begin"), *tokens = json->Find("tokens");
  const bool whole = model != nullptr && model->is_string() && owner != nullptr &&
                     owner->is_string() && begin != nullptr && begin->is_unsigned() &&
                     tokens != nullptr && tokens->is_array();
  if (!whole || begin->unsigned_integer() > tokens->array().size()) return std::nullopt;
  PrefixDescription description = {.model = model->string(),
                                   .owner = owner->string(),
                                   .begin = static_cast<int64_t>(begin->unsigned_integer())};
  for (const Json& token : tokens->array()) {
    constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
    if (!token.is_unsigned() || token.unsigned_integer() > kMost) return std::nullopt;
    description.tokens.push_back(static_cast<int32_t>(token.unsigned_integer()));
  }
  return description;
}

// Opens the file and looks whose it is.
absl::StatusOr<int> OpenOwn(const std::string& path, uint64_t* bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return absl::NotFoundError(absl::StrCat("'", path, "': ", std::strerror(errno)));
  }
  struct stat info;
  absl::string_view why;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    why = "is no file";
  } else if (info.st_uid != geteuid() && info.st_uid != 0) {
    why = "is another user's";
  } else if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    why = "may be written by other users";
  }
  if (!why.empty()) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat("'", path, "' ", why));
  }
  *bytes = static_cast<uint64_t>(info.st_size);
  return fd;
}

absl::StatusOr<PrefixHead> ReadHead(int fd, const std::string& path, uint64_t bytes) {
  FixedHead fixed;
  if (bytes < sizeof(fixed)) return Damaged(path, "is cut");
  RETURN_IF_ERROR(ReadFully(fd, path, 0, {reinterpret_cast<char*>(&fixed), sizeof(fixed)}));
  if (std::memcmp(fixed.magic, kMagic, sizeof(kMagic)) != 0) {
    return Damaged(path, "does not begin like one");
  }
  const uint64_t rest = bytes - sizeof(fixed);
  if (fixed.description_bytes > std::min(rest, kMostDescription) ||
      fixed.data_bytes != rest - fixed.description_bytes) {
    return Damaged(path, "has another size than it says");
  }
  std::string text(fixed.description_bytes, '\0');
  RETURN_IF_ERROR(ReadFully(fd, path, sizeof(fixed), absl::MakeSpan(text)));
  std::optional<PrefixDescription> description;
  if (DigestOf(text) == fixed.description) description = DescriptionIn(text);
  if (!description) return Damaged(path, "has a damaged description");
  return PrefixHead{.description = *std::move(description),
                    .data_begin = sizeof(fixed) + fixed.description_bytes,
                    .data_bytes = fixed.data_bytes,
                    .data_digest = fixed.data};
}

}  // namespace

absl::Status WritePrefixFile(const std::string& path, const PrefixDescription& description,
                             absl::Span<const char> data) {
  static std::atomic<uint64_t> number{0};
  const std::string part = absl::StrCat(path, ".", getpid(), ".", number++, ".part");
  const std::string text = JsonOf(description);
  FixedHead fixed = {.magic = {},
                     .description_bytes = text.size(),
                     .data_bytes = data.size(),
                     .description = DigestOf(text),
                     .data = DigestOf(View(data))};
  std::memcpy(fixed.magic, kMagic, sizeof(kMagic));
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("'", part, "': ", std::strerror(errno)));
  absl::Cleanup remove = [&part] { unlink(part.c_str()); };
  absl::Status status = WriteAll(fd, {reinterpret_cast<const char*>(&fixed), sizeof(fixed)});
  if (status.ok()) status = WriteAll(fd, text);
  if (status.ok()) status = WriteAll(fd, View(data));
  if (status.ok() && fsync(fd) != 0) status = absl::UnavailableError(std::strerror(errno));
  if (close(fd) != 0) status.Update(absl::UnavailableError(std::strerror(errno)));
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0) {
    status = absl::UnavailableError(std::strerror(errno));
  }
  if (!status.ok()) {
    return absl::UnavailableError(absl::StrCat("'", path, "': ", status.message()));
  }
  std::move(remove).Cancel();
  SyncFolder(path);
  return absl::OkStatus();
}

absl::StatusOr<PrefixHead> ReadPrefixHead(const std::string& path) {
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const int fd, OpenOwn(path, &bytes));
  const absl::Cleanup closed = [fd] { close(fd); };
  return ReadHead(fd, path, bytes);
}

absl::StatusOr<std::vector<char>> ReadPrefixData(const std::string& path, const PrefixHead& head) {
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const int fd, OpenOwn(path, &bytes));
  const absl::Cleanup closed = [fd] { close(fd); };
  ASSIGN_OR_RETURN(const PrefixHead now, ReadHead(fd, path, bytes));
  if (now.data_begin != head.data_begin || now.data_bytes != head.data_bytes ||
      !(now.data_digest == head.data_digest)) {
    return Damaged(path, "is another than it was");
  }
  std::vector<char> data(head.data_bytes);
  RETURN_IF_ERROR(ReadFully(fd, path, head.data_begin, absl::MakeSpan(data)));
  if (!(DigestOf(View(data)) == head.data_digest)) return Damaged(path, "has damaged blocks");
  // The file's time tells what is used least.
  futimens(fd, nullptr);
  return data;
}

void RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".part") continue;
    const std::string name = entry.path().filename().string();
    const std::vector<absl::string_view> words = absl::StrSplit(name, '.');
    int32_t process = 0;
    if (words.size() < 4 || !absl::SimpleAtoi(words[words.size() - 3], &process)) continue;
    if (process > 0 && kill(process, 0) != 0 && errno == ESRCH) unlink(entry.path().c_str());
  }
}

}  // namespace lm

#include "engine/cache/prefix_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/checkpoint.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/list_folder.h"
#include "engine/base/locked_part.h"
#include "engine/base/own_file.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr char kMagic[16] = "sqlite-lm kv 2\n";
constexpr absl::string_view kMagicOfAllVersions = "sqlite-lm kv ";
constexpr char kExtension[] = ".prefix";
constexpr size_t kNameDigits = 32, kPartDigits = 16;
constexpr uint64_t kMostDescription = 64 << 20;

struct FixedHead {
  char magic[16];
  uint64_t description_bytes;
  uint64_t data_bytes;  // of all pieces
  Digest description;
};
static_assert(sizeof(FixedHead) == 48);

absl::string_view View(absl::Span<const char> bytes) { return {bytes.data(), bytes.size()}; }

absl::Status Damaged(const std::string& path, absl::string_view how) {
  return absl::DataLossError(absl::StrCat("the stored prefix '", path, "' ", how));
}

// What a directory entry's change takes to be on the disk.
void SyncFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

bool IsHex(absl::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || ('a' <= c && c <= 'f');
         });
}

bool IsPrefixName(absl::string_view name) {
  return absl::ConsumeSuffix(&name, kExtension) && IsHex(name, kNameDigits);
}

// "<32 digits>.prefix.<16 digits>.part". Earlier versions put the number of a process there, and
// how many it had written: "<32 digits>.prefix.71.3.part".
bool IsPartName(absl::string_view name) {
  const std::vector<absl::string_view> words = absl::StrSplit(name, '.');
  const bool is_of_prefix = words.size() >= 4 && IsHex(words[0], kNameDigits) &&
                            words[1] == "prefix" && words.back() == "part";
  uint64_t number;
  if (is_of_prefix && words.size() == 4) return IsHex(words[2], kPartDigits);
  return is_of_prefix && words.size() == 5 && absl::SimpleAtoi(words[2], &number) &&
         absl::SimpleAtoi(words[3], &number);
}

// Whether an earlier version, which holds no lock, may be writing the part: its name has the number
// of a process that lives. That may be another one's by now.
bool MayBeOfEarlierVersion(const std::string& path) {
  constexpr absl::Duration kLongestWrite = absl::Hours(1);
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(path).substr(path.rfind('/') + 1), '.');
  int32_t process = 0;
  if (words.size() != 5 || !absl::SimpleAtoi(words[2], &process) || process <= 0) return false;
  if (kill(process, 0) != 0 && errno == ESRCH) return false;
  struct stat info;
  return stat(path.c_str(), &info) == 0 &&
         absl::Now() - absl::TimeFromTimespec(info.st_mtim) < kLongestWrite;
}

// Paths in a folder whose names pass `is_such`.
std::vector<std::string> Listed(const std::string& folder,
                                absl::FunctionRef<bool(absl::string_view name)> is_such) {
  auto paths = ListFolder(folder).value_or(std::vector<std::string>());
  std::erase_if(paths, [is_such](absl::string_view path) {
    return !is_such(path.substr(path.rfind('/') + 1));
  });
  return paths;
}

// Makes a part with a random name, so that no other process has it, and none has left a part of
// that name. (A process that looks for parts that were left may lock this one before its writer
// does.)
absl::StatusOr<std::unique_ptr<LockedPart>> MakePart(const std::string& path) {
  constexpr int kTries = 8;
  for (int i = 1;; ++i) {
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != ssize_t{sizeof(number)}) {
      return absl::UnavailableError(
          absl::StrCat("no random number for '", path, "': ", std::strerror(errno)));
    }
    absl::StatusOr<std::unique_ptr<LockedPart>> part =
        LockedPart::Create(absl::StrCat(path, ".", absl::Hex(number, absl::kZeroPad16), ".part"));
    if (!absl::IsAlreadyExists(part.status()) || i == kTries) return part;
  }
}

std::string JsonOf(const PrefixDescription& description,
                   absl::Span<const absl::Span<const char>> pieces) {
  Json json = Json::MakeObject();
  json.Add("model", description.model);
  json.Add("owner", description.owner);
  json.Add("adapters", description.adapters);
  json.Add("begin", description.begin);
  Json tokens = Json::MakeArray();
  for (const int32_t token : description.tokens) tokens.Append(token);
  json.Add("tokens", std::move(tokens));
  Json sizes = Json::MakeArray(), digests = Json::MakeArray();
  for (const absl::Span<const char> piece : pieces) {
    sizes.Append(static_cast<int64_t>(piece.size()));
    digests.Append(DigestOf(View(piece)).Hex());
  }
  json.Add("sizes", std::move(sizes));
  json.Add("digests", std::move(digests));
  return json.Dump();
}

bool ReadDigest(absl::string_view hex, Digest* digest) {
  return hex.size() == 32 && absl::SimpleHexAtoi(hex.substr(0, 16), &digest->high) &&
         absl::SimpleHexAtoi(hex.substr(16), &digest->low);
}

// The pieces that lie from `offset` on in the file.
bool ReadPieces(const Json& json, uint64_t offset, std::vector<PrefixPiece>* pieces) {
  const Json *sizes = json.Find("sizes"), *digests = json.Find("digests");
  if (sizes == nullptr || !sizes->is_array() || digests == nullptr || !digests->is_array() ||
      sizes->array().size() != digests->array().size()) {
    return false;
  }
  for (size_t i = 0; i < sizes->array().size(); ++i) {
    const Json &size = sizes->array()[i], &digest = digests->array()[i];
    constexpr uint64_t kMost = uint64_t{1} << 40;
    if (!size.is_unsigned() || size.unsigned_integer() > kMost || !digest.is_string()) return false;
    PrefixPiece& piece = pieces->emplace_back();
    piece.offset = offset;
    piece.bytes = size.unsigned_integer();
    offset += piece.bytes;
    if (!ReadDigest(digest.string(), &piece.digest)) return false;
  }
  return true;
}

std::optional<PrefixHead> HeadIn(absl::string_view text, uint64_t data_begin) {
  const std::optional<Json> json = Json::Parse(text);
  if (!json || !json->is_object()) return std::nullopt;
  const Json *model = json->Find("model"), *owner = json->Find("owner");
  const Json *adapters = json->Find("adapters"), *begin = json->Find("begin");
  const Json* tokens = json->Find("tokens");
  const bool whole = model != nullptr && model->is_string() && owner != nullptr &&
                     owner->is_string() && adapters != nullptr && adapters->is_string() &&
                     begin != nullptr && begin->is_unsigned() && tokens != nullptr &&
                     tokens->is_array();
  if (!whole || begin->unsigned_integer() > tokens->array().size()) return std::nullopt;
  PrefixHead head;
  head.description = {.model = model->string(),
                      .owner = owner->string(),
                      .adapters = adapters->string(),
                      .begin = static_cast<int64_t>(begin->unsigned_integer())};
  for (const Json& token : tokens->array()) {
    constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
    if (!token.is_unsigned() || token.unsigned_integer() > kMost) return std::nullopt;
    head.description.tokens.push_back(static_cast<int32_t>(token.unsigned_integer()));
  }
  if (!ReadPieces(*json, data_begin, &head.pieces)) return std::nullopt;
  return head;
}

bool BeginsLikeOne(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const absl::Cleanup closed = [fd] { close(fd); };
  char begin[kMagicOfAllVersions.size()];
  return pread(fd, begin, sizeof(begin), 0) == ssize_t{sizeof(begin)} &&
         absl::string_view(begin, sizeof(begin)) == kMagicOfAllVersions;
}

absl::StatusOr<PrefixHead> ReadHead(int fd, const std::string& path, uint64_t bytes) {
  FixedHead fixed = {};
  const absl::Span<char> begin(reinterpret_cast<char*>(&fixed), sizeof(fixed));
  RETURN_IF_ERROR(ReadFully(fd, path, 0, begin.subspan(0, std::min(bytes, sizeof(fixed)))));
  if (!absl::StartsWith(View(begin), kMagicOfAllVersions)) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' does not begin like a stored prefix, and is left alone"));
  }
  if (bytes < sizeof(fixed)) return Damaged(path, "is cut");
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
  std::optional<PrefixHead> head;
  if (DigestOf(text) == fixed.description) head = HeadIn(text, sizeof(fixed) + text.size());
  if (!head) {
    RETURN_IF_ERROR(Checkpoint());  // or it was not read to its end
    return Damaged(path, "has a damaged description");
  }
  const uint64_t end = head->pieces.empty()
                           ? sizeof(fixed) + text.size()
                           : head->pieces.back().offset + head->pieces.back().bytes;
  if (end != bytes) return Damaged(path, "has another size than it says");
  head->bytes = bytes;
  return *std::move(head);
}

}  // namespace

absl::Status WritePrefixFile(const std::string& path, const PrefixDescription& description,
                             absl::Span<const absl::Span<const char>> pieces) {
  const std::string text = JsonOf(description, pieces);
  FixedHead fixed = {.magic = {},
                     .description_bytes = text.size(),
                     .data_bytes = 0,
                     .description = DigestOf(text)};
  for (const absl::Span<const char> piece : pieces) fixed.data_bytes += piece.size();
  std::memcpy(fixed.magic, kMagic, sizeof(kMagic));
  ASSIGN_OR_RETURN(const std::unique_ptr<LockedPart> part, MakePart(path));
  RETURN_IF_ERROR(part->Append({reinterpret_cast<const char*>(&fixed), sizeof(fixed)}));
  RETURN_IF_ERROR(part->Append(text));
  for (const absl::Span<const char> piece : pieces) RETURN_IF_ERROR(part->Append(View(piece)));
  RETURN_IF_ERROR(part->Finish(path, 0600));
  SyncFolder(path);
  return absl::OkStatus();
}

absl::StatusOr<PrefixHead> ReadPrefixHead(const std::string& path) {
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const int fd, OpenOwnFile(path, &bytes));
  const absl::Cleanup closed = [fd] { close(fd); };
  return ReadHead(fd, path, bytes);
}

absl::Status ReadPrefixPiece(const std::string& path, const PrefixPiece& piece,
                             absl::Span<char> out) {
  constexpr size_t kAtOnce = 128 << 10;  // is still in the cache when its digest is made
  static_assert(kAtOnce % Digester::kBlockBytes == 0);
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const int fd, OpenOwnFile(path, &bytes));
  const absl::Cleanup closed = [fd] { close(fd); };
  if (bytes < piece.offset + piece.bytes) return Damaged(path, "is cut");
  Digester digester;
  for (size_t done = 0; done < out.size(); done += kAtOnce) {
    const absl::Span<char> part = out.subspan(done, kAtOnce);
    RETURN_IF_ERROR(ReadFully(fd, path, piece.offset + done, part));
    digester.Add(View(part));
  }
  if (!(digester.Finish() == piece.digest)) return Damaged(path, "has damaged blocks");
  return absl::OkStatus();
}

void TouchPrefixFiles(const std::vector<std::string>& paths) {
  absl::Time used = absl::Now();
  for (const std::string& path : paths) {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, absl::ToTimespec(used)};
    utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
    used -= absl::Microseconds(1);
  }
}

std::string PrefixFileName(const Digest& digest) { return digest.Hex() + kExtension; }

std::vector<std::string> ListPrefixFiles(const std::string& folder) {
  return Listed(folder, IsPrefixName);
}

std::vector<PrefixFileUse> ListPrefixUse(const std::string& folder) {
  std::vector<PrefixFileUse> use;
  for (std::string& path : ListPrefixFiles(folder)) {
    struct stat info;
    if (!BeginsLikeOne(path) || lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    use.push_back({std::move(path), info.st_size, absl::TimeFromTimespec(info.st_mtim)});
  }
  return use;
}

void RemoveLeftovers(const std::string& folder) {
  for (const std::string& path : Listed(folder, IsPartName)) {
    if (!MayBeOfEarlierVersion(path)) LockedPart::RemoveLeftover(path);
  }
}

}  // namespace lm

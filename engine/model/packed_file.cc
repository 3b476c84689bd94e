#include "engine/model/packed_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/own_file.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"

namespace lm {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMostDirectory = 64 << 20;

struct Head {
  char magic[8];
  uint64_t directory_begin;
  uint64_t directory_bytes;
  Digest directory;
  uint64_t unused[3];
};
static_assert(sizeof(Head) == kAlignment);

constexpr char kMagic[8] = {'l', 'm', '.', 'p', 'a', 'c', 'k', '1'};

absl::string_view View(absl::Span<const char> bytes) { return {bytes.data(), bytes.size()}; }

const std::string* TextOf(const Json& object, absl::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->is_string() ? &value->string() : nullptr;
}

// Where the directory lies in a file of so many bytes; nullopt: the head is none.
std::optional<std::pair<uint64_t, uint64_t>> DirectoryOf(const Head& head, uint64_t size) {
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  if (head.directory_begin > size || head.directory_bytes != size - head.directory_begin ||
      head.directory_bytes > kMostDirectory) {
    return std::nullopt;
  }
  return std::make_pair(head.directory_begin, head.directory_bytes);
}

std::optional<PackedSource> SourceIn(const Json& directory) {
  const Json* source = directory.is_object() ? directory.Find("source") : nullptr;
  if (source == nullptr || !source->is_object()) return std::nullopt;
  const std::string* const path = TextOf(*source, "path");
  const std::string* const contents = TextOf(*source, "contents");
  const std::string* const layout = TextOf(*source, "layout");
  const std::string* const digest = TextOf(*source, "digest");
  if (!path || !contents || !layout || !digest) return std::nullopt;
  return PackedSource{*path, *contents, *layout, *digest};
}

}  // namespace

absl::Status PackedFile::Damaged(absl::string_view how) const {
  return absl::DataLossError(
      absl::StrCat("the packed weights '", path_, "' ", how,
                   "; they are removed, and the next load packs the model again"));
}

absl::StatusOr<std::shared_ptr<PackedFile>> PackedFile::Open(const std::string& path,
                                                             const PackedSource& source,
                                                             int num_threads) {
  std::shared_ptr<PackedFile> packed(new PackedFile(path, num_threads));
  absl::StatusOr<std::shared_ptr<LeasedFile>> file = LeasedFile::Open(path);
  if (absl::IsNotFound(file.status())) return file.status();
  if (file.ok()) {
    packed->file_ = *std::move(file);
  } else {
    uint64_t size = 0;
    ASSIGN_OR_RETURN(const int fd, OpenOwnFile(path, &size));
    const absl::Cleanup closed = [fd] { close(fd); };
    ASSIGN_OR_RETURN(packed->copy_, Buffer::AllocateHost(size));
    RETURN_IF_ERROR(ReadFully(fd, path, 0, packed->copy_.chars()));
  }
  if (absl::Status status = packed->ReadDirectory(); !status.ok()) {
    if (absl::IsDataLoss(status)) unlink(path.c_str());
    return status;
  }
  if (packed->source_.Matches(source)) return packed;
  return absl::FailedPreconditionError(
      absl::StrCat("'", path, "' has the packed weights of another model"));
}

absl::Status PackedFile::ReadDirectory() {
  const absl::Span<const char> all = bytes();
  Head head;
  if (all.size() < sizeof(head)) return Damaged("are too short");
  std::memcpy(&head, all.data(), sizeof(head));
  const auto place = DirectoryOf(head, all.size());
  if (!place) return Damaged("have another size than they say, or no head");
  const absl::string_view text = View(all.subspan(place->first, place->second));
  if (!(DigestOf(text) == head.directory)) return Damaged("have a damaged directory");
  const std::optional<Json> directory = Json::Parse(text);
  if (!directory) RETURN_IF_ERROR(Checkpoint());  // it was not read to its end
  const Json* matrices = directory ? directory->Find("matrices") : nullptr;
  std::optional<PackedSource> source = directory ? SourceIn(*directory) : std::nullopt;
  if (!source || matrices == nullptr || !matrices->is_array()) {
    return Damaged("have a directory that is none");
  }
  source_ = *std::move(source);
  for (const Json& matrix : matrices->array()) {
    const bool whole = matrix.is_array() && matrix.array().size() == 5 &&
                       matrix.array()[0].is_string() &&
                       std::all_of(matrix.array().begin() + 1, matrix.array().end(),
                                   [](const Json& number) { return number.is_unsigned(); });
    if (!whole) return Damaged("have a directory that is none");
    const Json::Array& a = matrix.array();
    const Entry entry = {a[1].unsigned_integer(),
                         a[2].unsigned_integer(),
                         {a[3].unsigned_integer(), a[4].unsigned_integer()}};
    if (entry.begin > place->first || entry.bytes > place->first - entry.begin ||
        entry.begin % kAlignment != 0) {
      return Damaged("have a directory that leads out of them");
    }
    entries_.emplace(a[0].string(), entry);
  }
  return absl::OkStatus();
}

std::optional<PackedSource> PackedFile::SourceOf(const std::string& path) {
  uint64_t size = 0;
  const absl::StatusOr<int> fd = OpenOwnFile(path, &size);
  if (!fd.ok()) return std::nullopt;
  const absl::Cleanup closed = [&fd] { close(*fd); };
  Head head;
  if (!ReadFully(*fd, path, 0, {reinterpret_cast<char*>(&head), sizeof(head)}).ok()) {
    return std::nullopt;
  }
  const auto place = DirectoryOf(head, size);
  if (!place) return std::nullopt;
  std::string text(place->second, '\0');
  if (!ReadFully(*fd, path, place->first, absl::MakeSpan(text.data(), text.size())).ok() ||
      !(DigestOf(text) == head.directory)) {
    return std::nullopt;
  }
  const std::optional<Json> directory = Json::Parse(text);
  return directory ? SourceIn(*directory) : std::nullopt;
}

std::optional<Buffer> PackedFile::Find(const std::shared_ptr<PackedFile>& packed,
                                       absl::string_view name) {
  const auto found = packed->entries_.find(std::string(name));
  if (found == packed->entries_.end()) return std::nullopt;
  const Entry& entry = found->second;
  char* const data = const_cast<char*>(packed->bytes().data()) + entry.begin;
  return Buffer(data, entry.bytes, [packed](void*, size_t) {});
}

absl::Status PackedFile::CheckBytes(absl::Span<const char> bytes) const {
  std::vector<const Entry*> entries;
  for (const auto& [name, entry] : entries_) entries.push_back(&entry);
  // In the order of the file, which may have to be read.
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->begin < b->begin; });
  std::atomic<bool> same{true};
  ThreadPool(num_threads_).ParallelFor(static_cast<int64_t>(entries.size()), [&](int64_t i) {
    const Entry& entry = *entries[i];
    if (file_ != nullptr && !file_->IsHeld() && bytes.data() == file_->bytes().data()) return;
    if (!(DigestOf(View(bytes.subspan(entry.begin, entry.bytes))) == entry.digest)) same = false;
  });
  return same ? absl::OkStatus() : Damaged("are damaged");
}

absl::Status PackedFile::Check() {
  const bool held = file_ == nullptr || file_->IsHeld();
  if (!status_.ok() || (checked_ && held)) return status_;
  if (held) status_ = CheckBytes(bytes());
  // Somebody wants to write to it, perhaps since the line before.
  if (file_ != nullptr && !file_->IsHeld()) {
    status_ = file_->TakeCopy([&](absl::Span<const char> copy) { return CheckBytes(copy); });
    if (!status_.ok() && !absl::IsDataLoss(status_)) {
      status_ = absl::DataLossError(absl::StrCat("the packed weights are gone: ", status_.message(),
                                                 "; the next load packs the model again"));
    }
  }
  checked_ = true;
  if (!status_.ok()) unlink(path_.c_str());
  return status_;
}

absl::StatusOr<bool> PackedFile::Keep() {
  if (file_ == nullptr) return false;
  if (file_->IsHeld()) return true;
  RETURN_IF_ERROR(Check());
  return false;  // it has a copy
}

absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(
    const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("making '", folder.string(), "': ", error.message()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LockedPart> part, LockedPart::Create(path + ".part"));
  std::unique_ptr<PackedFileWriter> writer(new PackedFileWriter(path, std::move(part)));
  RETURN_IF_ERROR(writer->Write(std::string(sizeof(Head), '\0')));
  return writer;
}

absl::Status PackedFileWriter::Write(absl::string_view bytes) {
  end_ += bytes.size();
  return part_->Append(bytes);
}

void PackedFileWriter::Add(const std::string& name, absl::Span<const char> bytes) {
  if (!status_.ok()) return;
  const Digest digest = DigestOf(View(bytes));
  Json entry = Json::MakeArray();
  entry.Append(name).Append(end_).Append(uint64_t{bytes.size()});
  entry.Append(digest.high).Append(digest.low);
  absl::StrAppend(&directory_, directory_.empty() ? "" : ",\n", entry.Dump());
  status_ = Write(View(bytes));
  if (status_.ok())
    status_ = Write(std::string((kAlignment - end_ % kAlignment) % kAlignment, '\0'));
}

absl::Status PackedFileWriter::Finish(const PackedSource& source) {
  RETURN_IF_ERROR(status_);
  Json made_of = Json::MakeObject();
  made_of.Add("path", source.path);
  made_of.Add("contents", source.contents);
  made_of.Add("layout", source.layout);
  made_of.Add("digest", source.digest);
  const std::string directory =
      absl::StrCat("{\"source\":", made_of.Dump(), ",\n\"matrices\":[\n", directory_, "]}\n");
  Head head = {};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.directory_begin = end_;
  head.directory_bytes = directory.size();
  head.directory = DigestOf(directory);
  RETURN_IF_ERROR(Write(directory));
  RETURN_IF_ERROR(part_->WriteOverBegin({reinterpret_cast<const char*>(&head), sizeof(head)}));
  return part_->Finish(path_, 0444);
}

}  // namespace lm
